//! Processes for the tests: DPDK's EAL starts once per process, and a kill needs a victim.
//!
//! The test program itself stays single-threaded and without DPDK; it forks a primary and secondaries and
//! talks with them over socket pairs.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use ff_dpdk::Eal;
use ff_dpdk::eal::args::{EalConfig, Role};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

/// How long anything may take before the test fails.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One end of a conversation in 64-bit words.
pub struct Channel(UnixStream);

impl Channel {
    pub fn send(&mut self, word: u64) {
        self.0.write_all(&word.to_le_bytes()).expect("the other process is there");
    }

    pub fn receive(&mut self) -> u64 {
        self.try_receive().expect("the other process answers in time")
    }

    /// To be polled for a word or the other end's end.
    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub fn try_receive(&mut self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact(&mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// A forked process; killed when dropped.
pub struct Process {
    pub pid: Pid,
    pub channel: Channel,
    running: bool,
}

impl Process {
    /// Runs `body` in a forked process; its end is the process's.
    pub fn start(body: impl FnOnce(&mut Channel)) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        for stream in [&ours, &theirs] {
            stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        }
        // SAFETY: this program has one thread, so the child may go on as any program.
        match unsafe { fork() }.expect("fork") {
            ForkResult::Parent { child } => Self { pid: child, channel: Channel(ours), running: true },
            ForkResult::Child => {
                drop(ours);
                let mut channel = Channel(theirs);
                let result = catch_unwind(AssertUnwindSafe(|| body(&mut channel)));
                // Not exit(): the parent's buffers and destructors are not the child's to run.
                // SAFETY: ends the process.
                unsafe { libc::_exit(if result.is_ok() { 0 } else { 101 }) }
            }
        }
    }

    pub fn kill(&mut self) {
        if self.running {
            self.running = false;
            kill(self.pid, Signal::SIGKILL).expect("the process exists");
            waitpid(self.pid, None).expect("it is our child");
        }
    }

    /// A process that has ended already, for its number.
    pub fn gone(pid: Pid) -> Self {
        let (ours, _) = UnixStream::pair().expect("a socket pair");
        Self { pid, channel: Channel(ours), running: false }
    }

    /// Tells it to end, by ending the conversation, and waits for that.
    pub fn stop(self) {
        self.channel.0.shutdown(std::net::Shutdown::Both).expect("a socket");
        self.join();
    }

    /// Waits for its end, which must be a good one.
    pub fn join(mut self) {
        self.running = false;
        match waitpid(self.pid, None).expect("it is our child") {
            WaitStatus::Exited(_, 0) => {}
            status => panic!("a child process failed: {status:?}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An instance with a name of its own, whose files go when it does.
pub struct Instance {
    pub prefix: String,
}

impl Instance {
    pub fn new(name: &str) -> Self {
        Self { prefix: format!("fft{}{name}", std::process::id()) }
    }

    pub fn config(&self, role: Role, lcore: u16) -> EalConfig {
        let cpus = (0..2).collect();
        let file_prefix = self.prefix.clone();
        EalConfig { file_prefix, role, lcore, cpus, pci: vec![], log_level: 4, extra: vec![] }
    }

    pub fn primary(&self) -> Eal {
        let role = Role::Primary { memory_mib: 64, vdevs: vec![] };
        Eal::start(&self.config(role, 0)).expect("EAL starts")
    }

    pub fn secondary(&self, lcore: u16) -> Eal {
        Eal::start(&self.config(Role::Secondary, lcore)).expect("EAL starts")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Err(error) = ff_dpdk::eal::remove_runtime(&self.prefix) {
            eprintln!("{error}");
        }
    }
}

/// What the machine lacks for these tests, as one sentence.
pub fn missing() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("these tests need root".into());
    }
    if ff_dpdk::eal::hugetlbfs_mounts().is_empty() {
        return Some(
            "no hugetlbfs is mounted: mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages"
                .into(),
        );
    }
    let free = std::fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let free: u32 = free.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    (free < 64).then(|| format!("{free} free 2 MiB hugepages, 64 are needed: sysctl vm.nr_hugepages=512"))
}

/// Runs named scenarios, or those that an argument names a part of.
pub fn run(scenarios: &[(&str, fn())]) {
    if let Some(missing) = missing() {
        eprintln!("FAILED: {missing}");
        std::process::exit(1);
    }
    let filter: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let mut failed = 0;
    for (name, scenario) in scenarios {
        if !filter.is_empty() && !filter.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let started = std::time::Instant::now();
        let good = catch_unwind(scenario).is_ok();
        let verdict = if good { "ok" } else { "FAILED" };
        println!("scenario {name} ... {verdict} ({} ms)", started.elapsed().as_millis());
        failed += u32::from(!good);
    }
    if failed > 0 {
        eprintln!("FAILED: {failed} scenarios");
        std::process::exit(1);
    }
}
