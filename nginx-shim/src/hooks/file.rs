//! open and its kin: only to give kept placeholders back when the process is out of descriptors.

use libc::{c_char, c_int, mode_t};

use crate::failure::errno;
use crate::process::{self, Role};
use crate::{batch, real};

/// Whether a call that failed for want of descriptors is worth another attempt.
pub fn made_room() -> bool {
    errno() == libc::EMFILE
        && process::role() == Role::Worker
        && !process::inside()
        && process::lock().placeholders.drain()
}

macro_rules! opening {
    ($(fn $name:ident($($arg:ident: $type:ty),*);)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
                batch::opens();
                // SAFETY: passed through with the application's arguments.
                let fd = unsafe { real::$name($($arg),*) };
                if fd < 0 && made_room() {
                    // SAFETY: as above.
                    return unsafe { real::$name($($arg),*) };
                }
                fd
            }
        )*
    };
}

opening! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t);
    fn open64(path: *const c_char, flags: c_int, mode: mode_t);
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t);
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t);
}
