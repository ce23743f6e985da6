//! The device beneath the port: created before any worker starts, and running until the primary ends.

use std::os::fd::{AsFd as _, OwnedFd};

use ff_config::Device as DeviceKey;
use ff_control::{DevicePlan, OffloadPlan};
use ff_dataplane::io::af_packet::{self, PacketSocketError, RingSizes};
use ff_dpdk::instance::{self, CreateError, Layout, Parts, RunningPort};
use ff_dpdk::port::PortError;
use ff_dpdk::{Eal, mempool};

use crate::hugepages::Need;
use crate::plan::Settings;

/// Most slots of a ring of the in-memory wire.
const WIRE_RING_SLOTS_MAX: u32 = 65_536;
/// Clients at the far end of a wire.
pub const WIRE_CLIENTS: u16 = 1;
/// Number of the only port.
const PORT: u16 = 0;

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// DPDK's side of it.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A running port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A packet socket.
    #[error(transparent)]
    PacketSocket(#[from] PacketSocketError),
}

/// What runs.
#[derive(Debug)]
pub struct Device {
    /// As the workers are told.
    pub plan: DevicePlan,
    /// The address of the stack's end.
    pub mac: [u8; 6],
    /// As recovery needs to know it.
    pub parts: Parts,
    /// Receiving packet sockets, one per queue; none on other devices.
    pub sockets: Vec<OwnedFd>,
}

impl Device {
    /// Creates the device and starts it.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn create(eal: Eal, settings: &Settings) -> Result<Self, DeviceError> {
        let layout = settings.layout();
        let port = settings.port();
        let mac = port.mac.map_or_else(|| settings.own_mac(), |mac| mac.0);
        match &port.device {
            DeviceKey::Tap(interface) => {
                let running = instance::create_tap_port(eal, &layout, PORT, interface, mac, port.mtu)?;
                Self::ethernet(settings, running, Some(interface.clone()))
            }
            DeviceKey::Pci(address) => {
                let running = instance::start_port(eal, &layout, &address.to_string(), port.mtu)?;
                Self::ethernet(settings, running, None)
            }
            DeviceKey::AfPacket(ifname) => {
                if port.mac.is_some() {
                    tracing::warn!(
                        "mac= has no effect on {ifname}, whose own address is used: ip link set {ifname} address \
                         changes it"
                    );
                }
                Self::af_packet(ifname, layout.workers)
            }
            DeviceKey::Wire => {
                instance::create_wire(eal, &layout, PORT, wire_ring_slots(&layout), WIRE_CLIENTS)?;
                Ok(Self {
                    plan: DevicePlan::Wire { port: PORT },
                    mac,
                    parts: Parts { wires: vec![(PORT, WIRE_CLIENTS)], ..Parts::default() },
                    sockets: Vec::new(),
                })
            }
        }
    }

    fn af_packet(ifname: &str, queues: u16) -> Result<Self, DeviceError> {
        let sizes = RingSizes::default();
        // One group per primary: its pid tells it from those of others on the same interface.
        let group = std::process::id() as u16;
        let sockets = af_packet::open_queues(ifname, queues, group, &sizes)?;
        let mac = match sockets.first() {
            Some(socket) => af_packet::interface(socket.as_fd(), ifname)?.mac,
            None => [0; 6],
        };
        let RingSizes { rx_frames, rx_frame_bytes, tx_frames, tx_frame_bytes } = sizes;
        let ifname = ifname.to_owned();
        Ok(Self {
            plan: DevicePlan::AfPacket { ifname, rx_frames, rx_frame_bytes, tx_frames, tx_frame_bytes },
            mac,
            parts: Parts::default(),
            sockets,
        })
    }

    /// A sending socket for a worker that attaches, on a device that has such.
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn open_sender(&self) -> Result<Option<OwnedFd>, DeviceError> {
        match &self.plan {
            DevicePlan::AfPacket { ifname, .. } => {
                Ok(Some(af_packet::open_sender(ifname, &RingSizes::default())?))
            }
            DevicePlan::Dpdk { .. } | DevicePlan::Wire { .. } => Ok(None),
        }
    }

    fn ethernet(
        settings: &Settings,
        running: RunningPort,
        tap_interface: Option<String>,
    ) -> Result<Self, DeviceError> {
        let dpdk = &settings.config.dpdk;
        if dpdk.promiscuous {
            running.device.set_promiscuous(true)?;
        }
        let can = running.offloads;
        let skip = dpdk.tx_csum_offload_skip;
        let offloads = OffloadPlan {
            rx_checksum: can.rx_checksum,
            tx_ip_checksum: can.tx_ip_checksum && !skip && !dpdk.tx_csum_ip_skip,
            tx_tcp_checksum: can.tx_tcp_checksum && !skip && !dpdk.tx_csum_l4_skip,
            tso: can.tso && dpdk.tso && !skip && !dpdk.tx_csum_l4_skip,
        };
        Ok(Self {
            plan: DevicePlan::Dpdk { port_id: running.device.number(), tap_interface, offloads },
            mac: running.device.mac()?,
            parts: Parts { ports: vec![running], ..Parts::default() },
            sockets: Vec::new(),
        })
    }

    /// Stops what can be stopped; nobody uses it any more.
    pub fn stop(&self) {
        for port in &self.parts.ports {
            if let Err(error) = port.device.stop() {
                tracing::warn!("{error}: the device may need `dpdk-devbind.py` to be used again");
            }
        }
    }
}

/// A ring of the wire holds every mbuf of its sender's pool: a sender whose peer does not keep up runs out of mbufs, and
/// TCP waits, but the wire loses nothing.
fn wire_ring_slots(layout: &Layout) -> u32 {
    // A ring holds one less than its slots.
    (layout.worker_mbufs + 1).next_power_of_two().min(WIRE_RING_SLOTS_MAX)
}

/// Packet memory that an instance takes, for the check before it is taken.
pub fn need(settings: &Settings, region_bytes: u64) -> Need {
    let layout = settings.layout();
    let (workers, slots) = (u32::from(layout.workers), u32::from(layout.slots));
    // `create_workers` says it when there are too many.
    let inboxes =
        ff_dpdk::names::inbox_pairs(layout.workers, layout.slots).map_or(0, |pairs| pairs.len() as u32);
    let (device_pools, wire_rings) = match &settings.port().device {
        DeviceKey::Tap(_) | DeviceKey::Pci(_) => (workers, 0),
        DeviceKey::Wire => (u32::from(WIRE_CLIENTS), workers * (slots + 1)),
        DeviceKey::AfPacket(_) => (0, 0),
    };
    Need {
        pools: workers * slots + device_pools,
        mbufs: settings.config.limits.mbufs,
        data_room_bytes: mempool::DATA_ROOM_BYTES.max(settings.port().mtu + 18 + mempool::HEADROOM_BYTES),
        rings: inboxes + wire_rings,
        ring_slots: u64::from(inboxes) * u64::from(layout.inbox_slots)
            + u64::from(wire_rings) * u64::from(wire_ring_slots(&layout)),
        region_bytes,
    }
}
