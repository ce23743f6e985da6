//! `ffctl status`: asked from the primary, or read from shared memory when it is dead.

mod region;
mod table;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ff_control::{
    Connection, ControlError, InstancePaths, InstanceRecord, PrimaryStatus, ProcessId, Reply, Request, Status,
};

use crate::exit::{FAILED, Failure, NOT_RUNNING};
use crate::teardown;

/// The primary is never busy for long.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// Shows what instance `name` does.
pub fn run(name: &str, json: bool) -> Result<(), Failure> {
    let paths = InstancePaths::of_instance(name);
    let (status, complaint) = match ask(&paths) {
        Ok(status) => (status, None),
        Err(error @ ControlError::Permission { .. }) => return Err(Failure::failed(error.to_string())),
        Err(error) => {
            let record = InstanceRecord::load(&paths).map_err(|error| Failure::failed(error.to_string()))?;
            let Some(record) = record else {
                let sentence = ControlError::NotRunning { instance: name.to_owned() }.to_string();
                return Err(Failure { code: NOT_RUNNING, sentence });
            };
            let status = without_primary(&record)?;
            let complaint = match status.primary.alive {
                true => error.to_string(),
                false => dead(&record, &status),
            };
            (status, Some(Failure { code: FAILED, sentence: complaint }))
        }
    };
    if json {
        let text = serde_json::to_string_pretty(&status)
            .map_err(|error| Failure::failed(format!("the status cannot be printed: {error}")))?;
        println!("{text}");
    } else {
        print!("{}", table::text(&status));
    }
    complaint.map_or(Ok(()), Err)
}

fn ask(paths: &InstancePaths) -> Result<Status, ControlError> {
    let mut primary = Connection::connect(&paths.control_socket(), ANSWER_LIMIT)?;
    match primary.call(&Request::Status, ANSWER_LIMIT)? {
        Reply::Status(status) => Ok(*status),
        _ => Err(ControlError::Closed),
    }
}

fn dead(record: &InstanceRecord, status: &Status) -> String {
    let serving =
        status.generations.iter().flat_map(|generation| &generation.workers).any(|worker| worker.ready);
    let name = &record.instance;
    match (serving, teardown::nginx_processes(record).len()) {
        (true, _) => format!(
            "the primary of instance `{name}` is dead; its workers go on serving, but one that dies cannot come \
             back and nothing can be reloaded: ffctl stop -i {name}, then start it again"
        ),
        (false, 0) => {
            format!("instance `{name}` has crashed: ffctl stop -i {name} takes away what it has left")
        }
        (false, _) => format!(
            "the primary of instance `{name}` is dead and no worker is ready: ffctl stop -i {name}, then start it \
             again"
        ),
    }
}

/// What can be told without the primary: from the record and, where they are still there, from the words.
fn without_primary(record: &InstanceRecord) -> Result<Status, Failure> {
    let since_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let mut status = Status {
        instance: record.instance.clone(),
        primary: PrimaryStatus {
            pid: record.primary.map_or(0, |id| id.pid),
            alive: record.primary.is_some_and(|id| id.is_alive()),
            uptime_s: since_s.saturating_sub(record.started_unix_s),
            device: record.device.clone(),
            device_digest: String::new(),
            queues: record.workers,
        },
        active: None,
        generations: Vec::new(),
        attach_failures: 0,
        last_attach_failure: None,
        reload: None,
        last_reload: None,
        reloads: 0,
    };
    region::read(&record.region_path, |instance, now_us| {
        let directory = instance.directory();
        let is_alive = |pid| ProcessId::of(pid).is_some();
        (status.active, status.generations) = ff_control::generations_of(&directory, now_us, is_alive);
        status.primary.device_digest = format!("{:016x}", directory.instance().device_digest());
    })?;
    Ok(status)
}
