//! sendfile to a socket of ours: the file is read piece by piece, and the socket takes what it has room for.

use std::os::fd::RawFd;

use libc::off_t;

use super::{Direction, attempt};
use crate::failure::{self, Failure, Outcome, fail};
use crate::{process, real};

/// Bytes read from the file at a time.
const PIECE_BYTES: usize = 128 * 1024;

/// Bytes that one call sends at most, as in Linux. A non-blocking socket takes what its buffer has room for and no more:
/// it must not be asked for less, or the program waits for an event that only a full socket gives.
const CALL_BYTES_MAX: usize = 0x7fff_f000;

thread_local! {
    static PIECE: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Reads at an offset, or at the file's own position.
fn read_piece(input: RawFd, offset: Option<off_t>, piece: &mut [u8]) -> Outcome<usize> {
    loop {
        // SAFETY: `piece` is valid for writes of its length.
        let result = unsafe {
            match offset {
                Some(offset) => libc::pread(input, piece.as_mut_ptr().cast(), piece.len(), offset),
                None => real::read(input, piece.as_mut_ptr().cast(), piece.len()),
            }
        };
        match result {
            0.. => return Ok(result as usize),
            _ if failure::errno() == libc::EINTR => {}
            // sendfile wants something that can be mapped.
            _ if failure::errno() == libc::ESPIPE => return fail(libc::EINVAL),
            _ => return fail(failure::errno()),
        }
    }
}

/// Moves the file's own position, when the caller gave no offset and less was sent than read.
fn step_back(input: RawFd, bytes: usize) {
    if bytes > 0 {
        // SAFETY: lseek has no memory preconditions.
        unsafe { libc::lseek(input, -(bytes as off_t), libc::SEEK_CUR) };
    }
}

/// `sendfile`: `offset` is advanced by what was sent; without one the file's position is.
///
/// # Errors
/// As `sendfile(2)`; `Kernel` when the real call is to be made.
pub fn sendfile(out: RawFd, input: RawFd, mut offset: Option<&mut off_t>, count: usize) -> Outcome<usize> {
    let nonblocking = {
        let mut process = process::lock();
        process.open_socket(out)?;
        process.description(out)?.1.nonblocking
    };
    let count = count.min(CALL_BYTES_MAX);
    let mut sent = 0;
    PIECE.with_borrow_mut(|piece| {
        piece.resize(PIECE_BYTES, 0);
        while sent < count {
            let room = {
                let mut process = process::lock();
                let (stack, socket) = process.open_socket(out)?;
                stack.writable_bytes(socket)?
            };
            // A full socket is asked all the same: its answer is the errno, and it remembers that it was asked.
            let want = (count - sent).min(PIECE_BYTES).min(room.max(1));
            let got = match read_piece(input, offset.as_deref().copied(), &mut piece[..want]) {
                Ok(0) => break,
                Ok(got) => got,
                Err(_) if sent > 0 => break,
                Err(failure) => return Err(failure),
            };
            let result =
                attempt(out, false, Direction::Send, |stack, socket| stack.send(socket, &piece[..got]));
            let taken = match result {
                Ok(taken) => taken,
                Err(failure) => {
                    if offset.is_none() {
                        step_back(input, got);
                    }
                    if failure == Failure::Errno(libc::EPIPE) && sent == 0 {
                        // SAFETY: raising a signal on this thread has no preconditions.
                        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
                    }
                    return if sent > 0 { Ok(sent) } else { Err(failure) };
                }
            };
            sent += taken;
            match &mut offset {
                Some(offset) => **offset += taken as off_t,
                None => step_back(input, got - taken),
            }
            if taken < got && nonblocking {
                break;
            }
        }
        Ok(sent)
    })
}
