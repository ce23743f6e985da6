//! What an idle instance costs, and what waking it costs.

use std::thread;
use std::time::{Duration, Instant};

use ff_harness::http::Connection;
use ff_harness::{Context, Failure, Instance, ensure, proc};

use crate::case::{Case, Outcome, Size};

pub fn cases() -> Vec<Case> {
    vec![
        Case::client("id01", "an idle worker uses at most 3 % of a CPU", idle_cpu).main(),
        Case::client("id02", "the first request after a sleep is not much slower", first_request),
    ]
}

fn idle_cpu(instance: &Instance, size: Size) -> Outcome {
    // Whatever the last case left is to end first.
    thread::sleep(Duration::from_secs(1));
    let workers = instance.worker_pids();
    ensure!(workers.len() == instance.spec.workers, "{} workers run", workers.len());
    let used = |pids: &[u32]| -> Option<Duration> { pids.iter().map(|pid| proc::cpu_time(*pid)).sum() };
    let before = used(&workers).doing("a worker is gone")?;
    let start = Instant::now();
    thread::sleep(Duration::from_secs(size.pick(4, 20)));
    let after = used(&workers).doing("a worker is gone")?;
    let share = (after - before).as_secs_f64() / start.elapsed().as_secs_f64() / workers.len() as f64;
    ensure!(share <= 0.03, "an idle worker uses {:.1} % of a CPU", share * 100.0);
    Ok(format!("{:.2} % each", share * 100.0))
}

fn first_request(instance: &Instance, _: Size) -> Outcome {
    let mut connection = Connection::open(instance.addr(false, 80))?;
    let median = |connection: &mut Connection, pause: Duration| -> Result<Duration, Failure> {
        let mut times = Vec::new();
        for _ in 0..50 {
            thread::sleep(pause);
            let start = Instant::now();
            connection.get("/hello")?;
            connection.response()?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    };
    let busy = median(&mut connection, Duration::ZERO)?;
    let rested = median(&mut connection, Duration::from_millis(20))?;
    // The client sleeps too and pays for its own waking; the bound here is for a machine shared with others.
    ensure!(rested < busy + Duration::from_micros(400), "median {rested:?} after a sleep, {busy:?} without");
    Ok(format!("median {rested:?} after 20 ms of sleep, {busy:?} back to back"))
}
