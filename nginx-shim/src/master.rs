//! What nginx's master needs: our variables through `execve`, with the inherited sockets described.
//!
//! nginx gives the new binary of an upgrade an environment of its own making, in which nothing of ours is left.

use std::ffi::{CStr, CString};

use ff_dataplane::sockets::{Domain, Kind};
use libc::{c_char, c_int};

use crate::description::State;
use crate::environment::{self, Environment, InheritedSocket};
use crate::process::{self, Process, Role};
use crate::real;
use crate::table::{self, Entry};

/// Runs `exec` with an environment that has ours in it, or, in a process whose sockets do not survive, has not.
///
/// # Safety
/// `envp` is null or an array of C strings that ends in null.
pub unsafe fn with_environment(
    envp: *const *const c_char,
    exec: impl FnOnce(*const *const c_char) -> c_int,
) -> c_int {
    let Some(environment) = environment::get() else { return exec(envp) };
    // SAFETY: by the caller's word.
    let given = unsafe { strings(envp) };
    let ours = match process::role() {
        Role::Recording | Role::Child => additions(environment),
        // A program that a worker starts has nothing to do with the data plane.
        Role::Worker | Role::Orphan | Role::Attaching | Role::Inert => Vec::new(),
    };
    let mut pointers: Vec<*const c_char> =
        given.iter().filter(|line| !is_ours(line)).map(|line| line.as_ptr()).collect();
    pointers.extend(ours.iter().map(|line| line.as_ptr()));
    pointers.push(std::ptr::null());
    exec(pointers.as_ptr())
}

/// # Safety
/// As [`with_environment`]; the strings live as long as the result.
unsafe fn strings<'a>(envp: *const *const c_char) -> Vec<&'a CStr> {
    let mut lines = Vec::new();
    if envp.is_null() {
        return lines;
    }
    for at in 0.. {
        // SAFETY: the array ends in null, and the loop with it.
        unsafe {
            let line = *envp.add(at);
            if line.is_null() {
                break;
            }
            lines.push(CStr::from_ptr(line));
        }
    }
    lines
}

/// Whether a line of the environment is one that we put there ourselves.
fn is_ours(line: &CStr) -> bool {
    let name = line.to_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
    [
        environment::PRELOAD,
        environment::INSTANCE_DIR,
        environment::KERNEL,
        environment::CHECK,
        environment::ATTACH,
        environment::INHERITED,
    ]
    .iter()
    .any(|ours| ours.as_bytes() == name)
}

fn additions(environment: &Environment) -> Vec<CString> {
    let mut lines = environment.to_hand_on.clone();
    let inherited = inherited(&process::lock());
    if !inherited.is_empty()
        && let Ok(json) = serde_json::to_string(&inherited)
        && let Ok(line) = CString::new(format!("{}={json}", environment::INHERITED))
    {
        lines.push(line);
    }
    lines
}

/// The bound sockets whose descriptors stay open across `execve`.
fn inherited(process: &Process) -> Vec<InheritedSocket> {
    let mut sockets = Vec::new();
    for (fd, entry) in table::range(0, table::DESCRIPTORS_MAX as i32) {
        let Entry::Socket { description, .. } = entry else { continue };
        let Some(description) = process.descriptions.get(description as usize) else { continue };
        let (address, backlog) = match description.state {
            State::Bound(address) => (address, None),
            State::Listening { address, backlog } => (address, Some(backlog)),
            State::Undecided | State::Open(_) | State::Lost | State::Moved => continue,
        };
        // SAFETY: F_GETFD takes no argument that matters.
        let flags = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
        if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
            continue;
        }
        sockets.push(InheritedSocket {
            fd,
            ipv6: description.domain == Domain::Ipv6,
            stream: description.kind == Kind::Stream,
            address,
            backlog,
            nonblocking: description.nonblocking,
            options: description.options.clone(),
        });
    }
    sockets
}
