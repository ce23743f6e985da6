//! Sending: the engine's segments are built straight into frames.

use ff_flowmap::FlowIndex;
use ff_handover::DropReason;
use ff_tcp::Transmit;

use crate::io::{Capabilities, Frame, PacketIo, TxOffload};
use crate::ip::addresses::Route;
use crate::ip::checksum::Checksum;
use crate::ip::output::{HOP_LIMIT, IpHeader, header_bytes};
use crate::ip::parse::{ETHERNET_BYTES, IPV4_BYTES, IPV6_BYTES, TCP};
use crate::stack::Stack;

/// Segments sent in one pass at most, so that receiving is not kept waiting.
pub(crate) const SEGMENTS_PER_PASS: usize = 256;
/// Longest TCP header.
const TCP_HEADER_MAX: usize = 60;
/// Longest IP packet that lengths of 16 bits can say.
const IP_PACKET_MAX: usize = 65_535;

/// The largest TCP payload of a frame that the device cuts; 0 without that.
pub(crate) fn tso_payload_max(capabilities: &Capabilities) -> u32 {
    if !capabilities.tso || !capabilities.tx_l4_checksum {
        return 0;
    }
    let headers = ETHERNET_BYTES + IPV6_BYTES + TCP_HEADER_MAX;
    let frame_bytes = (capabilities.tso_max_bytes as usize).min(ETHERNET_BYTES + IP_PACKET_MAX);
    frame_bytes.saturating_sub(headers) as u32
}

impl<P: PacketIo, I: FlowIndex> Stack<P, I> {
    /// Sends what TCP has to send. True if something may be left: the pass's share was used up, or the memory for
    /// frames. Frames come back without a word, so only another pass finds out.
    pub(crate) fn send_segments(&mut self) -> bool {
        let tso = self.config.engine.tso_max_bytes > 0;
        for _ in 0..SEGMENTS_PER_PASS {
            let Some(mut frame) = self.spare.take().or_else(|| self.io.alloc()) else {
                return self.engine.may_transmit();
            };
            // Room for the longest segment of either family: that of IPv4, 20 bytes longer than that of IPv6. The
            // engine sends nothing into less, and does not come back to it by itself. In a frame that just holds a
            // packet there is so much only behind the shorter header.
            let segment_bytes = usize::from(self.config.mtu) - IPV4_BYTES;
            let mut at = ETHERNET_BYTES + self.expected_ip_bytes;
            if at + segment_bytes > frame.capacity() {
                at = ETHERNET_BYTES + IPV4_BYTES;
            }
            let longest = if tso { frame.capacity() } else { at + segment_bytes };
            frame.set_len(longest.min(frame.capacity()));
            let Some(segment) = self.engine.poll_transmit(self.now, &mut frame.bytes_mut()[at..]) else {
                self.spare = Some(frame);
                return false;
            };
            self.send_segment(frame, at, &segment);
        }
        true
    }

    /// Puts headers before the segment that lies `at` bytes into the frame, and sends it.
    fn send_segment(&mut self, mut frame: P::Frame, at: usize, segment: &Transmit) {
        let (src, dst) = (segment.local().ip(), segment.remote().ip());
        let ip_bytes = header_bytes(dst);
        let l4 = ETHERNET_BYTES + ip_bytes;
        if l4 != at {
            // The other family than the last one's. The guess is right for as long as clients of one family
            // are served in a row; a wrong one costs this copy.
            if l4 + segment.len > frame.capacity() {
                return self.ip.drops.count(DropReason::Oversize);
            }
            let end = l4.max(at) + segment.len;
            frame.set_len(end.min(frame.capacity()));
            frame.bytes_mut().copy_within(at..at + segment.len, l4);
            self.expected_ip_bytes = ip_bytes;
        }
        frame.set_len(l4 + segment.len);
        let Some(route) = self.ip.addresses.route(dst) else {
            return self.ip.drops.count(DropReason::NoRoute);
        };
        let mut capabilities = *self.ip.capabilities();
        if route == Route::Own {
            // No device will see it, so nothing is left to one.
            capabilities.tx_ip_checksum = false;
            capabilities.tx_l4_checksum = false;
        }
        let mac = self.ip.addresses.mac();
        let bytes = frame.bytes_mut();
        let header = IpHeader {
            src,
            dst,
            protocol: TCP,
            traffic_class: segment.ecn.bits(),
            hop_limit: HOP_LIMIT,
            dont_fragment: true,
        };
        let device_ip = capabilities.tx_ip_checksum && src.is_ipv4();
        header.write(bytes, ([0; 6], mac), device_ip);
        let pseudo = Checksum::new().pseudo(src, dst, TCP, segment.len);
        bytes[l4 + 16..l4 + 18].fill(0);
        let sum =
            if capabilities.tx_l4_checksum { pseudo.partial() } else { pseudo.bytes(&bytes[l4..]).finish() };
        let tcp_bytes = u16::from(bytes[l4 + 12] >> 4) * 4;
        bytes[l4 + 16..l4 + 18].copy_from_slice(&sum);
        if device_ip || capabilities.tx_l4_checksum {
            frame.request_tx_offload(TxOffload {
                l2_len: ETHERNET_BYTES as u16,
                l3_len: ip_bytes as u16,
                l4_len: tcp_bytes,
                ip_csum: device_ip,
                tcp_csum: capabilities.tx_l4_checksum,
                tso_mss: segment.gso_size,
                ipv6: src.is_ipv6(),
            });
        }
        self.ip.send_by(&mut self.io, self.now, frame, route);
    }
}
