//! `ffctl start`: everything is looked at before anything is started, and what was started is undone when the rest
//! cannot be.

mod launch;
mod leftovers;
pub mod preflight;
pub mod programs;

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ff_config::{Config, Port};
use ff_control::{
    AddressPlan, InstanceLock, InstancePaths, InstanceRecord, KernelPlan, LockError, region_path,
};

use crate::configuration;
use crate::exit::{ALREADY_RUNNING, Failure};
use crate::interrupt::Interrupt;
use crate::nginx::{NginxProgram, Tested};
use crate::remains;
use crate::stop::require_root;
use crate::teardown::{self, Manner};

use programs::Programs;

/// Nothing of nginx is waited for longer, when it sets no `worker_shutdown_timeout` (as the drain of a reload).
const WORKER_SHUTDOWN_TIMEOUT_MS: u64 = 90_000;

/// Starts the instance of the configuration at `path`.
pub fn run(path: &Path) -> Result<(), Failure> {
    let begun = Instant::now();
    let (config, findings) = configuration::read(path)?;
    configuration::report(path, &findings)?;
    let port = preflight::only_port(&config)?;
    require_root("start an instance")?;
    let programs = Programs::locate(&config.nginx)?;
    let path = fs::canonicalize(path)
        .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;

    let interrupt = Interrupt::install()?;
    let mut record = record_of(&config, port, path);
    let paths = InstancePaths::new(&record.runtime_dir);
    leftovers::refuse_elsewhere(&record)?;
    let lock = take_lock(&record.instance, &paths)?;
    // Until here nothing was made but the directory and the lock in it, and nothing may be taken away: it could belong
    // to an instance that serves.
    if let Err(refused) = leftovers::clear(&record) {
        if matches!(InstanceRecord::load(&paths), Ok(None)) {
            // Nothing but the lock just taken.
            let _ = remains::remove_runtime_dir(&paths.dir);
            let _ = fs::remove_dir(ff_control::RUNTIME_ROOT);
        }
        return Err(refused);
    }

    match start(&config, port, &programs, &mut record, &paths, &lock, &interrupt) {
        Ok(started) => {
            print!("{}", started.text(&record, port, begun.elapsed()));
            Ok(())
        }
        Err(failure) => {
            let undone = teardown::run(&record, Manner::Now, Some(lock), &mut |_| {});
            Err(match undone {
                Ok(_) => failure,
                Err(more) => {
                    Failure { sentence: format!("{failure}; undoing it failed too: {more}"), ..failure }
                }
            })
        }
    }
}

fn start(
    config: &Config,
    port: &Port,
    programs: &Programs,
    record: &mut InstanceRecord,
    paths: &InstancePaths,
    lock: &InstanceLock,
    interrupt: &Interrupt,
) -> Result<launch::Started, Failure> {
    remains::link(&record.instance, &record.runtime_dir)?;
    // Before anything is begun, so that whatever happens to this process, stop and the next start find it.
    record.store(paths).map_err(|error| Failure::failed(error.to_string()))?;
    preflight::machine(config, port)?;
    let kernel = kernel_json(config)?;
    let nginx = NginxProgram {
        settings: &config.nginx,
        library: &programs.library,
        runtime_dir: &paths.dir,
        kernel: &kernel,
    };
    let tested = nginx.test(interrupt)?;
    if !tested.warnings.is_empty() {
        eprintln!("{}", tested.warnings);
    }
    adopt(config, port, &tested, record)?;
    leftovers::remove_stale_sockets(&tested.unix_listeners)?;
    record.store(paths).map_err(|error| Failure::failed(error.to_string()))?;
    let mut launch = launch::Launch { record, paths, interrupt };
    launch.primary(&programs.primary, lock)?;
    launch.nginx(&nginx, &tested)
}

/// Takes over into the record what nginx's configuration decides, and refuses what cannot be served.
fn adopt(config: &Config, port: &Port, tested: &Tested, record: &mut InstanceRecord) -> Result<(), Failure> {
    let conf = config.nginx.conf.display();
    if !tested.main.master_process {
        return Err(Failure::usage(format!(
            "{conf} says `master_process off`: the data plane lives in worker processes, take the line out"
        )));
    }
    record.workers = preflight::workers(port, tested.main.worker_processes, &config.nginx.conf)?;
    record.worker_shutdown_timeout_ms =
        tested.main.worker_shutdown_timeout_ms.unwrap_or(WORKER_SHUTDOWN_TIMEOUT_MS);
    preflight::pid_file(&tested.pid_path, &config.nginx.conf)?;
    record.nginx_pid_file = Some(tested.pid_path.clone());
    Ok(())
}

fn record_of(config: &Config, port: &Port, path: PathBuf) -> InstanceRecord {
    InstanceRecord {
        instance: config.instance.name.clone(),
        config: path,
        runtime_dir: config.instance.runtime_dir.clone(),
        file_prefix: config.dpdk.file_prefix.clone(),
        hugepage_dir: config.instance.hugepage_dir.clone(),
        region_path: region_path(&config.instance.hugepage_dir, &config.instance.name),
        device: port.device.to_string(),
        primary: None,
        nginx_master: None,
        nginx_pid_file: None,
        workers: 0,
        worker_shutdown_timeout_ms: WORKER_SHUTDOWN_TIMEOUT_MS,
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
    }
}

fn take_lock(name: &str, paths: &InstancePaths) -> Result<InstanceLock, Failure> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&paths.dir).map_err(|error| {
        Failure::failed(format!("cannot make the runtime directory {}: {error}", paths.dir.display()))
    })?;
    InstanceLock::acquire(paths).map_err(|error| match error {
        LockError::Held { pid } => already_running(name, pid),
        LockError::Io { .. } => Failure::failed(error.to_string()),
    })
}

fn already_running(name: &str, pid: u32) -> Failure {
    Failure {
        code: ALREADY_RUNNING,
        sentence: format!(
            "instance `{name}` is already running (process {pid}): ffctl status shows it, ffctl stop ends it"
        ),
    }
}

/// What stays with the kernel, as nginx's master is told.
pub fn kernel_json(config: &Config) -> Result<String, Failure> {
    serde_json::to_string(&kernel_plan(config))
        .map_err(|error| Failure::failed(format!("[kernel] cannot be handed to nginx: {error}")))
}

fn kernel_plan(config: &Config) -> KernelPlan {
    let kernel = &config.kernel;
    KernelPlan {
        addresses: kernel
            .addresses
            .iter()
            .map(|net| AddressPlan { addr: net.addr(), prefix_len: net.prefix_len() })
            .collect(),
        tcp_ports: kernel.tcp_ports.clone(),
        udp_ports: kernel.udp_ports.clone(),
    }
}
