//! The dispatcher: whose is a packet? One pure function of the packet, the tables, and the view of the
//! generations.
//!
//! | packet | verdict |
//! |---|---|
//! | flow in my table | local |
//! | forwarded by another worker | local, never forwarded twice |
//! | TCP or UDP flow of a sibling worker | forward to that sibling |
//! | TCP flow of another generation; UDP flow that it publishes and that is not idle | forward to its worker |
//! | TCP or UDP, unknown or aged | local |
//! | ICMP error | by the flow inside it; none: local |
//! | fragment | local: reassembled, and then judged as the whole packet |
//! | ARP, NDP | local |
//! | other, multicast, broadcast | the newest generation |
//! | port or protocol that belongs to the kernel | the kernel path |

use ff_flowmap::{FlowKey, FlowRef, TcpTableReader, UdpFlow, UdpTableReader};

use crate::io::WorkerRef;
use crate::ip::icmp::Embedded;
use crate::ip::link_address::is_ndp;
use crate::ip::parse::{Cast, Class, Parsed, TCP, UDP};

/// Where a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// This worker takes it.
    Local,
    /// Another worker takes it.
    Forward(WorkerRef),
    /// It is for the kernel.
    Kernel,
}

/// A worker whose flows this one can see.
pub struct Peer {
    /// Which worker.
    pub worker: WorkerRef,
    /// Its TCP flows.
    pub tcp: TcpTableReader<'static>,
    /// Its UDP flows.
    pub udp: UdpTableReader<'static>,
}

/// Ports that belong to the kernel, both ends of each range included.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelPorts {
    /// TCP ports.
    pub tcp: Vec<(u16, u16)>,
    /// UDP ports.
    pub udp: Vec<(u16, u16)>,
}

/// What a worker sees of the others.
pub struct View {
    /// This worker.
    pub me: WorkerRef,
    /// The worker of the newest generation that takes what belongs to no flow: itself as a rule.
    pub newest: WorkerRef,
    /// The other workers of the same generation. Empty where the device steers every flow to the worker that
    /// holds it.
    pub siblings: Vec<Peer>,
    /// Workers of other living generations. Empty outside of a reload.
    pub others: Vec<Peer>,
    /// What the kernel takes.
    pub kernel: KernelPorts,
    /// Idle time after which another generation's UDP flow may be taken over, microseconds.
    pub udp_idle_us: u64,
}

impl View {
    /// The view of a worker that is alone.
    pub fn alone(me: WorkerRef) -> Self {
        Self {
            me,
            newest: me,
            siblings: Vec::new(),
            others: Vec::new(),
            kernel: KernelPorts::default(),
            udp_idle_us: 10_000_000,
        }
    }

    /// The worker that holds `key`, if another one does.
    fn holder(&self, key: &FlowKey, now_us: u64) -> Option<WorkerRef> {
        match key.protocol {
            TCP => {
                let mut peers = self.siblings.iter().chain(&self.others);
                peers.find(|peer| peer.tcp.lookup(key).is_some()).map(|peer| peer.worker)
            }
            UDP => {
                let idle_us = self.udp_idle_us;
                let sibling = self.siblings.iter().find(|peer| peer.udp.is_live(key, now_us, idle_us));
                let publishes = |peer: &&Peer| peer.udp.judge(key, now_us, idle_us) == UdpFlow::Live;
                sibling.or_else(|| self.others.iter().find(publishes)).map(|peer| peer.worker)
            }
            _ => None,
        }
    }

    /// Whether anybody else can hold a flow.
    fn is_alone(&self) -> bool {
        self.siblings.is_empty() && self.others.is_empty()
    }
}

/// What this worker's own tables say about a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Own {
    /// A TCP flow of mine.
    Tcp(FlowRef),
    /// A live UDP flow of mine.
    Udp,
    /// No flow of mine.
    Unknown,
}

/// Whose is the packet? `embedded` is the flow inside an ICMP error, `own` what my tables say about the
/// packet's flow (or the flow inside), `forwarded` whether another worker has handed it to me.
pub fn dispatch(
    parsed: &Parsed,
    embedded: Option<&Embedded>,
    own: Own,
    forwarded: bool,
    view: &View,
    now_us: u64,
) -> Verdict {
    if forwarded || own != Own::Unknown {
        return Verdict::Local;
    }
    match parsed.class {
        Class::Arp | Class::Fragment(_) | Class::ParameterProblem { .. } => Verdict::Local,
        Class::Tcp { .. } | Class::Udp => {
            if belongs_to_kernel(parsed, view) {
                return Verdict::Kernel;
            }
            if parsed.cast != Cast::Unicast {
                return newest(view);
            }
            by_flow(&parsed.key, view, now_us)
        }
        Class::Icmpv6 { kind } if is_ndp(kind) => Verdict::Local,
        Class::Icmp { .. } | Class::Icmpv6 { .. } => match embedded {
            Some(embedded) => by_flow(&embedded.key, view, now_us),
            None => newest(view),
        },
        Class::Other => newest(view),
    }
}

fn by_flow(key: &FlowKey, view: &View, now_us: u64) -> Verdict {
    if view.is_alone() {
        return Verdict::Local;
    }
    match view.holder(key, now_us) {
        Some(worker) => Verdict::Forward(worker),
        None => Verdict::Local,
    }
}

fn newest(view: &View) -> Verdict {
    if view.newest == view.me { Verdict::Local } else { Verdict::Forward(view.newest) }
}

fn belongs_to_kernel(parsed: &Parsed, view: &View) -> bool {
    let ranges = match parsed.class {
        Class::Tcp { .. } => &view.kernel.tcp,
        Class::Udp => &view.kernel.udp,
        _ => return false,
    };
    ranges.iter().any(|(first, last)| (*first..=*last).contains(&parsed.key.local_port))
}

#[cfg(test)]
mod tests;
