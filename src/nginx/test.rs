//! Runs `nginx -T` under the preloaded library in its checking mode: nginx says what is wrong with its configuration
//! before anything was started, and touches no network.

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ff_config::Nginx;

use super::dump::{self, MainSettings};
use crate::exit::Failure;
use crate::interrupt::Interrupt;

/// `nginx -T` resolves host names: longer than this it does not take.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A check that is interrupted may end by itself so long, and take back what it made.
const INTERRUPTED_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks at a child.
const POLL: Duration = Duration::from_millis(2);

/// How nginx is run.
#[derive(Debug, Clone)]
pub struct NginxProgram<'a> {
    /// `[nginx]`.
    pub settings: &'a Nginx,
    /// `libff_nginx.so`.
    pub library: &'a Path,
    /// The instance's runtime directory.
    pub runtime_dir: &'a Path,
    /// What stays with the kernel, as JSON, for the master (it has no plan).
    pub kernel: &'a str,
}

/// What the check found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tested {
    /// The main context.
    pub main: MainSettings,
    /// The pid file.
    pub pid_path: PathBuf,
    /// The error log, where it is a file.
    pub error_log: Option<PathBuf>,
    /// Sockets in the file system that it listens on.
    pub unix_listeners: Vec<PathBuf>,
    /// Warnings that nginx printed.
    pub warnings: String,
}

impl NginxProgram<'_> {
    /// The command with the data plane preloaded, without further arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.settings.binary);
        command.arg("-c").arg(&self.settings.conf);
        if let Some(prefix) = &self.settings.prefix {
            command.arg("-p").arg(prefix);
        }
        command.args(&self.settings.options);
        let mut preload = OsString::from(self.library);
        if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        command.env("LD_PRELOAD", preload);
        command.env("FF_INSTANCE_DIR", self.runtime_dir);
        command.env("FF_KERNEL", self.kernel);
        command.env_remove("FF_CHECK");
        command.stdin(Stdio::null());
        command
    }

    /// Has nginx check its configuration.
    pub fn test(&self, interrupt: &Interrupt) -> Result<Tested, Failure> {
        let binary = self.settings.binary.display();
        let version = run(Command::new(&self.settings.binary).arg("-V").stdin(Stdio::null()), interrupt)?;
        let compiled = CompiledPaths::parse(&version.stderr);
        let mut command = self.command();
        command.arg("-T").env("FF_CHECK", "1");
        // A test makes an empty pid file where there was none.
        let default_pid = compiled.pid_path(self.settings.prefix.as_deref());
        let had_default_pid = default_pid.exists();
        let tested = run(&mut command, interrupt)?;
        let dump = dump::parse(&tested.stdout);
        if !tested.status.success() {
            remove_empty(&default_pid, had_default_pid);
            if let Some(interrupted) = tested.interrupted {
                return Err(interrupted);
            }
            return Err(Failure::usage(format!(
                "{binary} does not accept {}:\n{}",
                self.settings.conf.display(),
                tested.stderr.trim_end()
            )));
        }
        let mut main = dump.map_err(|error| Failure::failed(format!("{binary}: {error}")))?;
        for global in globals(&self.settings.options) {
            dump::apply_global(&mut main, global).map_err(|error| Failure::usage(error.to_string()))?;
        }
        let pid_path = match &main.pid {
            Some(path) => compiled.prefix(self.settings.prefix.as_deref()).join(path),
            None => default_pid.clone(),
        };
        remove_empty(&pid_path, pid_path == default_pid && had_default_pid);
        if let Some(interrupted) = tested.interrupted {
            return Err(interrupted);
        }
        let warnings = tested.stderr.lines().filter(|line| line.contains("[warn]")).collect::<Vec<_>>();
        let error_log = main.error_log.as_ref().unwrap_or(&compiled.error_log);
        // `stderr`, `syslog:` and `memory:` are no files.
        let is_file = error_log != Path::new("stderr") && !error_log.to_string_lossy().contains(':');
        let error_log = is_file.then(|| compiled.prefix(self.settings.prefix.as_deref()).join(error_log));
        let unix_listeners = dump::unix_listeners(&tested.stdout);
        Ok(Tested { main, pid_path, error_log, unix_listeners, warnings: warnings.join("\n") })
    }
}

/// The values of `-g` among nginx's arguments.
fn globals(options: &[String]) -> impl Iterator<Item = &str> {
    let mut options = options.iter();
    std::iter::from_fn(move || {
        loop {
            let option = options.next()?;
            match option.strip_prefix("-g") {
                Some("") => return options.next().map(String::as_str),
                Some(value) => return Some(value),
                None => {}
            }
        }
    })
}

/// An empty file that the check has made; nginx itself writes its pid into it.
fn remove_empty(path: &Path, was_there: bool) {
    if !was_there && fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0) {
        let _ = fs::remove_file(path);
    }
}

/// Paths compiled into the program, as `nginx -V` shows them.
#[derive(Debug, PartialEq, Eq)]
struct CompiledPaths {
    prefix: PathBuf,
    pid: PathBuf,
    error_log: PathBuf,
}

impl CompiledPaths {
    fn parse(version: &str) -> Self {
        let value = |name: &str| {
            version
                .split_ascii_whitespace()
                .find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
                .map(PathBuf::from)
        };
        Self {
            prefix: value("--prefix").unwrap_or_else(|| "/usr/local/nginx".into()),
            pid: value("--pid-path").unwrap_or_else(|| "logs/nginx.pid".into()),
            error_log: value("--error-log-path").unwrap_or_else(|| "logs/error.log".into()),
        }
    }

    fn prefix<'a>(&'a self, given: Option<&'a Path>) -> &'a Path {
        given.unwrap_or(&self.prefix)
    }

    fn pid_path(&self, prefix: Option<&Path>) -> PathBuf {
        self.prefix(prefix).join(&self.pid)
    }
}

struct Output {
    /// This process was told to end meanwhile.
    interrupted: Option<Failure>,
    status: ExitStatus,
    stdout: String,
    stderr: String,
}

/// Runs a command to its end, within bounds, and takes what it prints.
fn run(command: &mut Command, interrupt: &Interrupt) -> Result<Output, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |what: &str| Failure::failed(format!("{program}: {what}"));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C is for this process: a check that it ended half way would leave its empty pid file.
        .process_group(0)
        .spawn()
        .map_err(|error| failed(&format!("cannot be run: {error}")))?;
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    let mut deadline = Instant::now() + TEST_TIMEOUT;
    let mut interrupted = None;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() >= deadline => {
                if let Some(interrupted) = interrupted.take() {
                    break Err(interrupted);
                }
                break Err(failed(&format!("did not end within {} s", TEST_TIMEOUT.as_secs())));
            }
            Ok(None) => {}
            Err(error) => break Err(failed(&error.to_string())),
        }
        if interrupted.is_none()
            && let Err(told) = interrupt.check()
        {
            interrupted = Some(told);
            deadline = deadline.min(Instant::now() + INTERRUPTED_LIMIT);
        }
        thread::sleep(POLL);
    };
    if status.is_err() {
        let _ = child.kill();
        let _ = child.wait();
    }
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    Ok(Output { interrupted, status: status?, stdout: text(stdout), stderr: text(stderr) })
}

fn drain(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests;
