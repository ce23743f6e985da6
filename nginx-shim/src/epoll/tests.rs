use libc::{EPOLLRDHUP, epoll_event};

use super::*;

const IN: u32 = EPOLLIN as u32;
const OUT: u32 = EPOLLOUT as u32;
const RDHUP: u32 = EPOLLRDHUP as u32;

/// Sockets whose readiness the test sets, in one or more sets.
struct World {
    sets: Sets,
    watches: Vec<Vec<Watch>>,
    ready: Vec<u32>,
}

impl World {
    fn new(sockets: usize) -> Self {
        Self { sets: Sets::new(), watches: vec![Vec::new(); sockets], ready: vec![0; sockets] }
    }

    fn control(&mut self, set: u32, op: c_int, socket: usize, events: u32) -> Outcome<()> {
        let event = epoll_event { events, u64: socket as u64 };
        self.sets.control(
            set,
            op,
            socket as RawFd + 10,
            socket as u32,
            Some(event),
            &mut self.watches[socket],
            self.ready[socket],
        )
    }

    fn happens(&mut self, socket: usize, edges: u32) {
        self.ready[socket] |= edges;
        self.sets.notify(&self.watches[socket], edges);
    }

    fn wait(&mut self, set: u32, max: usize) -> Vec<(usize, u32)> {
        let mut out = vec![epoll_event { events: 0, u64: 0 }; max];
        let ready = &self.ready;
        let found = self.sets.get_mut(set).unwrap().harvest(&mut out, |socket| ready[socket as usize]);
        out[..found].iter().map(|event| (event.u64 as usize, event.events)).collect()
    }
}

#[test]
fn level_reports_as_long_as_it_lasts() {
    let mut world = World::new(1);
    let set = world.sets.create(3);
    world.control(set, EPOLL_CTL_ADD, 0, IN).unwrap();
    assert_eq!(world.wait(set, 8), []);
    world.happens(0, IN);
    assert_eq!(world.wait(set, 8), [(0, IN)]);
    assert_eq!(world.wait(set, 8), [(0, IN)]);
    world.ready[0] = 0;
    assert_eq!(world.wait(set, 8), []);
    assert_eq!(world.wait(set, 8), []);
}

#[test]
fn edge_reports_once_for_each_happening() {
    let mut world = World::new(1);
    let set = world.sets.create(3);
    world.control(set, EPOLL_CTL_ADD, 0, IN | OUT | EDGE).unwrap();
    world.happens(0, IN);
    assert_eq!(world.wait(set, 8), [(0, IN)]);
    assert_eq!(world.wait(set, 8), []);
    // More data while there is some: a new edge, and everything that is possible is told.
    world.ready[0] |= OUT;
    world.happens(0, IN);
    assert_eq!(world.wait(set, 8), [(0, IN | OUT)]);
    // Not asked for: no report.
    world.happens(0, RDHUP);
    assert_eq!(world.wait(set, 8), []);
}

#[test]
fn adding_and_modifying_look_at_what_is() {
    let mut world = World::new(1);
    let set = world.sets.create(3);
    world.ready[0] = OUT;
    world.control(set, EPOLL_CTL_ADD, 0, OUT | EDGE).unwrap();
    assert_eq!(world.wait(set, 8), [(0, OUT)]);
    assert_eq!(world.wait(set, 8), []);
    world.control(set, EPOLL_CTL_MOD, 0, OUT | EDGE).unwrap();
    assert_eq!(world.wait(set, 8), [(0, OUT)]);
}

#[test]
fn one_shot_is_silent_until_rearmed() {
    let mut world = World::new(1);
    let set = world.sets.create(3);
    world.control(set, EPOLL_CTL_ADD, 0, IN | ONE_SHOT).unwrap();
    world.happens(0, IN);
    assert_eq!(world.wait(set, 8), [(0, IN)]);
    world.happens(0, IN | ERR_HUP);
    assert_eq!(world.wait(set, 8), []);
    world.control(set, EPOLL_CTL_MOD, 0, IN | ONE_SHOT).unwrap();
    assert_eq!(world.wait(set, 8), [(0, IN | ERR_HUP)]);
}

