//! Why a packet was dropped.

/// Counters there is room for in a worker's lines.
pub const DROP_REASONS: usize = 32;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Why a worker dropped a packet. Each is counted in the worker's lines, at
        /// the variant's number; numbers are never reused.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[$doc])* $variant,)*
        }

        impl DropReason {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in `ffctl status --json` and in metrics.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than its headers say.
    Truncated = "truncated",
    /// Longer than the device or a buffer takes.
    Oversize = "oversize",
    /// An Ethernet type, or an Ethernet address, that is not for us.
    NotForUs = "not_for_us",
    /// More VLAN tags than one, or a tag that is not configured.
    Vlan = "vlan",
    /// A malformed ARP packet.
    BadArp = "bad_arp",
    /// A malformed IPv4 or IPv6 header.
    BadIpHeader = "bad_ip_header",
    /// The IPv4 header checksum is wrong.
    BadIpChecksum = "bad_ip_checksum",
    /// A source address that no sender can have.
    BadSource = "bad_source",
    /// An IP destination that is not ours.
    WrongAddress = "wrong_address",
    /// A time to live or hop limit of 0 or, in NDP, not 255.
    BadHopLimit = "bad_hop_limit",
    /// An IPv6 extension header that is malformed or not understood.
    BadExtensionHeader = "bad_extension_header",
    /// A malformed TCP header.
    BadTcpHeader = "bad_tcp_header",
    /// The TCP checksum is wrong.
    BadTcpChecksum = "bad_tcp_checksum",
    /// A malformed UDP header.
    BadUdpHeader = "bad_udp_header",
    /// The UDP checksum is wrong, or missing over IPv6.
    BadUdpChecksum = "bad_udp_checksum",
    /// A malformed ICMP, ICMPv6 or NDP message, or one with a wrong checksum.
    BadIcmp = "bad_icmp",
    /// An IP protocol that nobody here speaks.
    UnknownProtocol = "unknown_protocol",
    /// A UDP datagram to a port without a socket.
    NoUdpSocket = "no_udp_socket",
    /// The receive queue of a UDP socket is full.
    UdpSocketFull = "udp_socket_full",
    /// A fragment that overlaps another (RFC 5722) or fits no packet.
    BadFragment = "bad_fragment",
    /// A packet whose fragments did not all come in time.
    FragmentTimeout = "fragment_timeout",
    /// No room to keep another fragment.
    FragmentMemory = "fragment_memory",
    /// A SYN refused because the listener's backlog is full.
    BacklogFull = "backlog_full",
    /// A SYN refused because the flow table is full.
    FlowTableFull = "flow_table_full",
    /// No packet buffer left in the pool.
    NoMbuf = "no_mbuf",
    /// The transmit queue of the device is full.
    TxFull = "tx_full",
    /// The ring to the worker that holds the flow is full.
    ForwardFull = "forward_full",
    /// The ring to the worker that owns the transmit queue is full.
    RelayFull = "relay_full",
    /// The neighbour does not answer.
    NeighbourUnreachable = "neighbour_unreachable",
    /// Too many packets wait for the neighbour's answer.
    NeighbourQueueFull = "neighbour_queue_full",
    /// No route to the destination.
    NoRoute = "no_route",
    /// The path to the kernel is full or not there.
    KernelPathFull = "kernel_path_full",
}

const _: () = assert!(DropReason::ALL.len() <= DROP_REASONS);

#[cfg(test)]
mod tests;
