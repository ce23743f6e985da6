//! Headers as they should be, and each way in which they may not be.

use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = MAC.to_vec();
    frame.extend_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(packet);
    frame
}

fn v4(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_bytes = 20 + options.len();
    let total = ((header_bytes + payload.len()) as u16).to_be_bytes();
    let mut packet =
        vec![0x40 | (header_bytes / 4) as u8, 0x12, total[0], total[1], 0, 0, 0, 0, 61, protocol, 0, 0];
    packet.extend_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
    packet.extend_from_slice(options);
    let sum = Checksum::new().bytes(&packet).finish();
    packet[10..12].copy_from_slice(&sum);
    packet.extend_from_slice(payload);
    ethernet(ETHERTYPE_IPV4, &packet)
}

/// Sets a byte of the IPv4 header and makes the checksum right.
fn v4_with(mut frame: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    frame[14 + at] = value;
    frame[24..26].fill(0);
    let end = 14 + usize::from(frame[14] & 0xf) * 4;
    let sum = Checksum::new().bytes(&frame[14..end.min(frame.len())]).finish();
    frame[24..26].copy_from_slice(&sum);
    frame
}

fn v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let mut packet = vec![0x61, 0x20, 0, 0, length[0], length[1], next, 61];
    for last in [1, 2] {
        packet.extend_from_slice(&[0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    packet.extend_from_slice(payload);
    ethernet(ETHERTYPE_IPV6, &packet)
}

const TCP_HEADER: [u8; 20] = [0x0f, 0xa0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x12, 0, 0, 0, 0, 0, 0];
const UDP_HEADER: [u8; 8] = [0x0f, 0xa0, 0, 53, 0, 8, 0, 0];

fn read(frame: &[u8]) -> Result<Parsed, DropReason> {
    parse(frame, MAC, RxChecksum::UNKNOWN)
}

fn reason(frame: &[u8]) -> DropReason {
    read(frame).expect_err("it is malformed")
}

#[test]
fn tcp_over_both_families() {
    for (frame, local, l4) in
        [(v4(6, &[], &TCP_HEADER), "198.18.0.2:80", 34), (v6(6, &TCP_HEADER), "[2001:2::2]:80", 54)]
    {
        let parsed = read(&frame).expect("well-formed");
        assert_eq!(parsed.class, Class::Tcp { flags: 0x12 });
        assert_eq!(parsed.key.local_addr().to_string(), local);
        assert_eq!(parsed.key.remote_port, 4_000);
        assert_eq!((parsed.l4, parsed.end as usize), (l4, frame.len()));
        assert_eq!((parsed.hop_limit, parsed.traffic_class), (61, 0x12));
        assert_eq!(parsed.source_mac, [2, 0, 0, 0, 0, 1]);
    }
}

#[test]
fn padding_is_not_part_of_the_packet() {
    let mut frame = v4(17, &[], &UDP_HEADER);
    frame.resize(60, 0xee);
    let parsed = read(&frame).expect("well-formed");
    assert_eq!(parsed.l4_bytes(&frame), UDP_HEADER);
    // A UDP length that is shorter than the IP packet counts.
    let frame = v4(17, &[], &[0x0f, 0xa0, 0, 53, 0, 9, 0, 0, 1, 2, 3]);
    assert_eq!(read(&frame).expect("well-formed").l4_bytes(&frame).len(), 9);
}

#[test]
fn a_priority_tag_is_skipped_and_other_networks_are_not_ours() {
    let plain = v4(17, &[], &UDP_HEADER);
    let tagged = |tags: &[[u8; 4]]| [&plain[..12], &tags.concat(), &plain[12..]].concat();
    for tag in [[0x81, 0, 0, 0], [0x81, 0, 0xe0, 0], [0x81, 0, 0x10, 0], [0x88, 0xa8, 0x20, 0]] {
        let parsed = read(&tagged(&[tag])).expect("well-formed");
        assert_eq!((parsed.l3, parsed.class), (18, Class::Udp));
    }
    for tag in [[0x81, 0, 0, 7], [0x81, 0, 0xe0, 1], [0x81, 0, 0x0f, 0xff], [0x88, 0xa8, 8, 0]] {
        assert_eq!(reason(&tagged(&[tag])), DropReason::Vlan, "{tag:x?}");
    }
    assert_eq!(reason(&tagged(&[[0x88, 0xa8, 0, 0], [0x81, 0, 0, 0]])), DropReason::Vlan, "two");
    assert_eq!(reason(&tagged(&[[0x81, 0, 0, 0]])[..16]), DropReason::Truncated);
}

#[test]
fn who_it_is_for() {
    let mut frame = v4(17, &[], &UDP_HEADER);
    frame[5] = 9;
    assert_eq!(reason(&frame), DropReason::NotForUs);
    frame[..6].copy_from_slice(&[0xff; 6]);
    assert_eq!(read(&frame).expect("well-formed").cast, Cast::Broadcast);
    frame[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(read(&frame).expect("well-formed").cast, Cast::Multicast);
    assert_eq!(reason(&ethernet(0x88cc, &[0; 50])), DropReason::NotForUs);
    assert_eq!(reason(&frame[..13]), DropReason::Truncated);
}

#[test]
fn ipv4_headers_that_lie() {
    let good = v4(6, &[], &TCP_HEADER);
    for (at, value) in [(0, 0x55), (0, 0x44), (0, 0x4f), (2, 0xff), (3, 19)] {
        assert_eq!(
            reason(&v4_with(good.clone(), at, value)),
            DropReason::BadIpHeader,
            "byte {at} = {value:#x}"
        );
    }
    let mut sum = good.clone();
    sum[24] ^= 1;
    assert_eq!(reason(&sum), DropReason::BadIpChecksum);
    let bad = RxChecksum { l3: ChecksumState::Bad, l4: ChecksumState::Unknown };
    assert_eq!(parse(&good, MAC, bad), Err(DropReason::BadIpChecksum), "the device says so");
    let trusted = RxChecksum { l3: ChecksumState::Good, l4: ChecksumState::Good };
    assert!(parse(&sum, MAC, trusted).is_ok(), "the device has looked");
    for source in [[224, 0, 0, 1], [127, 0, 0, 1], [255, 255, 255, 255]] {
        let mut frame = good.clone();
        frame[26..30].copy_from_slice(&source);
        assert_eq!(reason(&v4_with(frame, 1, 0)), DropReason::BadSource, "{source:?}");
    }
    for len in 14..good.len() {
        assert!(read(&good[..len]).is_err(), "cut to {len} bytes");
    }
}

#[test]
fn ipv4_options() {
    let with = |options: &[u8]| read(&v4(6, options, &TCP_HEADER));
    assert_eq!(with(&[1, 1, 1, 0]).map(|parsed| parsed.l4), Ok(38));
    assert_eq!(with(&[7, 7, 4, 0, 0, 0, 0, 0]).map(|parsed| parsed.l4), Ok(42));
    assert_eq!(with(&[131, 7, 4, 1, 2, 3, 4, 0]), Err(DropReason::BadExtensionHeader), "loose source route");
    assert_eq!(with(&[137, 7, 4, 1, 2, 3, 4, 0]), Err(DropReason::BadExtensionHeader), "strict source route");
    for bad in [[7, 0, 0, 0], [7, 1, 0, 0], [7, 9, 0, 0], [1, 1, 1, 7]] {
        assert_eq!(with(&bad), Err(DropReason::BadIpHeader), "{bad:?}");
    }
}

#[test]
fn ipv4_fragments() {
    let frame = v4_with(v4(6, &[], &TCP_HEADER), 6, 0x20);
    let expected = Fragment { id: 0, offset: 0, more: true, next_header_at: 0, header_at: 0 };
    assert_eq!(read(&frame).expect("well-formed").class, Class::Fragment(expected));
    let frame = v4_with(v4(6, &[], &TCP_HEADER), 7, 3);
    let expected = Fragment { offset: 24, more: false, ..expected };
    let parsed = read(&frame).expect("well-formed");
    assert_eq!((parsed.class, parsed.key.local_port), (Class::Fragment(expected), 0));
    // "Don't fragment" is no fragment.
    assert!(matches!(
        read(&v4_with(v4(6, &[], &TCP_HEADER), 6, 0x40)).expect("well-formed").class,
        Class::Tcp { .. }
    ));
}

#[test]
fn ipv6_extension_headers() {
    let tcp_behind = |next: u8, headers: &[u8]| read(&v6(next, &[headers, &TCP_HEADER].concat()));
    let padded = [6, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(tcp_behind(0, &padded).map(|p| (p.class, p.l4)), Ok((Class::Tcp { flags: 0x12 }, 62)));
    assert_eq!(tcp_behind(60, &padded).map(|p| p.l4), Ok(62));
    assert_eq!(tcp_behind(43, &[6, 0, 0, 0, 0, 0, 0, 0]).map(|p| p.l4), Ok(62), "no segments left");
    let problem = |code, pointer, multicast_too| Ok(Class::ParameterProblem { code, pointer, multicast_too });
    let class = |next, headers: &[u8]| tcp_behind(next, headers).map(|parsed| parsed.class);
    assert_eq!(class(43, &[6, 0, 0, 1, 0, 0, 0, 0]), problem(0, 42, false), "routing with segments left");
    let twice = [0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0];
    assert_eq!(class(0, &twice), problem(1, 40, false), "hop-by-hop not in the first place");
    // Unknown options, by their two highest bits.
    assert!(matches!(class(60, &[6, 0, 0x1e, 4, 0, 0, 0, 0]), Ok(Class::Tcp { .. })));
    assert_eq!(class(60, &[6, 0, 0x5e, 4, 0, 0, 0, 0]), Err(DropReason::BadExtensionHeader));
    assert_eq!(class(60, &[6, 0, 0x9e, 4, 0, 0, 0, 0]), problem(2, 42, true));
    assert_eq!(class(60, &[6, 0, 0xde, 4, 0, 0, 0, 0]), problem(2, 42, false));
    // Lengths that lead out of the packet.
    assert_eq!(class(60, &[6, 9, 1, 4, 0, 0, 0, 0]), Err(DropReason::BadExtensionHeader));
    assert_eq!(class(60, &[6, 0, 1, 9, 0, 0, 0, 0]), Err(DropReason::BadExtensionHeader));
    // A chain without end.
    let chain = [60, 0, 1, 4, 0, 0, 0, 0].repeat(9);
    assert_eq!(class(60, &chain), Err(DropReason::BadExtensionHeader));
    assert_eq!(read(&v6(59, &[])), Err(DropReason::UnknownProtocol));
}

#[test]
fn ipv6_fragments() {
    let fragment = |place: u16| {
        let place = place.to_be_bytes();
        v6(44, &[&[6, 0, place[0], place[1], 0, 0, 0, 9][..], &TCP_HEADER].concat())
    };
    let parsed = read(&fragment(0x0019)).expect("well-formed");
    let expected = Fragment { id: 9, offset: 24, more: true, next_header_at: 20, header_at: 54 };
    assert_eq!((parsed.class, parsed.key.protocol, parsed.l4), (Class::Fragment(expected), 6, 62));
    // An atomic fragment is a whole packet (RFC 6946).
    assert_eq!(read(&fragment(0)).expect("well-formed").class, Class::Tcp { flags: 0x12 });
}

#[test]
fn ipv6_headers_that_lie() {
    let good = v6(6, &TCP_HEADER);
    for (at, value) in [(0, 0x51), (5, 21), (4, 0xff)] {
        let mut frame = good.clone();
        frame[14 + at] = value;
        assert_eq!(reason(&frame), DropReason::BadIpHeader, "byte {at} = {value:#x}");
    }
    let mut mapped = good.clone();
    mapped[22..38].copy_from_slice(&std::net::Ipv4Addr::new(198, 18, 0, 1).to_ipv6_mapped().octets());
    assert_eq!(reason(&mapped), DropReason::BadSource, "an IPv4 address in disguise");
    let mut multicast = good.clone();
    multicast[22] = 0xff;
    assert_eq!(reason(&multicast), DropReason::BadSource);
    for len in 14..good.len() {
        assert!(read(&good[..len]).is_err(), "cut to {len} bytes");
    }
}

#[test]
fn transport_headers_that_lie() {
    let with = |at: usize, value: u8| {
        let mut header = TCP_HEADER;
        header[at] = value;
        v4(6, &[], &header)
    };
    assert_eq!(reason(&with(12, 0x40)), DropReason::BadTcpHeader);
    assert_eq!(reason(&with(12, 0x60)), DropReason::BadTcpHeader);
    assert_eq!(reason(&v4(6, &[], &TCP_HEADER[..19])), DropReason::BadTcpHeader);
    assert_eq!(reason(&v4(17, &[], &[0, 1, 0, 2, 0, 7, 0, 0])), DropReason::BadUdpHeader);
    assert_eq!(reason(&v4(17, &[], &[0, 1, 0, 2, 0, 9, 0, 0])), DropReason::BadUdpHeader);
    assert_eq!(reason(&v4(1, &[], &[8, 0, 0])), DropReason::BadIcmp);
}

#[test]
fn checksums_behind_ip() {
    let mut tcp = TCP_HEADER;
    let (src, dst) = ("198.18.0.1".parse().expect("an address"), "198.18.0.2".parse().expect("an address"));
    let sum = Checksum::new().pseudo(src, dst, TCP, 20).bytes(&tcp).finish();
    tcp[16..18].copy_from_slice(&sum);
    let mut frame = v4(6, &[], &tcp);
    assert!(read(&frame).expect("well-formed").l4_checksum_is_good(&frame));
    *frame.last_mut().expect("not empty") ^= 1;
    assert!(!read(&frame).expect("well-formed").l4_checksum_is_good(&frame));
    // UDP may go without over IPv4, and may not over IPv6.
    let frame = v4(17, &[], &UDP_HEADER);
    assert!(read(&frame).expect("well-formed").l4_checksum_is_good(&frame));
    let frame = v6(17, &UDP_HEADER);
    assert!(!read(&frame).expect("well-formed").l4_checksum_is_good(&frame));
}
