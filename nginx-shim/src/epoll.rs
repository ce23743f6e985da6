//! Emulated epoll sets: which of our sockets an epoll descriptor watches, and which of them are ready.
//!
//! Pure bookkeeping with the semantics of epoll(7). Readiness comes in as epoll bits, by the caller's closure
//! for "what is possible now" and by [`Sets::notify`] for "what newly happened". Kernel descriptors are not
//! here: they stay in the real epoll set beneath, and `merge` merges the two.
//!
//! The life of a watch: it is queued when it is added or modified while ready, and whenever something happens
//! that it asks for. Harvesting looks at what is really possible now, reports that, and puts a level-triggered
//! watch back at the end of the queue, so that a small `maxevents` starves nobody.

pub mod control;
pub mod merge;

use std::collections::VecDeque;
use std::os::fd::RawFd;

use libc::{
    EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, EPOLLERR, EPOLLET, EPOLLEXCLUSIVE, EPOLLHUP, EPOLLIN,
    EPOLLONESHOT, EPOLLOUT, EPOLLWAKEUP, c_int, epoll_event,
};
use slab::Slab;

use crate::failure::{Outcome, fail};

const ERR_HUP: u32 = (EPOLLERR | EPOLLHUP) as u32;
const EDGE: u32 = EPOLLET as u32;
const ONE_SHOT: u32 = EPOLLONESHOT as u32;
const EXCLUSIVE: u32 = EPOLLEXCLUSIVE as u32;
const WAKE_UP: u32 = EPOLLWAKEUP as u32;
/// Bits that say how to watch, not what for.
const HOW: u32 = EDGE | ONE_SHOT | EXCLUSIVE | WAKE_UP;
/// Bits that may stand beside EPOLLEXCLUSIVE.
const EXCLUSIVE_WITH: u32 = (EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP) as u32 | WAKE_UP | EDGE | EXCLUSIVE;

/// A socket's place in one set. Kept with the socket's description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watch {
    /// The set.
    pub set: u32,
    /// The descriptor under which it was added.
    pub fd: RawFd,
    interest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Interest {
    description: u32,
    events: u32,
    data: u64,
    /// In the ready queue.
    queued: bool,
    /// Removed while in the ready queue, which forgets it when it comes by.
    dead: bool,
}

/// One emulated set.
#[derive(Clone, Debug, Default)]
pub struct Set {
    interests: Slab<Interest>,
    ready: VecDeque<u32>,
    /// The epoll descriptor under which the set was found.
    pub epfd: RawFd,
    /// Descriptors (duplicates) of this set.
    pub descriptors: u32,
    /// When the kernel's part was looked at last, in microseconds.
    pub kernel_seen_us: u64,
    /// With room for one event the kernel and we take turns.
    pub kernel_had_turn: bool,
    /// Threads that are in a wait on this set.
    pub waiters: u32,
}

/// All sets of the process.
#[derive(Clone, Debug, Default)]
pub struct Sets {
    sets: Slab<Set>,
}

impl Sets {
    /// No sets.
    pub const fn new() -> Self {
        Self { sets: Slab::new() }
    }

    /// A new set with one descriptor.
    pub fn create(&mut self, epfd: RawFd) -> u32 {
        self.sets.insert(Set { epfd, descriptors: 1, ..Set::default() }) as u32
    }

    /// A set.
    pub fn get(&self, set: u32) -> Option<&Set> {
        self.sets.get(set as usize)
    }

    /// A set.
    pub fn get_mut(&mut self, set: u32) -> Option<&mut Set> {
        self.sets.get_mut(set as usize)
    }

    /// Forgets a set whose last descriptor is closed. The descriptions drop their watches of it.
    pub fn destroy(&mut self, set: u32) {
        self.sets.try_remove(set as usize);
    }

    /// `epoll_ctl` for a socket of ours, known as `fd`, whose watches are `watches` and whose readiness now is
    /// `ready`.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`: EEXIST, ENOENT, EINVAL, EFAULT.
    #[expect(clippy::too_many_arguments, reason = "the call's own arguments and what they stand for")]
    pub fn control(
        &mut self,
        set: u32,
        op: c_int,
        fd: RawFd,
        description: u32,
        event: Option<epoll_event>,
        watches: &mut Vec<Watch>,
        ready: u32,
    ) -> Outcome<()> {
        let Some(index) = self.sets.get(set as usize).map(|_| set) else { return fail(libc::EBADF) };
        let at = watches.iter().position(|watch| watch.set == index && watch.fd == fd);
        let events = event.map(|event| event.events);
        match op {
            EPOLL_CTL_ADD | EPOLL_CTL_MOD => {
                let Some(events) = events else { return fail(libc::EFAULT) };
                if events & EXCLUSIVE != 0 && (op == EPOLL_CTL_MOD || events & !EXCLUSIVE_WITH != 0) {
                    return fail(libc::EINVAL);
                }
            }
            EPOLL_CTL_DEL => {}
            _ => return fail(libc::EINVAL),
        }
        let set = &mut self.sets[set as usize];
        match (op, at, event) {
            (EPOLL_CTL_ADD, Some(_), _) => fail(libc::EEXIST),
            (EPOLL_CTL_ADD, None, Some(event)) => {
                let interest = set.insert(description, event);
                watches.push(Watch { set: index, fd, interest });
                set.queue_if(interest, ready);
                Ok(())
            }
            (EPOLL_CTL_MOD, Some(at), Some(event)) => {
                let interest = watches[at].interest;
                let entry = &mut set.interests[interest as usize];
                if entry.events & EXCLUSIVE != 0 {
                    return fail(libc::EINVAL);
                }
                entry.events = event.events | ERR_HUP;
                entry.data = event.u64;
                set.queue_if(interest, ready);
                Ok(())
            }
            (EPOLL_CTL_DEL, Some(at), _) => {
                let watch = watches.remove(at);
                set.remove(watch.interest);
                Ok(())
            }
            _ => fail(libc::ENOENT),
        }
    }

