//! Watching processes: a pidfd becomes readable when its process has ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that is watched.
#[derive(Debug)]
pub struct Watched {
    /// Its pid, which nobody else gets as long as this is held and it has not been waited for.
    pub pid: u32,
    fd: OwnedFd,
}

impl Watched {
    /// Takes hold of the process that has `pid` now; `None` when there is none.
    pub fn open(pid: u32) -> Option<Self> {
        let raw = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let fd = pidfd_open(raw, PidfdFlags::empty()).ok()?;
        Some(Self { pid, fd })
    }

    /// Sends it a signal; nothing when it has ended.
    pub fn signal(&self, signal: Signal) {
        // The only error for a process of this one's own user namespace is that it has ended.
        let _ = pidfd_send_signal(&self.fd, signal);
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // EINTR cannot come without waiting; any other error would be a descriptor that is none.
        poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
