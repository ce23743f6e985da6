//! Runs the cases, prints a line for each, and cleans up.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ff_harness::{Binaries, Device, Failure, Instance, RUN_PREFIX, leftovers, run_directory};

use crate::Args;
use crate::case::{Case, Outcome, Run, Size};
use crate::cases;
use crate::lab::Lab;

#[derive(Default)]
struct Tally {
    passed: u32,
    failed: Vec<String>,
}

/// What ended a case.
enum End {
    Done(Outcome),
    /// It ran past its limit and its thread cannot be ended: the harness has to.
    Stuck,
}

/// Runs what the arguments choose.
pub fn run(args: &Args) -> ExitCode {
    let binaries = match Binaries::beside_harness() {
        Ok(binaries) => binaries,
        Err(failure) => {
            eprintln!("ff-integration: {failure}");
            return ExitCode::FAILURE;
        }
    };
    for stem in leftovers::remove_all(&binaries.ffctl()) {
        println!("removed what the interrupted run {stem} left");
    }
    let start = Instant::now();
    let mut tally = Tally::default();
    let devices = args.server.map_or(vec![Device::Tap, Device::AfPacket], |device| vec![device]);
    let mut sound = true;
    for device in devices {
        // On af_packet the main cases alone, unless it was asked for by name.
        let chosen: Vec<Case> = cases::all()
            .into_iter()
            .filter(|case| {
                args.filter.is_empty() || args.filter.iter().any(|piece| case.name.contains(piece))
            })
            .filter(|case| device.ours() || !case.ours_only)
            .filter(|case| device != Device::AfPacket || case.main)
            .collect();
        sound = run_device(device, chosen, Size { soak: args.soak }, &binaries, &mut tally);
        if !sound {
            break;
        }
    }
    let stem = format!("{RUN_PREFIX}{}", std::process::id());
    leftovers::remove_run(&binaries.ffctl(), &stem);
    let remains = leftovers::remains(&stem);
    let _ = std::fs::remove_dir_all(run_directory());
    if !remains.is_empty() {
        println!("FAILED  cleanup: {} is still there", remains.join(", "));
        tally.failed.push("cleanup".into());
    }
    for name in &tally.failed {
        println!("failed: {name}");
    }
    println!("{:.1} s", start.elapsed().as_secs_f64());
    println!("{} passed, {} failed", tally.passed, tally.failed.len());
    if sound && tally.failed.is_empty() && tally.passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `false` when a stuck case makes it impossible to go on.
fn run_device(device: Device, chosen: Vec<Case>, size: Size, binaries: &Binaries, tally: &mut Tally) -> bool {
    let mut lab = Lab::new(device, binaries.clone());
    let mut shared: Option<Arc<Instance>> = None;
    let (clients, own): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|case| matches!(case.run, Run::Client(_)));
    for case in clients {
        let Run::Client(work) = case.run else { continue };
        let instance = match shared.take() {
            Some(instance) => instance,
            None => match lab.start(lab.spec()) {
                Ok(instance) => Arc::new(instance),
                Err(failure) => {
                    report(&case, device, Duration::ZERO, Err(failure), tally);
                    continue;
                }
            },
        };
        let start = Instant::now();
        let inside = Arc::clone(&instance);
        let end = bounded(case.limit, move || {
            inside.client.enter()?;
            work(&inside, size)
        });
        let End::Done(outcome) = end else {
            report(&case, device, start.elapsed(), Err(stuck(&case, &instance)), tally);
            return false;
        };
        let failed = outcome.is_err();
        let outcome = outcome.map_err(|failure| Failure(format!("{failure}\n{}", instance.log_tails())));
        report(&case, device, start.elapsed(), outcome, tally);
        // A failure may leave the instance unwell; the next case deserves a sound one.
        if !failed || instance.wait_answer().is_ok() {
            shared = Some(instance);
        }
    }
    drop(shared);
    let lab = Arc::new(std::sync::Mutex::new(lab));
    for case in own {
        let Run::Own(work) = case.run else { continue };
        let start = Instant::now();
        let lab = Arc::clone(&lab);
        let end = bounded(case.limit, move || {
            let mut lab = lab.lock().map_err(|_| "an earlier case panicked inside the lab")?;
            catch_unwind(AssertUnwindSafe(|| work(&mut lab, size)))
                .unwrap_or_else(|_| Err("the case panicked".into()))
        });
        match end {
            End::Done(outcome) => report(&case, device, start.elapsed(), outcome, tally),
            End::Stuck => {
                let failure = Failure(format!("did not end within {:?}", case.limit));
                report(&case, device, start.elapsed(), Err(failure), tally);
                return false;
            }
        }
    }
    true
}

/// Runs the work on a thread of its own, at most for `limit`.
fn bounded(limit: Duration, work: impl FnOnce() -> Outcome + Send + 'static) -> End {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || {
        let outcome =
            catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err("the case panicked".into()));
        // The receiver is gone only after a time-out, which has been reported.
        let _ = send.send(outcome);
    });
    match receive.recv_timeout(limit) {
        Ok(outcome) => {
            let _ = thread.join();
            End::Done(outcome)
        }
        Err(_) => End::Stuck,
    }
}

fn stuck(case: &Case, instance: &Instance) -> Failure {
    Failure(format!("did not end within {:?}\n{}", case.limit, instance.log_tails()))
}

fn report(case: &Case, device: Device, elapsed: Duration, outcome: Outcome, tally: &mut Tally) {
    let head = format!("{:<6} {:<9}", case.name, device.name());
    let time = format!("{:>7.2} s", elapsed.as_secs_f64());
    match outcome {
        Ok(note) if note.is_empty() => println!("{head} ok     {time}  {}", case.what),
        Ok(note) => println!("{head} ok     {time}  {} ({note})", case.what),
        Err(failure) => {
            println!("{head} FAILED {time}  {}\n  {failure}", case.what);
            tally.failed.push(format!("{} {}", case.name, device.name()));
            return;
        }
    }
    tally.passed += 1;
}
