//! The functions that take the C library's names. Each is thin: whose descriptor is it? Then the real function,
//! or ours, and C's way of returning.
//!
//! Variadic functions (`fcntl`, `ioctl`, `open` …) are defined with the one optional argument that they can
//! have: on x86-64 and AArch64 Linux a variadic integer or pointer argument is passed as a named one is.

mod descriptor;
mod file;
mod message;
mod process;
mod program;
mod ready;
mod signal;
mod socket;
mod transfer;

use libc::{c_int, ssize_t};

use crate::failure::{Failure, Outcome, set_errno};

/// C's return value for a call that gives a number; `real` makes the real call.
fn number(result: Outcome<c_int>, real: impl FnOnce() -> c_int) -> c_int {
    match result {
        Ok(value) => value,
        Err(Failure::Kernel) => real(),
        Err(Failure::Errno(errno)) => {
            set_errno(errno);
            -1
        }
    }
}

/// C's return value for a call that gives nothing but success.
fn status(result: Outcome<()>, real: impl FnOnce() -> c_int) -> c_int {
    number(result.map(|()| 0), real)
}

/// C's return value for a call that gives a length.
fn length(result: Outcome<usize>, real: impl FnOnce() -> ssize_t) -> ssize_t {
    match result {
        Ok(len) => len as ssize_t,
        Err(Failure::Kernel) => real(),
        Err(Failure::Errno(errno)) => {
            set_errno(errno);
            -1
        }
    }
}