    /// A socket is gone: takes its watches out of their sets.
    pub fn forget(&mut self, watches: &[Watch]) {
        for watch in watches {
            if let Some(set) = self.sets.get_mut(watch.set as usize) {
                set.remove(watch.interest);
            }
        }
    }

    /// What a watch asks for, and its data, so that it can move into a real epoll set.
    pub fn event_of(&self, watch: &Watch) -> Option<epoll_event> {
        let interest = self.sets.get(watch.set as usize)?.interests.get(watch.interest as usize)?;
        Some(epoll_event { events: interest.events, u64: interest.data })
    }

    /// Something newly happened on a socket: `edges` as epoll bits. Says whether a set on which a thread waits
    /// got something to report.
    ///
    /// Exclusive watches are queued in the order in which they were added, up to the first one on whose
    /// set a thread waits; when nobody waits, all of them, as with the kernel.
    pub fn notify(&mut self, watches: &[Watch], edges: u32) -> bool {
        let mut wakes = false;
        let mut taken = false;
        for watch in watches {
            let Some(set) = self.sets.get_mut(watch.set as usize) else { continue };
            let exclusive =
                set.interests.get(watch.interest as usize).is_some_and(|entry| entry.events & EXCLUSIVE != 0);
            if exclusive && taken {
                continue;
            }
            // A thread that has something to report already will not wait any more.
            let waits = set.waiters > 0 && set.ready.is_empty();
            let queued = set.queue_if(watch.interest, edges);
            taken |= exclusive && queued && waits;
            wakes |= queued && set.waiters > 0;
        }
        wakes
    }
}

impl Set {
    fn insert(&mut self, description: u32, event: epoll_event) -> u32 {
        self.interests.insert(Interest {
            description,
            events: event.events | ERR_HUP,
            data: event.u64,
            queued: false,
            dead: false,
        }) as u32
    }

    fn remove(&mut self, interest: u32) {
        let Some(entry) = self.interests.get_mut(interest as usize) else { return };
        if entry.queued {
            entry.dead = true;
        } else {
            self.interests.remove(interest as usize);
        }
    }

    /// Queues a watch that asks for any of `bits`; says whether it is queued now because of them.
    fn queue_if(&mut self, interest: u32, bits: u32) -> bool {
        let Some(entry) = self.interests.get_mut(interest as usize) else { return false };
        // A fired one-shot watch has no events left, not even errors.
        if entry.dead || entry.events & !HOW & bits == 0 {
            return false;
        }
        if !entry.queued {
            entry.queued = true;
            self.ready.push_back(interest);
        }
        true
    }

    /// Reports ready sockets into `out`; `possible` gives a description's readiness now as epoll bits.
    pub fn harvest(&mut self, out: &mut [epoll_event], mut possible: impl FnMut(u32) -> u32) -> usize {
        let mut found = 0;
        // What is put back now is for the next call.
        for _ in 0..self.ready.len() {
            if found == out.len() {
                break;
            }
            let Some(index) = self.ready.pop_front() else { break };
            let Some(entry) = self.interests.get_mut(index as usize) else { continue };
            if entry.dead {
                self.interests.remove(index as usize);
                continue;
            }
            entry.queued = false;
            let events = possible(entry.description) & entry.events & !HOW;
            if events == 0 {
                continue;
            }
            out[found] = epoll_event { events, u64: entry.data };
            found += 1;
            if entry.events & ONE_SHOT != 0 {
                entry.events &= HOW;
            } else if entry.events & EDGE == 0 {
                entry.queued = true;
                self.ready.push_back(index);
            }
        }
        found
    }

    /// Whether a harvest would give something, without taking it.
    pub fn any_ready(&self, mut possible: impl FnMut(u32) -> u32) -> bool {
        self.ready.iter().any(|&index| {
            self.interests
                .get(index as usize)
                .is_some_and(|entry| !entry.dead && possible(entry.description) & entry.events & !HOW != 0)
        })
    }
}

#[cfg(test)]
mod tests;
