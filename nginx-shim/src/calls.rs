//! The calls on sockets of ours, one file a family. Hooks call these with what the application gave, already
//! turned into Rust's terms; nothing here is `extern "C"`.

pub mod descriptor;
pub mod establish;
pub mod message;
pub mod option;
pub mod poll;
pub mod sendfile;
pub mod transfer;

use std::os::fd::RawFd;

use ff_dataplane::sockets::{SockError, SocketId};

use crate::failure::{Failure, Outcome, fail};
use crate::process::{self, Process};
use crate::stack::WorkerStack;
use crate::waiting;

/// Which of a socket's two time-outs bounds a blocking call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// SO_RCVTIMEO.
    Receive,
    /// SO_SNDTIMEO.
    Send,
}

/// Makes a call on an open socket; a blocking descriptor waits while it would block, unless `dont_wait`.
pub fn attempt<T>(
    fd: RawFd,
    dont_wait: bool,
    direction: Direction,
    mut call: impl FnMut(&mut dyn WorkerStack, SocketId) -> Result<T, SockError>,
) -> Outcome<T> {
    let mut process = process::lock();
    let mut once = |process: &mut Process| -> Outcome<T> {
        let (stack, socket) = process.open_socket(fd)?;
        let result = call(stack, socket)?;
        // Another thread may sleep in the wait that has to carry out what this call began.
        if !process.sleepers.is_empty() {
            process.wake_sleepers();
        }
        Ok(result)
    };
    match once(&mut process) {
        Err(Failure::Errno(libc::EAGAIN)) => {}
        result => return result,
    }
    let description = process.description(fd)?.1;
    if dont_wait || description.nonblocking {
        return fail(libc::EAGAIN);
    }
    let timeout_us = match direction {
        Direction::Receive => description.receive_timeout_us,
        Direction::Send => description.send_timeout_us,
    };
    drop(process);
    waiting::block_on(timeout_us, |process| once(process))
}
