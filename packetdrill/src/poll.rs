//! `poll` and `epoll` over the sockets' readiness.

use ff_tcp::Readiness;

use crate::world::{Errno, Kind, State, World};

/// One `struct pollfd`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PollFd {
    pub(crate) fd: i32,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

/// An epoll instance.
#[derive(Debug, Default)]
pub(crate) struct Epoll {
    items: Vec<Item>,
}

#[derive(Debug)]
struct Item {
    fd: i32,
    events: u32,
    data: u64,
    /// On the ready list.
    ready: bool,
    /// EPOLLONESHOT has fired.
    disabled: bool,
}

/// The `poll(2)` bits of a set of conditions; epoll's are the same numbers.
pub(crate) fn bits(r: Readiness) -> u32 {
    let mut out = 0;
    for (condition, flags) in [
        (Readiness::READABLE, libc::EPOLLIN | libc::EPOLLRDNORM),
        (Readiness::WRITABLE, libc::EPOLLOUT | libc::EPOLLWRNORM),
        (Readiness::RDHUP, libc::EPOLLRDHUP),
        (Readiness::HUP, libc::EPOLLHUP),
        (Readiness::ERR, libc::EPOLLERR),
    ] {
        if r.contains(condition) {
            out |= flags as u32;
        }
    }
    out
}

const ALWAYS: u32 = (libc::EPOLLERR | libc::EPOLLHUP) as u32;

impl Epoll {
    /// Something newly happened on `fd`.
    pub(crate) fn on_edge(&mut self, fd: i32, edges: Readiness) {
        for item in self.items.iter_mut().filter(|i| i.fd == fd && !i.disabled) {
            if bits(edges) & (item.events | ALWAYS) != 0 {
                item.ready = true;
            }
        }
    }

    pub(crate) fn forget(&mut self, fd: i32) {
        self.items.retain(|i| i.fd != fd);
    }
}

impl State {
    /// What is ready on `fd` now, as poll bits; `None` is no socket.
    pub(crate) fn ready_bits(&mut self, fd: i32) -> Option<u32> {
        let kind = self.sockets.get(&fd)?.kind;
        Some(match kind {
            // As Linux has it for a socket that is neither.
            Kind::Fresh => (libc::EPOLLOUT | libc::EPOLLWRNORM | libc::EPOLLHUP) as u32,
            Kind::Listening(id, _) => bits(self.engine().listener_readiness(id)),
            Kind::Conn(id) => bits(self.engine().readiness(id)),
        })
    }

    fn epoll_collect(&mut self, epfd: i32, max: usize) -> Option<Vec<(u32, u64)>> {
        let mut epoll = self.epolls.remove(&epfd)?;
        let mut out = Vec::new();
        for item in &mut epoll.items {
            if out.len() == max {
                break;
            }
            if !item.ready || item.disabled {
                continue;
            }
            let mask = self.ready_bits(item.fd).unwrap_or(0) & (item.events | ALWAYS);
            if mask == 0 {
                item.ready = false;
                continue;
            }
            out.push((mask, item.data));
            if item.events & libc::EPOLLONESHOT as u32 != 0 {
                item.disabled = true;
                item.ready = false;
            } else if item.events & libc::EPOLLET as u32 != 0 {
                item.ready = false;
            }
        }
        self.epolls.insert(epfd, epoll);
        Some(out)
    }
}

/// A timeout of `poll` and `epoll_wait`: negative is for ever.
fn timeout_us(timeout_ms: i32) -> Option<u64> {
    u64::try_from(timeout_ms).ok().map(|ms| ms * 1_000)
}

impl World {
    pub(crate) fn poll(&self, fds: &mut [PollFd], timeout_ms: i32) -> Result<i32, Errno> {
        let result = self.blocking(timeout_ms == 0, timeout_us(timeout_ms), |state| {
            let mut ready = 0;
            for p in fds.iter_mut() {
                let asked = p.events as u16 as u32 | ALWAYS;
                p.revents = match state.ready_bits(p.fd) {
                    Some(bits) => (bits & asked) as i16,
                    None => libc::POLLNVAL,
                };
                ready += i32::from(p.revents != 0);
            }
            (ready > 0).then_some(Ok(ready))
        });
        match result {
            Err(libc::EAGAIN) => Ok(0),
            other => other,
        }
    }

    pub(crate) fn epoll_ctl(&self, epfd: i32, op: i32, fd: i32, event: (u32, u64)) -> Result<i32, Errno> {
        self.call(|state| {
            let now = state.ready_bits(fd).ok_or(libc::EBADF)?;
            let epoll = state.epolls.get_mut(&epfd).ok_or(libc::EBADF)?;
            let (events, data) = event;
            let ready = now & (events | ALWAYS) != 0;
            let known = epoll.items.iter().position(|i| i.fd == fd);
            match (op, known) {
                (libc::EPOLL_CTL_ADD, None) => {
                    epoll.items.push(Item { fd, events, data, ready, disabled: false });
                }
                (libc::EPOLL_CTL_ADD, Some(_)) => return Err(libc::EEXIST),
                (libc::EPOLL_CTL_MOD, Some(i)) => {
                    epoll.items[i] = Item { fd, events, data, ready, disabled: false };
                }
                (libc::EPOLL_CTL_DEL, Some(i)) => {
                    epoll.items.remove(i);
                }
                (libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL, None) => return Err(libc::ENOENT),
                _ => return Err(libc::EINVAL),
            }
            Ok(0)
        })
    }

    pub(crate) fn epoll_wait(
        &self,
        epfd: i32,
        max: usize,
        timeout_ms: i32,
    ) -> Result<Vec<(u32, u64)>, Errno> {
        let result = self.blocking(timeout_ms == 0, timeout_us(timeout_ms), |state| {
            match state.epoll_collect(epfd, max) {
                None => Some(Err(libc::EBADF)),
                Some(events) if events.is_empty() => None,
                Some(events) => Some(Ok(events)),
            }
        });
        match result {
            Err(libc::EAGAIN) => Ok(Vec::new()),
            other => other,
        }
    }
}
