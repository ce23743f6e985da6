//! What a run that was interrupted left behind, and its removal.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::names::RUN_PREFIX;
use crate::{netns, proc, run};

/// Directories in which names of a run appear.
const PLACES: [&str; 7] =
    ["/run/netns", "/run/ffstack", "/run", "/run/dpdk", "/dev/hugepages", "/tmp", "/sys/class/net"];

/// Removes everything of runs whose harness no longer lives. Returns their names.
pub fn remove_all(ffctl: &Path) -> Vec<String> {
    let mut stems = BTreeSet::new();
    for place in PLACES {
        for name in names_in(place) {
            if let Some(pid) = pid_of(&name)
                && !is_harness(pid)
            {
                stems.insert(format!("{RUN_PREFIX}{pid}"));
            }
        }
    }
    for stem in &stems {
        remove_run(ffctl, stem);
    }
    stems.into_iter().collect()
}

/// Whether a harness of ours lives under that pid; another program may have got the number since.
fn is_harness(pid: u32) -> bool {
    proc::alive(pid) && proc::program(pid).is_some_and(|program| program.starts_with("ff-"))
}

/// Removes everything of one run; used at the end of the own run as well.
pub fn remove_run(ffctl: &Path, stem: &str) {
    let of_run = |name: &String| pid_of(name) == stem[RUN_PREFIX.len()..].parse().ok();
    // The product's own way first, then by force.
    for name in names_in("/run/ffstack").into_iter().filter(of_run) {
        let mut stop = Command::new(ffctl);
        stop.args(["stop", "--now", "-i", &name]);
        let _ = run(stop, Duration::from_secs(30));
    }
    for name in names_in("/run/netns").into_iter().filter(of_run) {
        netns::remove(&name);
    }
    for name in names_in("/sys/class/net").into_iter().filter(of_run) {
        let _ = netns::ip(&["link", "del", &name]);
    }
    for place in ["/run/ffstack", "/run", "/run/dpdk", "/dev/hugepages", "/tmp"] {
        for name in names_in(place).into_iter().filter(of_run) {
            let path = Path::new(place).join(name);
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
}

/// What of a run is still there, as paths.
pub fn remains(stem: &str) -> Vec<String> {
    PLACES
        .iter()
        .filter(|place| **place != "/tmp")
        .flat_map(|place| names_in(place).into_iter().map(move |name| format!("{place}/{name}")))
        .filter(|path| path.rsplit('/').next().is_some_and(|name| name.contains(stem)))
        .collect()
}

fn names_in(place: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(place) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The pid in a name like `ffit1234a`, `ffstack_ffit1234a` or `ffit1234`.
fn pid_of(name: &str) -> Option<u32> {
    let at = name.find(RUN_PREFIX)? + RUN_PREFIX.len();
    let digits: String = name[at..].chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::pid_of;

    #[test]
    fn the_pid_is_found_in_every_kind_of_name() {
        assert_eq!(pid_of("ffit1234a"), Some(1234));
        assert_eq!(pid_of("ffstack_ffit77bmap_0"), Some(77));
        assert_eq!(pid_of("ffit9"), Some(9));
        assert_eq!(pid_of("ffclient"), None);
        assert_eq!(pid_of("ffitems"), None);
    }
}
