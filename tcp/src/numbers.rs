//! Keyed numbers: initial sequence numbers (RFC 6528), timestamp offsets
//! (RFC 7323, 5.4) and SYN cookies (RFC 4987, 3.6).
//!
//! All are functions of a flow, a secret that every generation of the host
//! shares, and the time; none is kept.

use std::hash::Hasher;

use ff_flowmap::FlowKey;
use siphasher::sip::SipHasher13;

use crate::config::Secrets;
use crate::seq::Seq;
use crate::time::Instant;

/// How long one count of the cookie clock lasts.
const COOKIE_PERIOD_US: u64 = 64_000_000;
/// A cookie is good for this count and the one before.
const COOKIE_AGE_MAX: u32 = 1;
/// Segment sizes that a cookie can say; three bits.
const COOKIE_MSS: [u16; 8] = [536, 1_200, 1_220, 1_300, 1_400, 1_440, 1_460, 8_960];
/// Bits of the timestamp that a cookie uses.
const TS_BITS: u32 = 6;
const TS_WSCALE_NONE: u32 = 0xf;
const TS_SACK: u32 = 0x10;
const TS_ECN: u32 = 0x20;

fn keyed(secret: &[u8; 16], key: &FlowKey, ports: bool, extra: u64) -> u64 {
    let mut hasher = SipHasher13::new_with_key(secret);
    hasher.write(&key.local);
    hasher.write(&key.remote);
    if ports {
        hasher.write_u32(u32::from(key.local_port) << 16 | u32::from(key.remote_port));
    }
    hasher.write_u64(extra);
    hasher.finish()
}

/// The initial sequence number of a flow: a 4 µs clock plus a keyed hash.
pub(crate) fn initial_sequence(secrets: &Secrets, key: &FlowKey, now: Instant) -> Seq {
    Seq((keyed(&secrets.isn, key, true, 0) as u32).wrapping_add((now.0 >> 2) as u32))
}

/// What a flow adds to the millisecond clock in its timestamps. The same for
/// all flows between two hosts, so that a later flow's timestamps are later.
pub(crate) fn timestamp_offset(secrets: &Secrets, key: &FlowKey) -> u32 {
    keyed(&secrets.timestamp, key, false, 0) as u32
}

/// What the peer's SYN offered, as a cookie keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CookieOffer {
    pub(crate) mss: u16,
    /// `None`: no window scaling. The other options live in the timestamp too,
    /// so without timestamps there are none.
    pub(crate) wscale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
    pub(crate) timestamps: bool,
}

fn cookie_count(now: Instant) -> u32 {
    (now.0 / COOKIE_PERIOD_US) as u32
}

fn cookie_hash(secrets: &Secrets, key: &FlowKey, irs: Seq, count: u32) -> u32 {
    keyed(&secrets.cookie, key, true, u64::from(irs.0) << 32 | u64::from(count)) as u32
}

/// The sequence number of a SYN-ACK that needs no memory: the top 5 bits are
/// the clock, the next 3 the segment size, the rest the keyed hash.
pub(crate) fn cookie_sequence(secrets: &Secrets, key: &FlowKey, irs: Seq, mss: u16, now: Instant) -> Seq {
    let count = cookie_count(now);
    let class = COOKIE_MSS.iter().rposition(|&m| m <= mss).unwrap_or(0) as u32;
    let hash = cookie_hash(secrets, key, irs, count << 3 | class);
    Seq((count & 0x1f) << 27 | class << 24 | hash >> 8)
}

/// The timestamp of such a SYN-ACK: the options in the low bits, never ahead
/// of the clock.
pub(crate) fn cookie_timestamp(clock: u32, offer: &CookieOffer) -> u32 {
    let mut bits = offer.wscale.map_or(TS_WSCALE_NONE, u32::from);
    if offer.sack {
        bits |= TS_SACK;
    }
    if offer.ecn {
        bits |= TS_ECN;
    }
    let mask = (1u32 << TS_BITS) - 1;
    let value = clock & !mask | bits;
    if value > clock { value.wrapping_sub(1 << TS_BITS) } else { value }
}

/// Reads a cookie back from the ACK of it: `ack - 1` is the cookie, `irs` the
/// peer's first number, `echoed` the timestamp echo without the flow's offset.
pub(crate) fn cookie_check(
    secrets: &Secrets,
    key: &FlowKey,
    irs: Seq,
    cookie: Seq,
    echoed: Option<u32>,
    now: Instant,
) -> Option<CookieOffer> {
    let current = cookie_count(now);
    let age = current.wrapping_sub(cookie.0 >> 27) & 0x1f;
    if age > COOKIE_AGE_MAX {
        return None;
    }
    let class = cookie.0 >> 24 & 7;
    let hash = cookie_hash(secrets, key, irs, current.wrapping_sub(age) << 3 | class);
    if hash >> 8 != cookie.0 & 0x00ff_ffff {
        return None;
    }
    let mss = COOKIE_MSS[class as usize];
    Some(match echoed {
        None => CookieOffer { mss, wscale: None, sack: false, ecn: false, timestamps: false },
        Some(ts) => {
            let wscale = ts & 0xf;
            CookieOffer {
                mss,
                wscale: (wscale != TS_WSCALE_NONE).then_some(wscale as u8),
                sack: ts & TS_SACK != 0,
                ecn: ts & TS_ECN != 0,
                timestamps: true,
            }
        }
    })
}
