//! Commands with a deadline. Output goes through files, not pipes: a daemon that a command leaves behind may
//! hold the other end of a pipe for ever.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::{Context, Failure, Netns, run_directory};

/// What a command left.
#[derive(Debug, Clone)]
pub struct Output {
    status: ExitStatus,
    /// Standard output, lossily decoded.
    pub stdout: String,
    /// Standard error, lossily decoded.
    pub stderr: String,
    /// From start to exit.
    pub elapsed: Duration,
}

impl Output {
    /// Exit code 0.
    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// The exit code, or minus the signal that ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| -self.status.signal().unwrap_or(0))
    }

    /// Both streams, for a failure's text.
    pub fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr).trim().to_owned()
    }
}

/// Runs a command in the calling thread's namespace to its end, at most for `limit`; then its process group
/// is killed and that is the failure.
///
/// # Errors
/// The program is not there, or the time was up.
pub fn run(mut command: Command, limit: Duration) -> Result<Output, Failure> {
    let what = format!("{command:?}");
    let mut files = [scratch()?, scratch()?];
    command.stdin(Stdio::null()).stdout(files[0].try_clone()?).stderr(files[1].try_clone()?).process_group(0);
    let start = Instant::now();
    let mut child = command.spawn().doing(format!("starting {what}"))?;
    let status = wait(&mut child, limit);
    let mut texts = [String::new(), String::new()];
    for (file, text) in files.iter_mut().zip(&mut texts) {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        *text = String::from_utf8_lossy(&bytes).into_owned();
    }
    let [stdout, stderr] = texts;
    match status {
        Some(status) => Ok(Output { status, stdout, stderr, elapsed: start.elapsed() }),
        None => Err(Failure(format!("{what} did not end within {limit:?}: {stdout}{stderr}"))),
    }
}

/// As [`run`], in a namespace.
///
/// # Errors
/// As [`run`].
pub fn run_in(netns: &Netns, program: &str, args: &[&str], limit: Duration) -> Result<Output, Failure> {
    let mut command = netns.command(program);
    command.args(args);
    run(command, limit)
}

/// Waits for the child; when the time is up its whole process group is killed and `None` returned.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(200);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(10));
            }
            _ => {
                let _ = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// A file without a name for a command's output.
fn scratch() -> Result<File, Failure> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let dir = run_directory();
    fs::create_dir_all(&dir).doing(format!("making {}", dir.display()))?;
    let path: PathBuf = dir.join(format!("out{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
