//! What the environment says, read once when the library is loaded.
//!
//! It must be kept: nginx replaces its whole environment, and a binary upgrade would start without us.

use std::ffi::{CString, OsStr, OsString};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use ff_control::{AddressPlan, KernelPlan};
use serde::{Deserialize, Serialize};

use crate::log::{self, Level};

/// Directory of the instance; without it the library does nothing.
pub const INSTANCE_DIR: &str = "FF_INSTANCE_DIR";
/// What stays with the kernel, as JSON ([`KernelPlan`]).
pub const KERNEL: &str = "FF_KERNEL";
/// `1`: record what is bound, never attach (`nginx -t`).
pub const CHECK: &str = "FF_CHECK";
/// `listen`: a program without a master attaches itself when it listens.
pub const ATTACH: &str = "FF_ATTACH";
/// Sockets that came through `execve`, as JSON (a list of [`InheritedSocket`]).
pub const INHERITED: &str = "FF_INHERITED";
/// The dynamic linker's.
pub const PRELOAD: &str = "LD_PRELOAD";

/// When a process attaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachWhen {
    /// In a forked child, when it gives up root and still holds inherited sockets: nginx.
    Worker,
    /// At the first `listen` or epoll use with one of our sockets: programs of one process.
    Listen,
    /// Never: the configuration is only checked.
    Never,
}

/// The environment of this library.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Directory of the instance, with its control socket.
    pub instance_dir: PathBuf,
    /// What stays with the kernel.
    pub kernel: KernelPlan,
    /// When to attach.
    pub attach: AttachWhen,
    /// Sockets that the program before `execve` left to this one.
    pub inherited: Vec<InheritedSocket>,
    /// `NAME=value` of everything that `execve` has to hand on, [`INHERITED`] excepted.
    pub to_hand_on: Vec<CString>,
}

/// A bound socket that crosses `execve`: its placeholder does by itself, what it stands for is told here.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct InheritedSocket {
    /// The placeholder.
    pub fd: i32,
    /// IPv6.
    pub ipv6: bool,
    /// Stream; else datagram.
    pub stream: bool,
    /// Where it is bound.
    pub address: SocketAddr,
    /// Backlog, if it listens.
    pub backlog: Option<i32>,
    /// O_NONBLOCK.
    pub nonblocking: bool,
    /// Options in the order in which they were set: level, name, value.
    pub options: Vec<(i32, i32, Vec<u8>)>,
}

static ENVIRONMENT: OnceLock<Option<Environment>> = OnceLock::new();

/// Reads it, at load.
pub fn load() -> Option<&'static Environment> {
    ENVIRONMENT.get_or_init(|| parse(|name| std::env::var_os(name))).as_ref()
}

/// What [`load`] read; `None` when the library does nothing.
pub fn get() -> Option<&'static Environment> {
    ENVIRONMENT.get()?.as_ref()
}

/// Loopback of both families: what stays with the kernel when nobody says otherwise.
pub fn loopback() -> KernelPlan {
    KernelPlan {
        addresses: vec![
            AddressPlan { addr: [127, 0, 0, 0].into(), prefix_len: 8 },
            AddressPlan { addr: std::net::Ipv6Addr::LOCALHOST.into(), prefix_len: 128 },
        ],
        ..KernelPlan::default()
    }
}

fn parse(var: impl Fn(&str) -> Option<OsString>) -> Option<Environment> {
    let instance_dir = PathBuf::from(var(INSTANCE_DIR).filter(|dir| !dir.is_empty())?);
    let kernel = match var(KERNEL) {
        None => loopback(),
        Some(json) => serde_json::from_slice(json.as_bytes()).unwrap_or_else(|error| {
            log::line(
                Level::Alert,
                format_args!("{KERNEL} is not understood ({error}): loopback stays with the kernel"),
            );
            loopback()
        }),
    };
    let set = |name: &str| var(name).is_some_and(|value| !value.is_empty() && value != "0");
    let attach = if set(CHECK) {
        AttachWhen::Never
    } else if var(ATTACH).as_deref() == Some(OsStr::new("listen")) {
        AttachWhen::Listen
    } else {
        AttachWhen::Worker
    };
    let inherited = var(INHERITED).map_or_else(Vec::new, |json| {
        serde_json::from_slice(json.as_bytes()).unwrap_or_else(|error| {
            log::line(
                Level::Alert,
                format_args!("{INHERITED} is not understood ({error}): inherited sockets are lost"),
            );
            Vec::new()
        })
    });
    let to_hand_on = [PRELOAD, INSTANCE_DIR, KERNEL, CHECK, ATTACH]
        .iter()
        .filter_map(|name| Some((name, var(name)?)))
        .filter_map(|(name, value)| {
            let mut assignment = Vec::from(name.as_bytes());
            assignment.push(b'=');
            assignment.extend_from_slice(value.as_bytes());
            CString::new(assignment).ok()
        })
        .collect();
    Some(Environment { instance_dir, kernel, attach, inherited, to_hand_on })
}

#[cfg(test)]
mod tests;
