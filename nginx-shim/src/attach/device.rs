//! The stack over the device that the primary has.

use std::os::fd::OwnedFd;

use ff_control::{DevicePlan, WorkerPlan};
use ff_dataplane::io::af_packet::{AfPacketIo, PacketSeat, RingSizes};
use ff_dataplane::io::dpdk::{DpdkIo, PortSeat};
use ff_dataplane::io::inboxes::{AttachError, Seat};
use ff_dataplane::io::ring::{RingIo, WireSeat};
use ff_dataplane::io::{PacketIo, WorkerRef};
use ff_dataplane::{Shared, Stack, StackConfig};
use ff_dpdk::Eal;
use ff_dpdk::eal::EalError;
use ff_dpdk::port::Offloads;
use ff_flowmap::TcpTableWriter;

use crate::process::Held;

/// Why there is no stack.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// DPDK does not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// The device cannot be attached to.
    #[error(transparent)]
    Io(#[from] AttachError),
    /// The descriptors that came with the plan are not those of its device.
    #[error(
        "the primary sent {sent} descriptors for a device that needs {needed}: both must be of the same version"
    )]
    Descriptors {
        /// How many came.
        sent: usize,
        /// How many are needed.
        needed: usize,
    },
}

/// Starts DPDK in this process.
pub fn start(plan: &WorkerPlan) -> Result<Eal, DeviceError> {
    Ok(Eal::init(&plan.eal_args)?)
}

/// Makes the stack over the plan's device.
pub fn stack(
    eal: Eal,
    plan: &WorkerPlan,
    mut descriptors: Vec<OwnedFd>,
    config: StackConfig,
    table: TcpTableWriter<'static>,
    shared: Shared,
) -> Result<Held, DeviceError> {
    let seat = Seat {
        worker: WorkerRef { slot: plan.slot, index: plan.index },
        workers: plan.workers,
        slots: plan.slots,
    };
    match &plan.device {
        DevicePlan::Dpdk { port_id, tap_interface, offloads } => {
            let port = PortSeat {
                port: *port_id,
                tap_interface: tap_interface.clone(),
                offloads: Offloads {
                    rx_checksum: offloads.rx_checksum,
                    tx_ip_checksum: offloads.tx_ip_checksum,
                    tx_tcp_checksum: offloads.tx_tcp_checksum,
                    tso: offloads.tso,
                },
            };
            // SAFETY: the primary gives a place to one living process at a time, and restores what a killed
            // predecessor left before; the queues are those that it gave this worker.
            let io = unsafe { DpdkIo::attach(eal, &seat, &port) }?;
            Ok(over(io, plan, config, table, shared))
        }
        DevicePlan::Wire { port } => {
            let wire = WireSeat { port: *port, mtu: plan.mtu, mac: plan.mac };
            // SAFETY: as above.
            let io = unsafe { RingIo::attach(eal, &seat, &wire) }?;
            Ok(over(io, plan, config, table, shared))
        }
        DevicePlan::AfPacket { ifname, rx_frames, rx_frame_bytes, tx_frames, tx_frame_bytes } => {
            let needed = usize::from(plan.workers) + 1;
            if descriptors.len() != needed {
                return Err(DeviceError::Descriptors { sent: descriptors.len(), needed });
            }
            let Some(sender) = descriptors.pop() else {
                return Err(DeviceError::Descriptors { sent: 0, needed });
            };
            let packet = PacketSeat {
                interface: ifname.clone(),
                sizes: RingSizes {
                    rx_frames: *rx_frames,
                    rx_frame_bytes: *rx_frame_bytes,
                    tx_frames: *tx_frames,
                    tx_frame_bytes: *tx_frame_bytes,
                },
                queues: descriptors,
                sender,
            };
            // SAFETY: as above; the sending socket is this worker's own.
            let io = unsafe { AfPacketIo::attach(eal, &seat, packet) }?;
            Ok(over(io, plan, config, table, shared))
        }
    }
}

fn over<P: PacketIo + 'static>(
    mut io: P,
    plan: &WorkerPlan,
    config: StackConfig,
    table: TcpTableWriter<'static>,
    shared: Shared,
) -> Held {
    io.set_owned_queues(&plan.queues);
    Held(Box::new(Stack::new(config, io, table, shared)))
}
