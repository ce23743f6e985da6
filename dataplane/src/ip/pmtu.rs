//! What paths were found to take, for packets that are not TCP's (TCP keeps its own).

use std::collections::HashMap;
use std::net::IpAddr;

use ff_tcp::Instant;

/// Destinations remembered; when full, what is oldest gives way.
const DESTINATIONS_MAX: usize = 1024;
/// A reduced path MTU is forgotten after this (RFC 8201, section 4: not before 5 minutes).
const LIFETIME_US: u64 = 600_000_000;
/// Less is not believed (RFC 791; RFC 8200, section 5).
const MTU_MIN_V4: u16 = 576;
const MTU_MIN_V6: u16 = 1280;

/// Path MTUs that are smaller than the link's.
#[derive(Default)]
pub(crate) struct PathMtus(HashMap<IpAddr, (u16, Instant)>);

impl PathMtus {
    /// A router says that only `mtu` bytes fit on the way to `dst`.
    pub(crate) fn reduce(&mut self, now: Instant, dst: IpAddr, mtu: u16, link_mtu: u16) {
        let mtu = mtu.max(if dst.is_ipv4() { MTU_MIN_V4 } else { MTU_MIN_V6 });
        if mtu >= self.get(now, dst, link_mtu) {
            return;
        }
        if self.0.len() >= DESTINATIONS_MAX {
            let oldest = self.0.iter().min_by_key(|(_, (_, since))| since.0).map(|(ip, _)| *ip);
            if let Some(oldest) = oldest {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(dst, (mtu, now));
    }

    /// The path MTU toward `dst`, bytes.
    pub(crate) fn get(&self, now: Instant, dst: IpAddr, link_mtu: u16) -> u16 {
        if self.0.is_empty() {
            return link_mtu;
        }
        match self.0.get(&dst) {
            Some((mtu, since)) if now.0.saturating_sub(since.0) < LIFETIME_US => (*mtu).min(link_mtu),
            _ => link_mtu,
        }
    }
}
