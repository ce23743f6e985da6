//! From the command line to a running instance, in the order that lets every lack be said before anything is made.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use ff_config::{Config, LoadError};
use ff_control::{ControlError, InstancePaths, Listener, LockError, region_path};
use ff_dpdk::eal::EalError;
use ff_dpdk::instance::{CreateError, create_workers};
use ff_dpdk::{Eal, eal};
use ff_handover::{InstanceError, InstanceLayout, InstanceParams, InstanceSeed, Secrets};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::clock::now_us;
use crate::device::{self, Device, DeviceError};
use crate::hugepages::{HugepageError, Hugepages};
use crate::instance::{self, Parts, RunningInstance};
use crate::plan::Settings;
use crate::region::{RegionFile, RegionFileError};
use crate::server::Server;

/// The command line.
pub struct Options {
    /// The configuration.
    pub config: PathBuf,
    /// Workers of a generation.
    pub workers: u16,
    /// The instance's lock, held by whoever started this.
    pub lock: Option<File>,
    /// Log to the terminal.
    pub foreground: bool,
}

/// Why there is no instance.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No configuration.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A wrong one.
    #[error("{first}{more}")]
    Config {
        /// The first error.
        first: String,
        /// That there are more.
        more: String,
    },
    /// Not one port.
    #[error("{0} ports are configured, one is served: choose it with port_list in [dpdk]")]
    Ports(usize),
    /// Not root.
    #[error("root is needed for hugepages and devices: run this with sudo")]
    NotRoot,
    /// No directory, no log, no signals.
    #[error("cannot {step}: {error}")]
    System {
        /// What was tried.
        step: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// It runs.
    #[error("the instance is already running: {0}")]
    Lock(#[from] LockError),
    /// Memory.
    #[error(transparent)]
    Hugepages(#[from] HugepageError),
    /// Sizes.
    #[error(transparent)]
    Layout(#[from] InstanceError),
    /// DPDK.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// Packet memory.
    #[error(transparent)]
    PacketMemory(#[from] CreateError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The shared words.
    #[error(transparent)]
    Region(#[from] RegionFileError),
    /// The control socket.
    #[error(transparent)]
    Control(#[from] ControlError),
}

fn system(step: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let step = step.into();
    move |error| StartError::System { step, error }
}

/// Starts an instance.
///
/// # Errors
/// [`StartError`]; what had been made is gone again.
pub fn start(options: &Options) -> Result<RunningInstance, StartError> {
    let settings = settings(options)?;
    if !nix::unistd::geteuid().is_root() {
        return Err(StartError::NotRoot);
    }
    let paths = InstancePaths::new(&settings.config.instance.runtime_dir);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&paths.dir)
        .map_err(system(format!("make {}", paths.dir.display())))?;
    if !options.foreground {
        leave_terminal(&paths).map_err(system("leave the terminal"))?;
    }
    tracing_subscriber::fmt().with_writer(io::stderr).with_target(false).with_ansi(false).init();
    let inherited =
        options.lock.as_ref().map(File::try_clone).transpose().map_err(system("keep the lock"))?;
    let lock = instance::lock(inherited, &paths)?;

    // Nothing of DPDK exists yet; from here on, what was made is taken away when the rest fails.
    let begun = begin(&settings, &paths);
    match begun {
        Ok((eal, device, region, server)) => {
            tracing::info!(
                "instance {} is ready on {} for {} workers in {} slots, DPDK {}",
                settings.config.instance.name,
                settings.port().device,
                settings.workers,
                settings.slots(),
                eal_version()
            );
            Ok(RunningInstance::new(Parts { settings, paths, lock, eal, device, region, server }))
        }
        Err(error) => {
            if let Some(eal) = Eal::running() {
                // SAFETY: everything that referred to DPDK was dropped with the failure, and this process has no other
                // thread of its own.
                unsafe { eal.cleanup() };
                instance::remove_dpdk_files(&settings);
            }
            instance::remove_runtime_dir(&paths);
            Err(error)
        }
    }
}

fn eal_version() -> String {
    eal::version().trim_start_matches("DPDK ").to_owned()
}

fn settings(options: &Options) -> Result<Settings, StartError> {
    let checked = Config::load(&options.config)?;
    let errors: Vec<String> = checked.errors().map(ToString::to_string).collect();
    if let [first, more @ ..] = errors.as_slice() {
        let more = match more.len() {
            0 => String::new(),
            count => format!(" ({count} more: ffctl check shows them)"),
        };
        return Err(StartError::Config { first: first.clone(), more });
    }
    let config = checked.config;
    if config.ports.len() != 1 {
        return Err(StartError::Ports(config.ports.len()));
    }
    let allowed = allowed_cpus().map_err(|errno| system("read the CPU affinity")(errno.into()))?;
    let chosen: Vec<u16> = config.dpdk.cpus.iter().filter_map(|cpu| u16::try_from(*cpu).ok()).collect();
    let cpus = if chosen.is_empty() { allowed.clone() } else { chosen };
    Ok(Settings {
        config,
        config_path: options.config.clone(),
        workers: options.workers,
        cpus,
        allowed_cpus: allowed,
    })
}

fn allowed_cpus() -> Result<Vec<u16>, Errno> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap_or(false)).map(|cpu| cpu as u16).collect())
}

/// A session of its own, nothing to read, and everything that is printed (by DPDK too) into the log.
fn leave_terminal(paths: &InstancePaths) -> io::Result<()> {
    // Fails when it leads a process group already: then whoever started it has seen to that.
    let _ = nix::unistd::setsid();
    let log = File::options().create(true).append(true).open(paths.primary_log())?;
    let nothing = File::open("/dev/null")?;
    nix::unistd::dup2_stdin(&nothing)?;
    nix::unistd::dup2_stdout(&log)?;
    nix::unistd::dup2_stderr(&log)?;
    Ok(())
}

type Begun = (Eal, Device, RegionFile, Server);

fn begin(settings: &Settings, paths: &InstancePaths) -> Result<Begun, StartError> {
    let config = &settings.config;
    let params = InstanceParams {
        workers: settings.workers.into(),
        slots: settings.slots().into(),
        tcp_capacity: config.limits.tcp_flows,
        udp_capacity: config.limits.udp_flows,
        neighbour_capacity: config.limits.neighbours,
    };
    let region_bytes = InstanceLayout::new(params)?.total_bytes() as u64;
    let hugepages = Hugepages::of(&config.instance.hugepage_dir)?;
    let need = device::need(settings, region_bytes);
    hugepages.check(&need)?;

    // Before DPDK starts its threads, which inherit it.
    let signals = signals().map_err(|errno| system("take signals")(errno.into()))?;
    let eal = Eal::start(&settings.primary_arguments(need.dpdk_bytes()))?;
    create_workers(eal, &settings.layout())?;
    let device = Device::create(eal, settings)?;
    let region = region(settings, params, region_bytes, hugepages.page_bytes)?;
    let server = Listener::bind(&paths.control_socket()).map_err(StartError::from).and_then(|listener| {
        Server::new(listener, signals).map_err(|errno| system("watch for events")(errno.into()))
    });
    match server {
        Ok(server) => Ok((eal, device, region, server)),
        Err(error) => {
            region.unlink();
            device.stop();
            Err(error)
        }
    }
}

fn signals() -> Result<SignalFd, Errno> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        set.add(signal);
    }
    set.thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

fn region(
    settings: &Settings,
    params: InstanceParams,
    bytes: u64,
    page_bytes: u64,
) -> Result<RegionFile, StartError> {
    let instance = &settings.config.instance;
    let mut keys = [[0; 16]; 4];
    for key in &mut keys {
        getrandom::fill(key).map_err(|error| system("get random keys")(io::Error::other(error)))?;
    }
    let [isn, timestamp, cookie, hash] = keys;
    let seed = InstanceSeed {
        primary_pid: std::process::id(),
        started_us: now_us(),
        name: &instance.name,
        device_digest: settings.config.device_digest().0,
        secrets: Secrets { isn, timestamp, cookie, hash },
    };
    let path: &Path = &region_path(&instance.hugepage_dir, &instance.name);
    Ok(RegionFile::create(path, bytes, page_bytes, params, &seed)?)
}
