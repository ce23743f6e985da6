//! DPDK's environment in this process: started once, used to the end.

pub mod args;
mod drivers;
mod runtime;

use std::ffi::{CStr, CString};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ff_dpdk_sys as sys;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

use crate::errno::Errno;
use crate::owner;

pub use drivers::preload as preload_drivers;
pub use runtime::{RuntimeError, directory, hugetlbfs_mounts, is_primary_alive, remove_runtime, sweep_dead};

/// Why EAL did not start.
#[derive(Debug, thiserror::Error)]
pub enum EalError {
    /// Once per process, whatever came of it.
    #[error("DPDK was started before in this process; it starts once per process")]
    Again,
    /// An argument with a NUL in it.
    #[error("the DPDK argument {0:?} has a NUL byte in it")]
    Argument(String),
    /// The configuration cannot be said to EAL.
    #[error(transparent)]
    Arguments(#[from] args::EalArgsError),
    /// Two primaries with one prefix.
    #[error("a DPDK primary of {0} is running already: stop it first")]
    PrimaryRunning(String),
    /// A secondary alone.
    #[error("no DPDK primary of {0} is running: start it first")]
    NoPrimary(String),
    /// No memory to be had.
    #[error(
        "no hugetlbfs is mounted: mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages && \
         sysctl vm.nr_hugepages=512"
    )]
    NoHugetlbfs,
    /// EAL said no; its own log has more.
    #[error("DPDK does not start ({errno}): {advice}")]
    Init {
        /// DPDK's reason; 0 where it names none.
        errno: Errno,
        /// What to do.
        advice: &'static str,
    },
}

/// What this process is in its DPDK instance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessType {
    /// The creator.
    Primary,
    /// A user.
    Secondary,
}

/// Proof that EAL is initialised in this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Eal {
    process: ProcessType,
}

static STARTED: AtomicBool = AtomicBool::new(false);
static RUNNING: Mutex<Option<Eal>> = Mutex::new(None);

impl Eal {
    /// Checks what can be checked before, and starts EAL.
    ///
    /// # Errors
    /// As [`Eal::init`], and with a sentence of its own where the prefix is busy, the primary of a secondary
    /// is missing, or hugepages are not mounted.
    pub fn start(config: &args::EalConfig) -> Result<Self, EalError> {
        let arguments = args::arguments(config)?;
        let is_primary_alive = is_primary_alive(&config.file_prefix);
        match config.role {
            args::Role::Primary { .. } if is_primary_alive => {
                return Err(EalError::PrimaryRunning(config.file_prefix.clone()));
            }
            args::Role::Primary { .. } if hugetlbfs_mounts().is_empty() => return Err(EalError::NoHugetlbfs),
            args::Role::Secondary if !is_primary_alive => {
                return Err(EalError::NoPrimary(config.file_prefix.clone()));
            }
            _ => {}
        }
        Self::init(&arguments)
    }

    /// Starts EAL with these arguments (see [`args::arguments`]), program name first.
    ///
    /// All signals are blocked meanwhile: EAL starts threads, which inherit the mask, and a signal of the
    /// program's must not be delivered to one of them. The calling thread is pinned to the CPUs of its
    /// lcore.
    ///
    /// # Errors
    /// When it was called before, or EAL refuses: no hugepages, no root, no primary, a busy prefix.
    pub fn init(arguments: &[String]) -> Result<Self, EalError> {
        let arguments: Vec<CString> = arguments
            .iter()
            .map(|argument| CString::new(argument.as_str()).map_err(|_| EalError::Argument(argument.clone())))
            .collect::<Result<_, _>>()?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(EalError::Again);
        }
        // EAL keeps pointers into its argument vector: both the strings and the table live for ever.
        let table: Vec<*mut libc::c_char> =
            arguments.into_iter().map(CString::into_raw).chain([std::ptr::null_mut()]).collect();
        let count = table.len() as i32 - 1;
        let table = Box::leak(table.into_boxed_slice());

        let mut before = SigSet::empty();
        // The mask calls fail only on invalid arguments.
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before));
        // SAFETY: called once per process (STARTED); the table holds `count` NUL-terminated, writable
        // strings and a terminating null, and is never freed.
        let result = unsafe { sys::rte_eal_init(count, table.as_mut_ptr()) };
        let errno = Errno::last();
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
        if result < 0 {
            return Err(EalError::Init { errno, advice: advice(errno) });
        }
        // SAFETY: EAL is initialised.
        let process = match unsafe { sys::rte_eal_process_type() } {
            sys::RTE_PROC_PRIMARY => ProcessType::Primary,
            _ => ProcessType::Secondary,
        };
        if process == ProcessType::Secondary {
            // EAL has just taken 150 KiB of the shared heap for service cores, which nobody here has. They would be
            // lost with a process that is killed; after some eighty of those, the next one could not start.
            // SAFETY: EAL is initialised; no service was registered, and no service core runs. Calling it again (from
            // `cleanup`) does nothing.
            unsafe { sys::rte_service_finalize() };
        }
        let eal = Self { process };
        owner::register(eal).map_err(|errno| EalError::Init {
            errno,
            advice: "the owner's tag of mbufs cannot be set up: is the primary of another version?",
        })?;
        *RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(eal);
        Ok(eal)
    }

    /// The running EAL of this process, if there is one.
    pub fn running() -> Option<Self> {
        *RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What this process is.
    pub fn process_type(self) -> ProcessType {
        self.process
    }

    /// The lcore id of the calling thread; `None` in a thread that EAL does not know.
    pub fn lcore(self) -> Option<u16> {
        // SAFETY: reads a thread-local integer.
        let id = unsafe { sys::ff_lcore_id() };
        (id < sys::RTE_MAX_LCORE).then_some(id as u16)
    }

    /// Ends EAL: unmaps its memory, closes its ports, removes this process's files.
    ///
    /// # Safety
    /// Nothing of DPDK is used afterwards, not even dropped: no handle, no mbuf, in no thread.
    pub unsafe fn cleanup(self) {
        crate::mbuf::flush_private_cache();
        *RUNNING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
        // SAFETY: EAL is initialised (`self`); the caller vouches for the rest. Its errors say that it was
        // not initialised.
        unsafe { sys::rte_eal_cleanup() };
    }
}

/// DPDK's version, as it says itself.
pub fn version() -> String {
    // SAFETY: returns a static NUL-terminated string; needs no EAL.
    unsafe { CStr::from_ptr(sys::rte_version()) }.to_string_lossy().into_owned()
}

/// What a person can do about a failed start.
fn advice(errno: Errno) -> &'static str {
    match errno.0 {
        libc::EACCES | libc::EPERM => {
            "are there hugepages, and is this root? (sysctl vm.nr_hugepages=512; mkdir -p /dev/hugepages; \
             mount -t hugetlbfs nodev /dev/hugepages)"
        }
        libc::ENOMEM => "there are too few hugepages: raise vm.nr_hugepages",
        libc::ENOENT | 1002 => "is the primary of this file prefix running?",
        libc::EAGAIN | libc::EBUSY => "is another primary using the same file prefix?",
        libc::EINVAL => "one of its arguments is wrong: see DPDK's log lines above",
        _ => "see DPDK's log lines above",
    }
}
