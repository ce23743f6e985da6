//! IPv4 options and IPv6 extension headers: walked, checked, and not obeyed.

use ff_handover::DropReason;

use super::parse::Fragment;

/// Extension headers that a packet may have; more is an attack on the walker (RFC 8504, section 5.3).
const HEADERS_MAX: usize = 8;
/// Options in one header that are looked at (RFC 8504, section 5.3).
const OPTIONS_MAX: usize = 16;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const NO_NEXT: u8 = 59;
const DESTINATION: u8 = 60;

/// Where the chain of IPv6 headers leads to. Offsets count from the IPv6 header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Chain {
    /// To a transport header (or to a protocol that we do not know).
    Transport { protocol: u8, at: usize },
    /// To a fragment header: what follows it begins `at`.
    Fragment { protocol: u8, fragment: Fragment, at: usize },
    /// To something that must be answered with "parameter problem".
    Problem { code: u8, pointer: u16, multicast_too: bool },
}

/// Walks the headers of an IPv6 packet, the first of which is `next`.
pub(super) fn walk(packet: &[u8], mut next: u8) -> Result<Chain, DropReason> {
    let mut at = super::parse::IPV6_BYTES;
    let mut next_at = 6;
    for position in 0..HEADERS_MAX {
        match next {
            // Anywhere but first it is an error (RFC 8200, section 4.1).
            HOP_BY_HOP if position > 0 => {
                return Ok(Chain::Problem { code: 1, pointer: next_at as u16, multicast_too: false });
            }
            HOP_BY_HOP | DESTINATION => {
                let body = header(packet, at)?;
                if let Some(problem) = options(body, at)? {
                    return Ok(problem);
                }
                (next, next_at, at) = (body[0], at, at + body.len());
            }
            ROUTING => {
                let body = header(packet, at)?;
                // With no segments left every type is skipped; with some, we are asked to forward, which a
                // host does not do (RFC 8200, section 4.4; RFC 5095 for type 0).
                if body[3] != 0 {
                    return Ok(Chain::Problem { code: 0, pointer: at as u16 + 2, multicast_too: false });
                }
                (next, next_at, at) = (body[0], at, at + body.len());
            }
            FRAGMENT => {
                let body: &[u8; 8] =
                    packet.get(at..).and_then(|p| p.first_chunk()).ok_or(DropReason::BadExtensionHeader)?;
                let place = u16::from_be_bytes([body[2], body[3]]);
                let (offset, more) = (place & !7, place & 1 != 0);
                if offset == 0 && !more {
                    // An atomic fragment is a whole packet (RFC 6946).
                    (next, next_at, at) = (body[0], at, at + 8);
                    continue;
                }
                let id = u32::from_be_bytes([body[4], body[5], body[6], body[7]]);
                let fragment =
                    Fragment { id, offset, more, next_header_at: next_at as u16, header_at: at as u16 };
                return Ok(Chain::Fragment { protocol: body[0], fragment, at: at + 8 });
            }
            NO_NEXT => return Err(DropReason::UnknownProtocol),
            protocol => return Ok(Chain::Transport { protocol, at }),
        }
    }
    Err(DropReason::BadExtensionHeader)
}

/// The extension header at `at`, whole.
fn header(packet: &[u8], at: usize) -> Result<&[u8], DropReason> {
    let length = packet.get(at + 1).ok_or(DropReason::BadExtensionHeader)?;
    packet.get(at..at + (usize::from(*length) + 1) * 8).ok_or(DropReason::BadExtensionHeader)
}

/// Looks at the options of a hop-by-hop or destination header. We know none but padding; what an unknown one
/// asks for is in its two highest bits (RFC 8200, section 4.2).
fn options(body: &[u8], at: usize) -> Result<Option<Chain>, DropReason> {
    let mut offset = 2;
    for _ in 0..OPTIONS_MAX {
        let Some(kind) = body.get(offset) else { return Ok(None) };
        if *kind == 0 {
            offset += 1;
            continue;
        }
        let length = body.get(offset + 1).ok_or(DropReason::BadExtensionHeader)?;
        let next = offset + 2 + usize::from(*length);
        if next > body.len() {
            return Err(DropReason::BadExtensionHeader);
        }
        // PadN, and router alert, which concerns routers (RFC 2711).
        if !matches!(kind, 1 | 5) {
            let pointer = (at + offset) as u16;
            match kind >> 6 {
                0 => {}
                1 => return Err(DropReason::BadExtensionHeader),
                2 => return Ok(Some(Chain::Problem { code: 2, pointer, multicast_too: true })),
                _ => return Ok(Some(Chain::Problem { code: 2, pointer, multicast_too: false })),
            }
        }
        offset = next;
    }
    Err(DropReason::BadExtensionHeader)
}

/// Checks that IPv4 options are well-formed, and refuses source routes (RFC 7126, section 4).
pub(super) fn check_ipv4_options(mut options: &[u8]) -> Result<(), DropReason> {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    while let [kind, rest @ ..] = options {
        match *kind {
            END => return Ok(()),
            NOP => options = rest,
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err(DropReason::BadExtensionHeader),
            _ => match rest {
                [length, ..] if usize::from(*length) >= 2 && usize::from(*length) <= options.len() => {
                    options = &options[usize::from(*length)..];
                }
                _ => return Err(DropReason::BadIpHeader),
            },
        }
    }
    Ok(())
}
