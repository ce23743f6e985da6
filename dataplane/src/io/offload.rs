//! What a device does with a [`TxOffload`], in software: for devices that lie in memory, and as the
//! reference of what is asked of a real one.

use super::{Frame, TxOffload};
use crate::ip::checksum::Checksum;

/// FIN and PSH belong to the last segment only.
const TCP_FIN_PSH: u8 = 0x09;
/// CWR belongs to the first segment only (RFC 3168, section 6.1.2).
const TCP_CWR: u8 = 0x80;

/// Completes `frame` as `offload` asks and hands the result to `out`: one frame, or with `tso_mss` one for
/// each segment, taken from `alloc`. When `alloc` has none left the remaining segments are lost, as they
/// would be on a wire.
pub fn finish<F: Frame>(
    mut frame: F,
    offload: TxOffload,
    mut alloc: impl FnMut() -> Option<F>,
    mut out: impl FnMut(F),
) {
    let l3 = usize::from(offload.l2_len);
    let l4 = l3 + usize::from(offload.l3_len);
    let payload = l4 + usize::from(offload.l4_len);
    let len = frame.bytes().len();
    match offload.tso_mss {
        Some(mss) if mss > 0 && len > payload + usize::from(mss) => {
            let mut at = payload;
            while at < len {
                let part = (len - at).min(usize::from(mss));
                let Some(mut segment) = alloc() else { return };
                if segment.capacity() < payload + part {
                    return;
                }
                segment.set_len(payload + part);
                segment.bytes_mut()[..payload].copy_from_slice(&frame.bytes()[..payload]);
                segment.bytes_mut()[payload..].copy_from_slice(&frame.bytes()[at..at + part]);
                patch_segment(segment.bytes_mut(), &offload, at - payload, at + part == len);
                checksums(segment.bytes_mut(), &offload);
                out(segment);
                at += part;
            }
        }
        _ => {
            checksums(frame.bytes_mut(), &offload);
            out(frame);
        }
    }
}

/// Makes a copy of the large segment's headers right for the part that begins `offset` bytes into its
/// payload.
fn patch_segment(bytes: &mut [u8], offload: &TxOffload, offset: usize, last: bool) {
    let l3 = usize::from(offload.l2_len);
    let l4 = l3 + usize::from(offload.l3_len);
    if offload.ipv6 {
        let payload_len = (bytes.len() - l3 - 40) as u16;
        bytes[l3 + 4..l3 + 6].copy_from_slice(&payload_len.to_be_bytes());
    } else {
        let total_len = (bytes.len() - l3) as u16;
        bytes[l3 + 2..l3 + 4].copy_from_slice(&total_len.to_be_bytes());
    }
    let seq = u32::from_be_bytes([bytes[l4 + 4], bytes[l4 + 5], bytes[l4 + 6], bytes[l4 + 7]]);
    bytes[l4 + 4..l4 + 8].copy_from_slice(&seq.wrapping_add(offset as u32).to_be_bytes());
    if !last {
        bytes[l4 + 13] &= !TCP_FIN_PSH;
    }
    if offset > 0 {
        bytes[l4 + 13] &= !TCP_CWR;
    }
}

fn checksums(bytes: &mut [u8], offload: &TxOffload) {
    let l3 = usize::from(offload.l2_len);
    let l4 = l3 + usize::from(offload.l3_len);
    if offload.ip_csum {
        bytes[l3 + 10..l3 + 12].fill(0);
        let sum = Checksum::new().bytes(&bytes[l3..l4]).finish();
        bytes[l3 + 10..l3 + 12].copy_from_slice(&sum);
    }
    if offload.tcp_csum {
        // The field holds a pseudo header sum, but over the large segment's length: begin anew.
        bytes[l4 + 16..l4 + 18].fill(0);
        let addresses = if offload.ipv6 { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
        let l4_bytes = (bytes.len() - l4) as u16;
        let sum = Checksum::new().bytes(&bytes[addresses]).word(6).word(l4_bytes).bytes(&bytes[l4..]);
        bytes[l4 + 16..l4 + 18].copy_from_slice(&sum.finish());
    }
}
