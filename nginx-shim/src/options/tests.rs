use super::*;

fn int(value: i32) -> Vec<u8> {
    value.to_ne_bytes().to_vec()
}

#[test]
fn integers_are_read_as_the_application_wrote_them() {
    assert_eq!(
        parse(libc::IPPROTO_TCP, libc::TCP_NODELAY, &int(7)),
        Ok(Setting::Stack(SockOpt::NoDelay(true)))
    );
    assert_eq!(
        parse(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &int(-1)),
        Ok(Setting::Stack(SockOpt::KeepIdle(-1)))
    );
    assert_eq!(parse(libc::IPPROTO_TCP, libc::TCP_NODELAY, &[1, 0, 0]), fail(libc::EINVAL));
    assert_eq!(parse(libc::IPPROTO_IP, libc::IP_TOS, &[8]), Ok(Setting::Stack(SockOpt::Tos(8))));
}

#[test]
fn linger_has_two_numbers() {
    let value = [int(1), int(0)].concat();
    assert_eq!(
        parse(libc::SOL_SOCKET, libc::SO_LINGER, &value),
        Ok(Setting::Stack(SockOpt::Linger(Some(0))))
    );
    let value = [int(0), int(9)].concat();
    assert_eq!(parse(libc::SOL_SOCKET, libc::SO_LINGER, &value), Ok(Setting::Stack(SockOpt::Linger(None))));
    assert_eq!(parse(libc::SOL_SOCKET, libc::SO_LINGER, &int(1)), fail(libc::EINVAL));
}

#[test]
fn timeouts_are_ours() {
    let value = [1_i64.to_ne_bytes(), 500_000_i64.to_ne_bytes()].concat();
    assert_eq!(parse(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &value), Ok(Setting::ReceiveTimeout(1_500_000)));
    assert_eq!(encode_timeout(1_500_000), value);
    let value = [1_i64.to_ne_bytes(), 1_000_000_i64.to_ne_bytes()].concat();
    assert_eq!(parse(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &value), fail(libc::EDOM));
    assert_eq!(parse(libc::SOL_SOCKET, libc::SO_SNDTIMEO, &int(1)), fail(libc::EINVAL));
}

#[test]
fn unknown_options_are_refused() {
    assert_eq!(parse(libc::SOL_SOCKET, 9999, &int(1)), fail(libc::ENOPROTOOPT));
    assert_eq!(question(libc::IPPROTO_TCP, 9999), fail(libc::ENOPROTOOPT));
}

#[test]
fn answers_have_the_kernels_shape() {
    assert_eq!(encode(&SockOptValue::Linger(Some(3))), [int(1), int(3)].concat());
    assert_eq!(encode(&SockOptValue::Name("cubic"))[..6], *b"cubic\0");
    assert_eq!(encode(&SockOptValue::Name("cubic")).len(), 16);
}

#[test]
fn every_option_that_can_be_set_can_be_asked_for() {
    for (level, name) in [
        (libc::SOL_SOCKET, libc::SO_REUSEADDR),
        (libc::SOL_SOCKET, libc::SO_RCVBUF),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT),
        (libc::IPPROTO_IP, libc::IP_PKTINFO),
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    ] {
        assert!(parse(level, name, &int(1)).is_ok());
        assert!(question(level, name).is_ok());
    }
}
