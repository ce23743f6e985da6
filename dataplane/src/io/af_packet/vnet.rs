//! The header that the kernel puts before each frame of a packet socket (PACKET_VNET_HDR): what is left to
//! do about checksum and segmentation, in the layout of virtio (OASIS virtio 1.2, section 5.1.6). Pure.

use crate::io::{ChecksumState, RxChecksum, TxOffload};

/// Bytes of the header.
pub const BYTES: usize = 10;

/// `flags`: the checksum field holds the pseudo header's sum only.
const NEEDS_CSUM: u8 = 1;
/// `flags`: the checksum was verified.
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

/// Frames up to this length are handed to the kernel in one piece (`hdr_len` covers all): it copies them
/// into one small buffer. Of a longer one it copies the headers and maps the rest page by page, which only
/// pays for much data.
const LINEAR_BYTES_MAX: usize = 2048;

/// Byte of a TCP header where its checksum begins.
const TCP_CHECKSUM_OFFSET: u16 = 16;

/// The header for a frame of `len` bytes that is sent with `offload`.
pub fn encode(len: usize, offload: Option<&TxOffload>) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    let mut hdr_len = if len <= LINEAR_BYTES_MAX { len as u16 } else { 0 };
    if let Some(offload) = offload {
        let l4 = offload.l2_len + offload.l3_len;
        let payload = l4 + offload.l4_len;
        let mss = offload.tso_mss.filter(|&mss| mss > 0 && len > usize::from(payload) + usize::from(mss));
        if offload.tcp_csum || mss.is_some() {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&l4.to_le_bytes());
            header[8..10].copy_from_slice(&TCP_CHECKSUM_OFFSET.to_le_bytes());
        }
        if let Some(mss) = mss {
            header[1] = if offload.ipv6 { GSO_TCPV6 } else { GSO_TCPV4 };
            header[4..6].copy_from_slice(&mss.to_le_bytes());
            hdr_len = payload;
        }
    }
    header[2..4].copy_from_slice(&hdr_len.to_le_bytes());
    header
}

/// What a received frame's header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Whether its checksum needs no verification.
    pub l4_is_good: bool,
    /// Bytes of TCP payload in each of the segments that were merged into this frame.
    pub merged_mss: Option<u16>,
}

/// Reads the header of a received frame.
pub fn decode(header: [u8; BYTES]) -> Received {
    let merged = header[1] & 0x7f != GSO_NONE;
    Received {
        l4_is_good: header[0] & (NEEDS_CSUM | DATA_VALID) != 0,
        merged_mss: merged.then(|| u16::from_le_bytes([header[4], header[5]])).filter(|&mss| mss > 0),
    }
}

/// The verdict for the stack. The kernel says nothing of the IPv4 header.
pub fn rx_checksum(l4_is_good: bool) -> RxChecksum {
    let l4 = if l4_is_good { ChecksumState::Good } else { ChecksumState::Unknown };
    RxChecksum { l3: ChecksumState::Unknown, l4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFLOAD: TxOffload = TxOffload {
        l2_len: 14,
        l3_len: 20,
        l4_len: 32,
        ip_csum: false,
        tcp_csum: true,
        tso_mss: None,
        ipv6: false,
    };

    #[test]
    fn plain_frames() {
        assert_eq!(encode(60, None), [0, 0, 60, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode(2048, None), [0, 0, 0, 8, 0, 0, 0, 0, 0, 0]);
        assert_eq!(encode(2049, None), [0; 10]);
    }

    #[test]
    fn checksum_left_to_the_kernel() {
        assert_eq!(encode(100, Some(&OFFLOAD)), [1, 0, 100, 0, 0, 0, 34, 0, 16, 0]);
    }

    #[test]
    fn segmentation() {
        let offload = TxOffload { tso_mss: Some(1448), ..OFFLOAD };
        assert_eq!(encode(66 + 2896, Some(&offload)), [1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0]);
        // What fits into one segment is none of several.
        assert_eq!(encode(66 + 1448, Some(&offload)), [1, 0, 0xea, 5, 0, 0, 34, 0, 16, 0]);
        let six = TxOffload { ipv6: true, l3_len: 40, ..offload };
        assert_eq!(encode(86 + 2896, Some(&six))[..2], [1, 4]);
    }

    #[test]
    fn received() {
        assert_eq!(decode([0; 10]), Received { l4_is_good: false, merged_mss: None });
        assert!(decode([1, 0, 0, 0, 0, 0, 34, 0, 16, 0]).l4_is_good);
        assert!(decode([2, 0, 0, 0, 0, 0, 0, 0, 0, 0]).l4_is_good);
        let merged = decode([1, 0x81, 66, 0, 0xa8, 5, 34, 0, 16, 0]);
        assert_eq!(merged.merged_mss, Some(1448));
        assert_eq!(decode([1, 1, 66, 0, 0, 0, 34, 0, 16, 0]).merged_mss, None);
    }
}
