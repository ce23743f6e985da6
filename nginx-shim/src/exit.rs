//! The end of a worker: what its connections still owe their peers is delivered first.
//!
//! The kernel would go on sending for a process that is gone. A stack that lives in the process cannot, so the
//! process stays for a bounded time. It does so before the C library takes the thread-local storage down, which
//! DPDK's packet memory and this library need: in `exit`, in `_exit`, and when `main` returns (see `hooks`).

use std::sync::atomic::{AtomicBool, Ordering};

use ff_tcp::Instant;

use crate::clock;
use crate::failure::{Failure, Outcome};
use crate::process::{self, Role};
use crate::table::{self, Entry};
use crate::waiting::{self, Wait};

/// Longest stay in which no peer takes anything, in microseconds.
const STALL_US_MAX: u64 = 5_000_000;

/// Longest stay in all, in microseconds: the same as nginx's workers get when nothing is configured.
const STAY_US_MAX: u64 = 90_000_000;

static DONE: AtomicBool = AtomicBool::new(false);

/// Closes every socket and passes on until all is delivered, nothing moves any more, or the time is up. A signal
/// ends it too: whoever sends one is in a hurry.
pub fn deliver() {
    if process::role() != Role::Worker || DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    // A signal handler or DPDK ends the process in the middle of a call of ours: nothing can be delivered, and
    // taking the lock again would hang for ever.
    if process::inside() {
        return;
    }
    process::lock().leaves = true;
    close_all();
    let begun = clock::now();
    let mut left = u64::MAX;
    let mut moved = begun;
    loop {
        let deadline = Instant((moved.0 + STALL_US_MAX).min(begun.0 + STAY_US_MAX));
        let wait = Wait { deadline: Some(deadline), mask: std::ptr::null(), kernel: &[], set: None };
        let result: Outcome<Option<u64>> = waiting::until(wait, |process, _, _| {
            let owed = process.stack.as_ref().map_or(0, |stack| stack.0.owed());
            Ok((owed == 0 || owed < left).then_some(owed))
        });
        match result {
            Ok(Some(0)) | Ok(None) => break,
            Ok(Some(owed)) => {
                left = owed;
                moved = clock::now();
            }
            Err(Failure::Errno(_) | Failure::Kernel) => break,
        }
    }
    if let Some(stack) = &mut process::lock().stack {
        stack.0.transmit(clock::now());
        stack.0.report_counters();
    }
}

/// Closes all sockets of ours, listeners included.
fn close_all() {
    let ours: Vec<_> = table::range(0, table::DESCRIPTORS_MAX as i32)
        .filter(|(_, entry)| matches!(entry, Entry::Socket { .. }))
        .map(|(fd, _)| fd)
        .collect();
    for fd in ours {
        // The only error is that it is closed already.
        let _ = crate::calls::descriptor::close(fd);
    }
}
