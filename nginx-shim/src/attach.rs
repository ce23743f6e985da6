//! A worker's attach: from a forked child of the master to a process with a stack.
//!
//! It happens when the child gives up root, because nginx's worker does so just before it serves, and because it
//! is the last moment at which the device can be reached. nginx's cache manager and loader close the inherited
//! listeners before they get here, and stay without a stack.
//!
//! The order is that of the handover: the place from the primary, DPDK, the shared region, the stack, every
//! inherited listener, and only then, as the last store, the READY word.

mod device;
mod plan;
mod region;

use std::sync::Once;
use std::time::Duration;

use ff_control::{Connection, ControlError, PROTOCOL_VERSION, Refusal, Reply, Request};
use ff_dataplane::Shared;
use ff_dataplane::io::WorkerRef;
use ff_dataplane::sockets::{Kind, SockError};
use ff_flowmap::Owner;
use ff_handover::InstanceError;

use crate::calls::establish;
use crate::description::State;
use crate::environment::{self, AttachWhen, Environment};
use crate::log::{self, Level};
use crate::process::{self, Process, Role};
use crate::{batch, clock, start};

/// Longest wait for the primary's answer. It paces a worker that dies again and again by answering late, and one of a
/// reload that finds no free slot waits until an older generation has drained.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(200);

/// Longest wait for anything else.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(2);

/// Exit status of a worker that could not attach. nginx starts another one.
const STATUS_AGAIN: i32 = 1;

/// Exit status that nginx takes as final: it starts no other worker in this one's place.
const STATUS_FATAL: i32 = 2;

/// Pause before a worker ends that was not paced by the primary, because there is none: nginx would start
/// thousands a second.
const PAUSE: Duration = Duration::from_secs(1);

