//! One line to standard error, which nginx has pointed at its error log.
//!
//! The line has nginx's own form (`2025/01/31 12:00:00 [alert] 42#42: …`), so that whoever reads that log by
//! program reads ours too. A sentence about something that may happen for every request is logged once.

use std::fmt::Arguments;
use std::io::Write as _;
use std::sync::Mutex;

use crate::real;

/// How loud; nginx's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The worker cannot go on.
    Emerg,
    /// A person should look.
    Alert,
    /// Something is not supported.
    Warn,
    /// For the record.
    Notice,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Emerg => "emerg",
            Self::Alert => "alert",
            Self::Warn => "warn",
            Self::Notice => "notice",
        }
    }
}

/// Longest line in bytes.
const LINE_BYTES_MAX: usize = 1024;

/// Writes one line.
pub fn line(level: Level, sentence: Arguments<'_>) {
    let mut buffer = [0_u8; LINE_BYTES_MAX];
    let mut rest = &mut buffer[..LINE_BYTES_MAX - 1];
    // SAFETY: `time` and `tm` are valid for the calls; localtime_r keeps no pointer to them.
    let tm = unsafe {
        let time = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&time, &mut tm);
        tm
    };
    // SAFETY: getpid has no preconditions.
    let pid = unsafe { libc::getpid() };
    // A line that is too long is cut: writing into a full slice fails, and what fits is there.
    let _ = write!(
        rest,
        "{:04}/{:02}/{:02} {:02}:{:02}:{:02} [{}] {pid}#{pid}: f-stack: {sentence}",
        tm.tm_year + 1900,
        tm.tm_mon + 1,
        tm.tm_mday,
        tm.tm_hour,
        tm.tm_min,
        tm.tm_sec,
        level.name(),
    );
    let used = LINE_BYTES_MAX - 1 - rest.len();
    buffer[used] = b'\n';
    // SAFETY: the buffer holds `used + 1` bytes and lives through the call.
    unsafe { real::write(2, buffer.as_ptr().cast(), used + 1) };
}

/// What has been said already: at most [`SAID_MAX`] keys, then nothing new is said.
static SAID: Mutex<Vec<u64>> = Mutex::new(Vec::new());
const SAID_MAX: usize = 256;

/// Writes one line, but only the first time for this `key` in this process.
pub fn once(key: u64, level: Level, sentence: Arguments<'_>) {
    {
        let Ok(mut said) = SAID.lock() else { return };
        if said.contains(&key) || said.len() >= SAID_MAX {
            return;
        }
        said.push(key);
    }
    line(level, sentence);
}

/// A key for [`once`]: what it is about, and a number.
pub const fn key(about: u32, number: u32) -> u64 {
    (about as u64) << 32 | number as u64
}
