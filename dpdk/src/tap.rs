//! The TAP device: a port without a NIC, whose other end is a kernel interface.
//!
//! The driver (`net_tap`) keeps one pair of descriptors per queue. The primary opens them; a secondary gets
//! its own copies over DPDK's message channel when it starts. A worker that wants to sleep until a queue has
//! a packet must poll that queue's receive descriptor, which DPDK does not tell; so it is looked up here.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::port::PortError;
use crate::{Eal, EthDev};

/// Name of the driver.
pub const DRIVER: &str = "net_tap";

/// Most queues that the driver has.
pub const QUEUES_MAX: u16 = 16;

/// Why a TAP device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// Not a name that Linux takes for an interface.
    #[error("{0:?} is no name for a network interface: 1 to 15 characters, no blank, comma, slash or colon")]
    Name(String),
    /// The driver cannot have so many queues.
    #[error("a TAP device has at most {QUEUES_MAX} queues, {0} are needed: use fewer workers")]
    Queues(u16),
    /// Somebody has it already.
    #[error("the interface {0} exists already: stop what uses it, or choose another name")]
    Exists(String),
    /// The machine has no TAP.
    #[error("{0} is missing: load the kernel's tun driver (modprobe tun)")]
    NoTun(&'static str),
    /// DPDK refused.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The kernel refused.
    #[error("cannot {step} of {interface}: {error}")]
    Interface {
        /// What was tried.
        step: &'static str,
        /// The interface.
        interface: String,
        /// The kernel's reason.
        error: io::Error,
    },
    /// The descriptors are not where they should be.
    #[error("{interface} has {found} descriptors in this process, {expected} were expected")]
    Descriptors {
        /// The interface.
        interface: String,
        /// What was found.
        found: usize,
        /// One for receive and one for transmit of each queue.
        expected: usize,
    },
}

/// Device name that DPDK knows the port `port` under.
pub fn device_name(port: u16) -> String {
    format!("{DRIVER}{port}")
}

/// Driver arguments for a TAP interface. Pure.
///
/// # Errors
/// When the interface's name is not one.
pub fn device_arguments(interface: &str, mac: [u8; 6]) -> Result<String, TapError> {
    let is_good = |c: char| c.is_ascii_graphic() && !matches!(c, ',' | '/' | ':' | '=');
    if interface.is_empty() || interface.len() > 15 || !interface.chars().all(is_good) {
        return Err(TapError::Name(interface.to_owned()));
    }
    let [a, b, c, d, e, f] = mac;
    Ok(format!("iface={interface},mac={a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"))
}

/// Creates the device (not yet configured): see [`EthDev::start`], then [`stop_signals`] and
/// [`set_kernel_mac`].
///
/// # Errors
/// When the name or the number of queues is wrong, the name is taken, or the driver refuses.
pub fn create(eal: Eal, port: u16, interface: &str, queues: u16, mac: [u8; 6]) -> Result<EthDev, TapError> {
    const TUN: &str = "/dev/net/tun";
    let arguments = device_arguments(interface, mac)?;
    if queues > QUEUES_MAX {
        return Err(TapError::Queues(queues));
    }
    if !Path::new(TUN).exists() {
        return Err(TapError::NoTun(TUN));
    }
    // Asked of the kernel: `/sys/class/net` shows the namespace in which `/sys` was mounted.
    if nix::net::if_::if_nametoindex(interface).is_ok() {
        return Err(TapError::Exists(interface.to_owned()));
    }
    Ok(EthDev::create(eal, "vdev", &device_name(port), &arguments)?)
}

/// Ends the signals that the driver has the kernel send to *this* process for every packet of a running
/// device. They spare a receiver empty reads, but the process that creates the device receives nothing and
/// would spend its time in their handler.
///
/// # Errors
/// When the device's descriptors cannot be found or changed.
pub fn stop_signals(interface: &str) -> Result<(), TapError> {
    let descriptors = descriptors(interface)?;
    if descriptors.is_empty() {
        let interface = interface.to_owned();
        return Err(TapError::Descriptors { interface, found: 0, expected: 2 });
    }
    for fd in descriptors {
        // SAFETY: reads and sets status flags of a descriptor that was just found open; the driver keeps it
        // open as long as the device exists.
        let result = unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            if flags < 0 { flags } else { libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_ASYNC) }
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            let interface = interface.to_owned();
            return Err(TapError::Interface { step: "end the signals", interface, error });
        }
    }
    Ok(())
}

/// Gives the kernel's end of a TAP device a MAC address of its own.
///
/// The driver gives both ends the same one, and a stack that checks ignores frames from itself.
///
/// # Errors
/// When the kernel refuses.
pub fn set_kernel_mac(interface: &str, mac: [u8; 6]) -> Result<(), TapError> {
    let failed = |error: io::Error| TapError::Interface {
        step: "set the MAC address",
        interface: interface.to_owned(),
        error,
    };
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|error| failed(error.into()))?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().take(15).zip(interface.as_bytes()) {
        *to = *from as _;
    }
    let address = libc::sockaddr {
        sa_family: libc::ARPHRD_ETHER,
        sa_data: std::array::from_fn(|i| mac.get(i).map_or(0, |&byte| byte as _)),
    };
    request.ifr_ifru.ifru_hwaddr = address;
    // SAFETY: SIOCSIFHWADDR reads an ifreq with name and hardware address, as filled in above.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFHWADDR, &raw const request) } {
        0 => Ok(()),
        _ => Err(failed(io::Error::last_os_error())),
    }
}

/// The receive descriptors of a TAP device's queues in this process, in the order of the queues.
///
/// A secondary gets all receive descriptors, then all transmit descriptors, in one message; the kernel
/// installs them in ascending order. The primary opens them queue by queue, so this is for a secondary.
///
/// # Errors
/// When this process has not exactly the descriptors that a device with `queues` queues has.
pub fn receive_descriptors(interface: &str, queues: u16) -> Result<Vec<RawFd>, TapError> {
    let mut found = descriptors(interface)?;
    let expected = 2 * usize::from(queues);
    if found.len() != expected {
        return Err(TapError::Descriptors { interface: interface.to_owned(), found: found.len(), expected });
    }
    found.truncate(usize::from(queues));
    Ok(found)
}

/// This process's descriptors of a TAP device, ascending.
fn descriptors(interface: &str) -> Result<Vec<RawFd>, TapError> {
    let failed =
        |error| TapError::Interface { step: "list the descriptors", interface: interface.to_owned(), error };
    let mut found: Vec<RawFd> = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A descriptor may vanish meanwhile (the directory's own one does).
        let is_tun = fs::read_link(entry.path()).is_ok_and(|target| target == Path::new("/dev/net/tun"));
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if is_tun && attached_to(fd).is_some_and(|name| name == interface) {
            found.push(fd);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The interface that a descriptor of /dev/net/tun is attached to.
fn attached_to(fd: RawFd) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let name = text.lines().find_map(|line| line.strip_prefix("iff:"))?.trim();
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let mac = [2, 0, 0, 0, 0xff, 1];
        assert_eq!(device_arguments("ff0", mac).unwrap(), "iface=ff0,mac=02:00:00:00:ff:01");
        for bad in ["", "a b", "a,b", "a/b", "sixteen-chars-xx", "a=b"] {
            assert!(device_arguments(bad, mac).is_err(), "{bad}");
        }
    }
}