/// Why a worker could not attach.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The primary cannot be talked to.
    #[error(transparent)]
    Control(ControlError),
    /// There is no primary any more.
    #[error(
        "the primary of instance `{instance}` is gone: workers that are attached go on serving, but none can attach; \
         ffctl stop and ffctl start make a new one"
    )]
    NoPrimary {
        /// Name of the instance.
        instance: String,
    },
    /// The primary does not want this worker.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It answered something else.
    #[error(
        "the primary gave an answer that does not belong to the question: both must be of the same version"
    )]
    Answer,
    /// DPDK, or the device beneath the stack.
    #[error(transparent)]
    Device(#[from] device::DeviceError),
    /// The shared region's file.
    #[error(transparent)]
    Region(#[from] region::MapError),
    /// What is in the region.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// The region has no words for this worker.
    #[error("the shared region has no place for worker {index} in slot {slot}")]
    NoPlace {
        /// The worker's index.
        index: u16,
        /// The generation's slot.
        slot: u16,
    },
    /// A listener cannot be opened.
    #[error("cannot listen on {address}: {error}")]
    Listener {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        error: SockError,
    },
}

impl From<ControlError> for AttachError {
    fn from(error: ControlError) -> Self {
        match error {
            // This nginx was started by the instance: there was a primary.
            ControlError::NotRunning { instance } => Self::NoPrimary { instance },
            error => Self::Control(error),
        }
    }
}

impl AttachError {
    /// Whether another worker in this one's place would fail in the same way.
    fn is_final(&self) -> bool {
        match self {
            Self::Answer => true,
            // nginx starts another one in the place of a worker that ends otherwise, for ever: of a reload that was
            // refused or aborted there is nothing to start.
            Self::Refused(refusal) => matches!(refusal.code.as_str(), "protocol" | "reload"),
            // An address that is not the port's does not become it by trying again.
            Self::Listener { error, .. } => *error == SockError::AddressNotAvailable,
            Self::Control(_)
            | Self::NoPrimary { .. }
            | Self::Device(_)
            | Self::Region(_)
            | Self::Instance(_)
            | Self::NoPlace { .. } => false,
        }
    }
}

/// Loads DPDK's drivers, once, in a process whose children are going to attach: half of what an attach takes. It only
/// maps libraries; nothing of DPDK is started.
pub fn prepare() {
    static ONCE: Once = Once::new();
    if environment::get().is_some_and(|environment| environment.attach == AttachWhen::Worker) {
        ONCE.call_once(|| {
            // What cannot be loaded now is loaded by EAL, or reported by it.
            let _ = ff_dpdk::eal::preload_drivers();
        });
    }
}

/// A call that gives up root. In a worker to be it attaches first, and does not return if that fails.
pub fn giving_up_root() {
    if process::role() == Role::Child && start::may_attach(&process::lock()) {
        attach_here();
    }
}

/// Attaches this process, or ends it.
pub fn attach_here() {
    let Some(environment) = environment::get() else { return };
    let role = process::role();
    process::set_role(Role::Attaching);
    match attach(environment, role) {
        Ok(()) => {}
        Err(error) => {
            process::set_role(role);
            give_up(environment, &error)
        }
    }
}

/// Says why, to the error log and to the primary, and ends the process.
fn give_up(environment: &Environment, error: &AttachError) -> ! {
    log::line(Level::Emerg, format_args!("worker cannot attach: {error}"));
    let told = control(environment).and_then(|mut connection| {
        let failed = Request::AttachFailed { pid: std::process::id(), reason: error.to_string() };
        connection.send(&failed, CONTROL_TIMEOUT)?;
        connection.recv::<Reply>(CONTROL_TIMEOUT)
    });
    if told.is_err() {
        // A signal ends the pause, and the process with it.
        // SAFETY: usleep has no preconditions.
        unsafe { libc::usleep(PAUSE.as_micros() as libc::useconds_t) };
    }
    let status = if error.is_final() { STATUS_FATAL } else { STATUS_AGAIN };
    // SAFETY: the process has nothing that would have to run before its end; `exit` would flush what the master
    // had buffered.
    unsafe { crate::real::_exit(status) };
    std::process::abort()
}

fn control(environment: &Environment) -> Result<Connection, ControlError> {
    Connection::connect(&environment.instance_dir.join("control.sock"), CONTROL_TIMEOUT)
}

fn attach(environment: &Environment, role: Role) -> Result<(), AttachError> {
    let begun = clock::now();
    let pid = std::process::id();
    let master_pid = if role == Role::Child { std::os::unix::process::parent_id() } else { pid };
    let mut connection = control(environment)?;
    let configuration = batch::configuration();
    let attach = Request::Attach { protocol: PROTOCOL_VERSION, pid, master_pid, configuration };
    connection.send(&attach, CONTROL_TIMEOUT)?;
    let (reply, descriptors) = connection.recv_with_fds::<Reply>(ANSWER_TIMEOUT)?;
    let plan = match reply {
        Reply::Plan(plan) => plan,
        Reply::Refused(refusal) => return Err(refusal.into()),
        Reply::Ok | Reply::Status(_) => return Err(AttachError::Answer),
    };
    batch::note_attached();
    let answered = clock::now();
    let eal = device::start(&plan)?;
    let dpdk = clock::now();
    let instance = region::open(&plan)?;
    let owner = Owner { epoch: plan.epoch, pid };
    let me = WorkerRef { slot: plan.slot, index: plan.index };
    let place = || AttachError::NoPlace { index: plan.index, slot: plan.slot };
    let words =
        instance.directory().worker(usize::from(plan.slot), usize::from(plan.index)).ok_or_else(place)?;
    let table = instance.tcp_writer(usize::from(plan.slot), usize::from(plan.index), owner)?;
    let shared = Shared::of_instance(&instance, me, owner, u64::from(plan.udp_idle_ms) * 1_000)?;
    let config = plan::stack_config(&plan, &instance.secrets());
    let stack = device::stack(eal, &plan, descriptors, config, table, shared)?;
    let started = clock::now();
    let mut process = process::lock();
    process.kernel = plan.kernel.clone();
    process.idle_step_us = u64::from(plan.idle_sleep_us);
    process.stack = Some(stack);
    process::set_role(Role::Worker);
    if let Err(error) = open_inherited(&mut process) {
        // Nobody knows of this stack yet, and the process is about to end.
        std::mem::forget(process.stack.take());
        return Err(error);
    }
    drop(process);
    shorten_timer_slack();
    let now = clock::now();
    // The heartbeat before READY: from READY on it is looked at.
    words.beat(now.0);
    words.set_ready(owner, now.0);
    log::line(
        Level::Notice,
        format_args!(
            "worker {} of generation {} attached to `{}` in {} us (answer {}, DPDK {}, stack {}, listeners {})",
            plan.index,
            plan.epoch,
            plan.instance,
            now.0 - begun.0,
            answered.0 - begun.0,
            dpdk.0 - answered.0,
            started.0 - dpdk.0,
            now.0 - started.0
        ),
    );
    // Only a wake-up: the word is the truth. An unanswered one changes nothing.
    if connection.send(&Request::Ready { pid }, CONTROL_TIMEOUT).is_ok() {
        let _ = connection.recv::<Reply>(CONTROL_TIMEOUT);
    }
    Ok(())
}

/// Opens what the master bound: listeners, and datagram sockets. Of datagram sockets that share a place by
/// SO_REUSEPORT (nginx makes one for each worker) the stack distributes to all that are open, so only those are
/// opened that the application then uses: the others stay recorded.
fn open_inherited(process: &mut Process) -> Result<(), AttachError> {
    let recorded: Vec<u32> = process
        .descriptions
        .iter()
        .filter(|(_, description)| description.recorded_address().is_some())
        .map(|(index, _)| index as u32)
        .collect();
    for index in recorded {
        let description = &process.descriptions[index as usize];
        let Some(address) = description.recorded_address() else { continue };
        let shares = description.kind == Kind::Datagram
            && description.recorded_flag(libc::SOL_SOCKET, libc::SO_REUSEPORT);
        // A stream socket that is only bound takes nothing; it is opened when it is used.
        let idle = description.kind == Kind::Stream && matches!(description.state, State::Bound(_));
        if shares || idle {
            continue;
        }
        establish::open(process, index).map_err(|error| AttachError::Listener { address, error })?;
    }
    Ok(())
}

/// The kernel may end a sleep up to 50 µs late, as much as a whole request takes.
fn shorten_timer_slack() {
    const SLACK_NS: libc::c_ulong = 1_000;
    // SAFETY: PR_SET_TIMERSLACK takes a number and concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
}
