//! What happens when the library is loaded, and at each fork.

use std::cell::RefCell;

use ff_dataplane::sockets::{Domain, Kind};

use crate::description::{Description, State};
use crate::environment::{self, AttachWhen, InheritedSocket};
use crate::log::{self, Level};
use crate::process::{self, Guard, Process, Role};
use crate::{batch, real, signals, table};

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

/// Runs when the dynamic linker has loaded us, before the program's `main`.
extern "C" fn at_load() {
    real::resolve_all();
    let Some(environment) = environment::load() else { return };
    batch::prepare();
    let mut process = process::lock();
    process.kernel = environment.kernel.clone();
    for socket in &environment.inherited {
        take_over(&mut process, socket);
    }
    drop(process);
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    let failed = unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    if failed != 0 {
        log::line(
            Level::Emerg,
            format_args!("pthread_atfork failed (errno {failed}): the data plane is not used"),
        );
        return;
    }
    process::set_role(Role::Recording);
}

/// Describes a socket that came through `execve`, if its placeholder came too.
fn take_over(process: &mut Process, socket: &InheritedSocket) {
    // SAFETY: F_GETFD takes no argument that matters.
    let open = unsafe { real::fcntl(socket.fd, libc::F_GETFD, 0) } >= 0;
    if !open || !table::fits(socket.fd) || table::get(socket.fd).is_some() {
        return;
    }
    let domain = if socket.ipv6 { Domain::Ipv6 } else { Domain::Ipv4 };
    let kind = if socket.stream { Kind::Stream } else { Kind::Datagram };
    let mut description = Description::new(domain, kind, socket.nonblocking);
    description.state = match socket.backlog {
        Some(backlog) => State::Listening { address: socket.address, backlog },
        None => State::Bound(socket.address),
    };
    description.options = socket.options.clone();
    process.insert(socket.fd, description, false);
}

thread_local! {
    /// The lock, across a fork by this thread: the child must find everything whole.
    static HELD: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

extern "C" fn before_fork() {
    if matches!(process::role(), Role::Inert | Role::Attaching) {
        return;
    }
    let mut guard = Some(process::lock());
    // Not there any more in a thread that is ending; then the child sees what it sees.
    let _ = HELD.try_with(|held| *held.borrow_mut() = guard.take());
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(|held| held.borrow_mut().take());
}

extern "C" fn in_child() {
    let Ok(Some(mut process)) = HELD.try_with(|held| held.borrow_mut().take()) else { return };
    process.sleepers.clear();
    match process::role() {
        Role::Worker | Role::Orphan => lose(&mut process),
        Role::Recording | Role::Child => process::set_role(Role::Child),
        Role::Inert | Role::Attaching => {}
    }
    drop(process);
    signals::renew_after_fork();
}

/// The child of a worker: the stack is its parent's, with all that is in it.
fn lose(process: &mut Process) {
    process::set_role(Role::Orphan);
    // Its memory is shared with the parent and with the device: dropping it would give away what the parent uses.
    std::mem::forget(process.stack.take());
    for (_, description) in &mut process.descriptions {
        if matches!(description.state, State::Open(_)) {
            description.state = State::Lost;
        }
    }
}

/// Whether this process may attach when it gives up root: a child that holds sockets of ours.
pub fn may_attach(process: &Process) -> bool {
    process::role() == Role::Child
        && environment::get().is_some_and(|environment| environment.attach != AttachWhen::Never)
        && process.descriptions.iter().any(|(_, description)| description.recorded_address().is_some())
}
