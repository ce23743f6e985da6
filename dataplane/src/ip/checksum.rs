//! The Internet checksum (RFC 1071).

use std::net::IpAddr;

/// A running one's complement sum. It is kept in the machine's byte order: the sum is the same in any order
/// (RFC 1071, section 2), so no word is swapped on the way.
#[derive(Clone, Copy, Default, Debug)]
pub struct Checksum(u64);

impl Checksum {
    /// An empty sum.
    pub fn new() -> Self {
        Self(0)
    }

    /// Adds bytes. All but the last call must add an even number of them.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut lanes = [0u64; 8];
        let (blocks, rest) = bytes.as_chunks::<32>();
        for block in blocks {
            for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
                *lane += u64::from(u32::from_ne_bytes(*word));
            }
        }
        let mut sum = lanes.iter().fold(0u64, |sum, lane| sum + fold32(*lane));
        let (words, tail) = rest.as_chunks::<2>();
        for word in words {
            sum += u64::from(u16::from_ne_bytes(*word));
        }
        if let [last] = tail {
            sum += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        Self(fold32(self.0 + sum))
    }

    /// Adds a 16-bit number.
    #[must_use]
    pub fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// Adds the pseudo header of TCP, UDP (RFC 9293, section 3.1) or ICMPv6 (RFC 8200, section 8.1).
    ///
    /// Addresses of two families give a sum that fits nothing.
    #[must_use]
    pub fn pseudo(self, src: IpAddr, dst: IpAddr, protocol: u8, l4_bytes: usize) -> Self {
        let sum = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => self.bytes(&src.octets()).bytes(&dst.octets()),
            (src, dst) => self.bytes(&octets16(src)).bytes(&octets16(dst)),
        };
        // The length is 32 bits wide in IPv6; 64 KiB is the most there can be without jumbograms, and TSO
        // frames stay below 256 KiB.
        sum.word((l4_bytes >> 16) as u16).word(l4_bytes as u16).word(u16::from(protocol))
    }

    /// The sum folded to 16 bits and not complemented, as it stands on the wire: what a device that is to
    /// finish the checksum expects in the field.
    pub fn partial(self) -> [u8; 2] {
        self.fold16().to_ne_bytes()
    }

    /// The checksum as it stands on the wire.
    pub fn finish(self) -> [u8; 2] {
        (!self.fold16()).to_ne_bytes()
    }

    /// Whether bytes that contain their own checksum are unharmed.
    pub fn is_good(self) -> bool {
        self.fold16() == 0xffff
    }

    fn fold16(self) -> u16 {
        let mut sum = fold32(self.0);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        sum as u16
    }
}

/// Folds to at most 33 bits, so that sums of sums cannot overflow.
fn fold32(sum: u64) -> u64 {
    (sum & 0xffff_ffff) + (sum >> 32)
}

fn octets16(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, word by word.
    fn slow(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn agrees_with_the_definition_at_every_length() {
        let bytes: Vec<u8> = (0..600u32).map(|i| (i * 7 + i / 3) as u8).collect();
        for len in 0..bytes.len() {
            assert_eq!(
                Checksum::new().bytes(&bytes[..len]).finish(),
                slow(&bytes[..len]).to_be_bytes(),
                "{len}"
            );
        }
        let ones = vec![0xff; 65_536];
        assert_eq!(Checksum::new().bytes(&ones).finish(), slow(&ones).to_be_bytes());
    }

    #[test]
    fn splits_at_even_places_change_nothing() {
        let bytes: Vec<u8> = (0..255u8).collect();
        for split in (0..bytes.len()).step_by(2) {
            let sum = Checksum::new().bytes(&bytes[..split]).bytes(&bytes[split..]);
            assert_eq!(sum.finish(), slow(&bytes).to_be_bytes());
        }
    }

    #[test]
    fn a_header_with_its_checksum_is_good_and_one_bit_makes_it_bad() {
        let mut header = [0x45, 0, 0, 20, 0, 1, 0x40, 0, 64, 6, 0, 0, 198, 18, 0, 1, 198, 18, 0, 2];
        let sum = Checksum::new().bytes(&header).finish();
        header[10..12].copy_from_slice(&sum);
        assert!(Checksum::new().bytes(&header).is_good());
        header[3] ^= 4;
        assert!(!Checksum::new().bytes(&header).is_good());
    }
}
