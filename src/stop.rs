//! `ffctl stop`: nginx first, then the primary, then what a crash has left.

use ff_control::{InstancePaths, InstanceRecord};

use crate::exit::{Failure, NOT_RUNNING};
use crate::processes;
use crate::remains;
use crate::teardown::{self, Ended, Manner, counted};

/// Ends instance `name`, also when parts of it are dead already.
pub fn run(name: &str, now: bool) -> Result<(), Failure> {
    require_root("stop an instance")?;
    let paths = InstancePaths::of_instance(name);
    if !paths.dir.exists() {
        return Err(nothing_runs(name));
    }
    let holders = processes::holders(&paths.lock());
    let holder_named = |program: &str| {
        holders.iter().copied().find(|id| processes::stat(id.pid).is_some_and(|stat| stat.name == program))
    };
    if let Some(id) = holder_named("ffctl") {
        let sentence =
            format!("instance `{name}` is being started by process {id}: wait, or interrupt that one");
        return Err(Failure::failed(sentence));
    }
    let record = InstanceRecord::load(&paths).map_err(|error| Failure::failed(error.to_string()))?;
    let Some(mut record) = record else {
        // A start that was killed before it had begun anything.
        remains::remove_empty(name, &paths)?;
        return Err(nothing_runs(name));
    };
    // A start that was killed may not have come to write down whom it had started.
    record.primary = record.primary.or_else(|| holder_named("ff-primary"));
    let manner = if now { Manner::Now } else { Manner::Graceful };
    let ended = teardown::run(&record, manner, None, &mut |line| eprintln!("ffctl: {line}"))?;
    println!("{}", summary(name, &ended));
    Ok(())
}

/// Fails unless this runs as root.
pub fn require_root(what: &str) -> Result<(), Failure> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::failed(format!("root is needed to {what}: run this with sudo")))
}

fn nothing_runs(name: &str) -> Failure {
    Failure { code: NOT_RUNNING, sentence: format!("no instance `{name}` is running, nothing to stop") }
}

fn summary(name: &str, ended: &Ended) -> String {
    let mut done = Vec::new();
    match (ended.nginx, ended.nginx_killed) {
        (0, _) => done.push("nginx was dead already".to_owned()),
        (all, 0) => done.push(format!("{} ended", counted(all, "nginx process", "nginx processes"))),
        (all, killed) => done.push(format!(
            "{} ended, {killed} of them killed",
            counted(all, "nginx process", "nginx processes")
        )),
    }
    done.push(
        match (ended.primary, ended.primary_killed) {
            (false, _) => "the primary was dead already",
            (true, false) => "the primary ended",
            (true, true) => "the primary had to be killed",
        }
        .to_owned(),
    );
    if !ended.primary || ended.primary_killed {
        done.push(format!("{} removed", counted(ended.removed, "file it had left", "files it had left")));
    }
    format!("instance `{name}` stopped: {}", done.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_was_done() {
        let whole = Ended { nginx: 3, primary: true, removed: 2, ..Ended::default() };
        assert_eq!(summary("a", &whole), "instance `a` stopped: 3 nginx processes ended, the primary ended");
        let crashed = Ended { nginx: 1, nginx_killed: 1, removed: 7, ..Ended::default() };
        assert_eq!(
            summary("a", &crashed),
            "instance `a` stopped: 1 nginx process ended, 1 of them killed, the primary was dead already, \
             7 files it had left removed"
        );
        let stuck = Ended { primary: true, primary_killed: true, removed: 1, ..Ended::default() };
        assert_eq!(
            summary("a", &stuck),
            "instance `a` stopped: nginx was dead already, the primary had to be killed, 1 file it had left removed"
        );
    }
}