#[test]
fn errors_need_no_asking() {
    let mut world = World::new(1);
    let set = world.sets.create(3);
    world.control(set, EPOLL_CTL_ADD, 0, 0).unwrap();
    world.happens(0, ERR_HUP | IN);
    assert_eq!(world.wait(set, 8), [(0, ERR_HUP)]);
}

#[test]
fn a_small_room_starves_nobody() {
    let mut world = World::new(5);
    let set = world.sets.create(3);
    for socket in 0..5 {
        world.control(set, EPOLL_CTL_ADD, socket, IN).unwrap();
        world.happens(socket, IN);
    }
    let mut seen = [0; 5];
    for _ in 0..10 {
        for (socket, _) in world.wait(set, 2) {
            seen[socket] += 1;
        }
    }
    assert_eq!(seen, [4; 5]);
}

#[test]
fn exclusive_wakes_one_waiter_and_all_when_nobody_waits() {
    let mut world = World::new(1);
    let sets: Vec<u32> = (0..3).map(|_| world.sets.create(3)).collect();
    for &set in &sets {
        world.control(set, EPOLL_CTL_ADD, 0, IN | EXCLUSIVE | EDGE).unwrap();
    }
    let woken = |world: &mut World| -> Vec<usize> {
        world.happens(0, IN);
        (0..3).filter(|&i| !world.wait(sets[i], 8).is_empty()).collect()
    };
    assert_eq!(woken(&mut world), [0, 1, 2]);
    world.sets.get_mut(sets[1]).unwrap().waiters = 1;
    assert_eq!(woken(&mut world), [0, 1]);
}

#[test]
fn the_calls_errors_are_linuxs() {
    let mut world = World::new(1);
    let set = world.sets.create(3);
    assert_eq!(world.control(set, EPOLL_CTL_MOD, 0, IN), fail(libc::ENOENT));
    assert_eq!(world.control(set, EPOLL_CTL_DEL, 0, IN), fail(libc::ENOENT));
    assert_eq!(world.control(set, EPOLL_CTL_ADD, 0, IN | RDHUP | EXCLUSIVE), fail(libc::EINVAL));
    assert_eq!(world.control(set, EPOLL_CTL_ADD, 0, IN | ONE_SHOT | EXCLUSIVE), fail(libc::EINVAL));
    world.control(set, EPOLL_CTL_ADD, 0, IN | EXCLUSIVE).unwrap();
    assert_eq!(world.control(set, EPOLL_CTL_ADD, 0, IN), fail(libc::EEXIST));
    assert_eq!(world.control(set, EPOLL_CTL_MOD, 0, IN), fail(libc::EINVAL));
    assert_eq!(world.control(set, EPOLL_CTL_MOD, 0, IN | EXCLUSIVE), fail(libc::EINVAL));
    assert_eq!(world.control(set, 99, 0, IN), fail(libc::EINVAL));
    assert_eq!(world.control(77, EPOLL_CTL_ADD, 0, IN), fail(libc::EBADF));
    let none = world.sets.control(set, EPOLL_CTL_ADD, 10, 0, None, &mut Vec::new(), 0);
    assert_eq!(none, fail(libc::EFAULT));
}

#[test]
fn a_removed_watch_says_nothing_and_its_place_is_free() {
    let mut world = World::new(2);
    let set = world.sets.create(3);
    world.control(set, EPOLL_CTL_ADD, 0, IN).unwrap();
    world.happens(0, IN);
    world.control(set, EPOLL_CTL_DEL, 0, 0).unwrap();
    world.control(set, EPOLL_CTL_ADD, 1, IN).unwrap();
    assert_eq!(world.wait(set, 8), []);
    world.happens(1, IN);
    assert_eq!(world.wait(set, 8), [(1, IN)]);
    // Everything that was ever removed has been forgotten.
    assert_eq!(world.sets.get(set).unwrap().interests.len(), 1);
}

#[test]
fn a_closed_socket_leaves_its_sets() {
    let mut world = World::new(1);
    let set = world.sets.create(3);
    world.control(set, EPOLL_CTL_ADD, 0, IN).unwrap();
    world.happens(0, IN);
    let watches = std::mem::take(&mut world.watches[0]);
    world.sets.forget(&watches);
    assert_eq!(world.wait(set, 8), []);
    assert_eq!(world.sets.get(set).unwrap().interests.len(), 0);
}
