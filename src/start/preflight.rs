//! What a machine must have before anything is started; each lack is one sentence with the command that mends it.

use std::fs;
use std::path::{Path, PathBuf};

use ff_config::{Config, Device, Port};

use crate::exit::{ALREADY_RUNNING, Failure};
use crate::nginx::WorkerProcesses;
use crate::processes;

/// Queues of DPDK's TAP driver.
const TAP_QUEUES_MAX: u32 = 16;
/// Queues and workers that an instance is designed for.
const QUEUES_MAX: u32 = 64;

/// The port that an instance serves.
pub fn only_port(config: &Config) -> Result<&Port, Failure> {
    match config.ports.as_slice() {
        [port] => Ok(port),
        [] => {
            Err(Failure::usage("there is no [port0] section: say which device and which addresses to serve"))
        }
        ports => Err(Failure::usage(format!(
            "{} ports are configured, one is served: choose it with port_list in [dpdk]",
            ports.len()
        ))),
    }
}

/// How many workers, and thus queues.
pub fn workers(port: &Port, asked: WorkerProcesses, conf: &Path) -> Result<u16, Failure> {
    let count = match asked {
        WorkerProcesses::Count(count) => count,
        WorkerProcesses::Auto => online_cpus(),
    };
    let most = match (&port.device, port.queues) {
        (_, Some(queues)) => u32::from(queues),
        (Device::Tap(_), None) => TAP_QUEUES_MAX,
        _ => QUEUES_MAX,
    };
    let shown = match asked {
        WorkerProcesses::Auto => format!("auto ({count} CPUs)"),
        WorkerProcesses::Count(count) => count.to_string(),
    };
    match u16::try_from(count) {
        Ok(workers) if (1..=most).contains(&count) => Ok(workers),
        _ => Err(Failure::usage(format!(
            "{} asks for worker_processes {shown}: {} serves 1 to {most} workers, each with a queue of its own",
            conf.display(),
            port.device
        ))),
    }
}

/// As nginx counts them for `auto`.
fn online_cpus() -> u32 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN)
        .ok()
        .flatten()
        .and_then(|count| u32::try_from(count).ok())
        .unwrap_or(1)
}

/// Hugepages and the device.
pub fn machine(config: &Config, port: &Port) -> Result<(), Failure> {
    hugepages(&config.instance.hugepage_dir)?;
    match &port.device {
        Device::Tap(ifname) => tap(ifname),
        Device::AfPacket(ifname) => interface(ifname),
        Device::Pci(address) => pci(&address.to_string()),
        Device::Wire => Ok(()),
    }
}

fn hugepages(directory: &Path) -> Result<(), Failure> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let shown = directory.display();
    let Some(page_kib) = mounted_page_kib(&mounts, directory) else {
        return Err(Failure::failed(format!(
            "no hugepages are mounted on {shown}: mkdir -p {shown} && mount -t hugetlbfs nodev {shown}"
        )));
    };
    let count = Path::new("/sys/kernel/mm/hugepages").join(format!("hugepages-{page_kib}kB/nr_hugepages"));
    let count: u64 = fs::read_to_string(count).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    if count == 0 {
        return Err(Failure::failed(format!(
            "the machine has set no hugepages of {page_kib} KiB aside: sysctl vm.nr_hugepages=512"
        )));
    }
    Ok(())
}

/// Page size of the hugetlbfs that is mounted exactly there.
fn mounted_page_kib(mounts: &str, directory: &Path) -> Option<u64> {
    // The last one counts: it lies over the others.
    let options = mounts.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (target, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (Path::new(target) == directory && kind == "hugetlbfs").then_some(options)
    })?;
    let size = options.split(',').find_map(|option| option.strip_prefix("pagesize="))?;
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_kib = match &size[digits.len()..] {
        "K" => 1,
        "M" => 1 << 10,
        "G" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit_kib)
}

fn tap(ifname: &str) -> Result<(), Failure> {
    if !Path::new("/dev/net/tun").exists() {
        return Err(Failure::failed("there is no /dev/net/tun for a TAP device: modprobe tun"));
    }
    if driver_plugin("librte_net_tap.so").is_none() {
        return Err(Failure::failed("DPDK's TAP driver is not installed: apt install librte-net-tap23"));
    }
    if interface_exists(ifname) {
        return Err(Failure::failed(format!(
            "an interface {ifname} is there already: choose another with `device = tap:NAME`, \
             or remove it (ip link del {ifname})"
        )));
    }
    Ok(())
}

/// A driver among DPDK's plug-ins, wherever the distribution has put them.
fn driver_plugin(name: &str) -> Option<PathBuf> {
    let roots =
        ["/usr/lib/*", "/usr/lib64", "/usr/lib", "/usr/local/lib/*", "/usr/local/lib64", "/usr/local/lib"];
    roots.iter().find_map(|root| glob::glob(&format!("{root}/dpdk/pmds-*/{name}*")).ok()?.flatten().next())
}

/// Asked of the kernel, because `/sys/class/net` shows the namespace in which `/sys` was mounted.
fn interface_exists(ifname: &str) -> bool {
    nix::net::if_::if_nametoindex(ifname).is_ok()
}

fn interface(ifname: &str) -> Result<(), Failure> {
    if interface_exists(ifname) {
        return Ok(());
    }
    Err(Failure::failed(format!("there is no interface {ifname}: ip link shows those that are there")))
}

fn pci(address: &str) -> Result<(), Failure> {
    let device = Path::new("/sys/bus/pci/devices").join(address);
    if device.exists() {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "there is no PCI device {address}: dpdk-devbind.py --status shows those there are"
    )))
}

/// Two nginx with one pid file would each stop the other's.
pub fn pid_file(path: &Path, conf: &Path) -> Result<(), Failure> {
    let pid = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u32>().ok());
    match pid.and_then(|pid| processes::stat(pid).map(|stat| (pid, stat))) {
        Some((pid, stat)) if stat.name == "nginx" => Err(Failure {
            code: ALREADY_RUNNING,
            sentence: format!(
                "the pid file {} belongs to an nginx that runs (process {pid}): give this one its own \
                 with `pid` in {}",
                path.display(),
                conf.display()
            ),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
