//! `scripts/quickstart` as a person runs it, in the machine's own namespace; under a name of this run, so that a
//! quickstart that somebody uses goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use ff_harness::{Context, Failure, Names, Output, ensure, proc, run};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::os::unix::process::CommandExt as _;

use crate::case::{Case, Outcome, Size};
use crate::lab::Lab;

pub fn cases() -> Vec<Case> {
    vec![
        Case::own("qs01", "quickstart fetches a page, twice in a row; --down leaves no trace", twice)
            .within_s(300),
        Case::own("qs02", "quickstart works after an interruption anywhere", interrupted).within_s(300),
        Case::own("qs03", "quickstart: wrong flags show the usage, --down with nothing there", flags)
            .within_s(60),
    ]
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/quickstart")
}

fn quickstart(args: &[&str]) -> Result<Output, Failure> {
    let mut command = Command::new(script());
    command.args(args).env("FF_HUGEPAGES", wanted_pages().to_string()).env("FF_QUICKSTART_NAME", name());
    run(command, Duration::from_secs(240))
}

/// Some more than the machine has set aside when the harness starts, so that it is seen whether they are given back.
fn wanted_pages() -> u64 {
    static WANTED: OnceLock<u64> = OnceLock::new();
    *WANTED.get_or_init(|| proc::meminfo("HugePages_Total").unwrap_or_default().max(768) + 8)
}

/// Name of instance and TAP device, and what the others begin with.
fn name() -> String {
    format!("{}q", Names::new(0).instance.trim_end_matches('a'))
}

/// What is there of this run's quickstart.
fn traces() -> Vec<String> {
    ["/run/netns", "/run/ffstack", "/run", "/run/dpdk", "/dev/hugepages", "/sys/class/net"]
        .iter()
        .filter_map(|dir| fs::read_dir(dir).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path().display().to_string()))
        .filter(|path| path.contains(&name()))
        .collect()
}

fn fetch() -> Result<(), Failure> {
    for url in ["http://198.18.0.2/", "http://[2001:2::2]/"] {
        let mut curl = Command::new("ip");
        let client = format!("{}c", name());
        curl.args(["netns", "exec", &client, "curl", "-sSgf", "--max-time", "5", url]);
        let out = run(curl, Duration::from_secs(10))?;
        ensure!(out.success() && out.stdout.contains("ffstack"), "{url}: {}", out.all());
    }
    Ok(())
}

fn twice(_: &mut Lab, _: Size) -> Outcome {
    let pages = fs::read_to_string("/proc/sys/vm/nr_hugepages")?;
    let raised = || proc::meminfo("HugePages_Total") == Some(wanted_pages());
    let mut times = Vec::new();
    for round in 0..2 {
        let out = quickstart(&[])?;
        ensure!(out.success(), "run {round}: exit code {}: {}", out.code(), out.all());
        ensure!(
            out.stdout.contains(&format!("ip netns exec {}c curl", name())),
            "run {round} does not say what next: {}",
            out.all()
        );
        fetch().doing(format!("after run {round}"))?;
        ensure!(raised(), "run {round} did not raise vm.nr_hugepages to {}", wanted_pages());
        times.push(format!("{:.1} s", out.elapsed.as_secs_f64()));
    }
    let out = quickstart(&["--down"])?;
    ensure!(out.success(), "--down: exit code {}: {}", out.code(), out.all());
    let left = traces();
    ensure!(left.is_empty(), "--down left {}", left.join(", "));
    let after = fs::read_to_string("/proc/sys/vm/nr_hugepages")?;
    ensure!(pages == after, "vm.nr_hugepages was {} and is {}", pages.trim(), after.trim());
    Ok(times.join(", then "))
}

fn interrupted(_: &mut Lab, _: Size) -> Outcome {
    let mut ended = Vec::new();
    for (round, delay_ms) in
        [50, 150, 250, 350, 450, 550, 650, 750, 850, 1000, 1300, 2000].into_iter().enumerate()
    {
        let mut child = Command::new(script())
            .env("FF_QUICKSTART_NAME", name())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        thread::sleep(Duration::from_millis(delay_ms));
        // The whole foreground group, as a terminal does; every other time without any chance to tidy up.
        let signal = if round % 2 == 0 { Signal::SIGKILL } else { Signal::SIGINT };
        let _ = killpg(Pid::from_raw(child.id().cast_signed()), signal);
        let gone =
            proc::until(Duration::from_secs(60), || child.try_wait().is_ok_and(|status| status.is_some()));
        ensure!(gone, "quickstart did not end within 60 s after {signal}");
        ended.push(format!("{delay_ms}"));
    }
    let out = quickstart(&[])?;
    ensure!(out.success(), "the run after: exit code {}: {}", out.code(), out.all());
    fetch()?;
    let down = quickstart(&["--down"])?;
    ensure!(down.success(), "--down: {}", down.all());
    let left = traces();
    ensure!(left.is_empty(), "--down left {}", left.join(", "));
    Ok(format!("interrupted after {} ms", ended.join(", ")))
}

fn flags(_: &mut Lab, _: Size) -> Outcome {
    for args in [&["--wrong"][..], &["--down", "now"], &["up"]] {
        let out = quickstart(args)?;
        ensure!(
            out.code() == 2 && out.stderr.contains("usage"),
            "{args:?}: exit code {}: {}",
            out.code(),
            out.all()
        );
    }
    let out = quickstart(&["--down"])?;
    ensure!(out.success() && !out.stdout.is_empty(), "--down with nothing there: {}", out.all());
    Ok(String::new())
}
