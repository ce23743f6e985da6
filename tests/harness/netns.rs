//! Network namespaces, and threads that live in them.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use crate::{Context, Failure, ensure, run};

/// A named network namespace; removed when dropped, with the processes that still run in it.
#[derive(Debug)]
pub struct Netns {
    name: String,
    file: File,
}

impl Netns {
    /// Makes the namespace, with its loopback up.
    ///
    /// # Errors
    /// Not root, or the name is taken.
    pub fn create(name: &str) -> Result<Self, Failure> {
        ip(&["netns", "add", name])?;
        ip(&["-n", name, "link", "set", "lo", "up"])?;
        let file = File::open(format!("/run/netns/{name}")).doing(format!("opening namespace {name}"))?;
        Ok(Self { name: name.to_owned(), file })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file, as `nsenter --net=` takes it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}", self.name))
    }

    /// Moves the calling thread here for good: sockets it opens and commands it runs live in the namespace.
    ///
    /// # Errors
    /// Not root.
    pub fn enter(&self) -> Result<(), Failure> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).doing(format!("entering namespace {}", self.name))
    }

    /// Runs `work` on a thread of its own inside the namespace.
    ///
    /// # Errors
    /// What `work` returns; a panic of `work` is a failure too.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter()?;
                work()
            });
            thread.join().unwrap_or_else(|_| Err("a client thread panicked".into()))
        })
    }

    /// A command that will run inside the namespace.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path().display())).arg("--").arg(program);
        command
    }

    /// `ip` inside the namespace.
    ///
    /// # Errors
    /// What `ip` printed.
    pub fn ip(&self, args: &[&str]) -> Result<(), Failure> {
        let all: Vec<&str> = ["-n", &self.name].into_iter().chain(args.iter().copied()).collect();
        ip(&all)
    }

    /// Loads an nftables ruleset, replacing what was there.
    ///
    /// # Errors
    /// What `nft` printed.
    pub fn nft(&self, rules: &str) -> Result<(), Failure> {
        let mut command = self.command("nft");
        command.arg(format!("flush ruleset; {rules}"));
        let out = run(command, Duration::from_secs(10))?;
        ensure!(out.success(), "nft {rules}: {}", out.stderr.trim());
        Ok(())
    }

    /// Sets a sysctl of the namespace.
    ///
    /// # Errors
    /// What `sysctl` printed.
    pub fn sysctl(&self, setting: &str) -> Result<(), Failure> {
        let mut command = self.command("sysctl");
        command.args(["-q", "-w", setting]);
        let out = run(command, Duration::from_secs(10))?;
        ensure!(out.success(), "sysctl {setting}: {}", out.stderr.trim());
        Ok(())
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Ends the processes in the namespace and removes it.
pub(crate) fn remove(name: &str) {
    let mut pids = Command::new("ip");
    pids.args(["netns", "pids", name]);
    if let Ok(out) = run(pids, Duration::from_secs(10)) {
        for pid in out.stdout.split_whitespace().filter_map(|word| word.parse().ok()) {
            crate::proc::kill_and_wait(pid, Duration::from_secs(5));
        }
    }
    // Best effort: a namespace that is gone already is what was wanted.
    let _ = ip(&["netns", "del", name]);
}

/// Runs `ip` and turns what it complains about into a failure.
pub(crate) fn ip(args: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("ip");
    command.args(args);
    let out = run(command, Duration::from_secs(10))?;
    ensure!(out.success(), "ip {}: {}", args.join(" "), out.stderr.trim());
    Ok(())
}
