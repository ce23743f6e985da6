use std::process::{Command, Stdio};

use super::*;

/// Ends the child whatever the test does.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeper(stdin: Stdio) -> Child {
    Child(Command::new("sleep").arg("60").stdin(stdin).stdout(Stdio::null()).spawn().unwrap())
}

#[test]
fn a_holder_is_found_by_the_file_and_ended_by_its_pidfd() {
    let dir = std::env::temp_dir().join(format!("ffctl-holders-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("nginx.members");
    fs::write(&path, "").unwrap();
    let mut held = sleeper(Stdio::from(fs::File::open(&path).unwrap()));
    let other = sleeper(Stdio::null());

    let found = holders(&path);
    assert_eq!(found.iter().map(|id| id.pid).collect::<Vec<_>>(), [held.0.id()]);
    // A file of the same name that is not the same file.
    let double = dir.join("double");
    fs::create_dir_all(&double).unwrap();
    fs::write(double.join("nginx.members"), "").unwrap();
    assert!(holders(&double.join("nginx.members")).is_empty());
    assert!(holders(&dir.join("absent")).is_empty());

    let process = Process::open(found[0]).unwrap();
    assert!(!process.ended_within(Duration::ZERO));
    assert!(Process::open(ProcessId { start_ticks: found[0].start_ticks + 1, ..found[0] }).is_none());
    process.signal(Signal::TERM);
    assert!(process.ended_within(Duration::from_secs(10)));
    // Not reaped yet, and still it counts as dead.
    assert!(holders(&path).is_empty() && Process::open(found[0]).is_none());
    held.0.wait().unwrap();
    process.signal(Signal::KILL);

    let living = vec![Process::open(ProcessId::of(other.0.id()).unwrap()).unwrap()];
    assert_eq!(wait_all(living, Duration::from_millis(10)).len(), 1);
    drop(other);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_mapper_is_found_by_the_whole_path() {
    // Every process maps its own program.
    let child = sleeper(Stdio::null());
    let program = fs::read_link(format!("/proc/{}/exe", child.0.id())).unwrap();
    assert!(mappers(&program).iter().any(|id| id.pid == child.0.id()));
    let tail = Path::new(program.file_name().unwrap());
    assert!(!mappers(tail).iter().any(|id| id.pid == child.0.id()));
}
