//! `scripts/bench stack`: the stack alone, in memory. Two programs do the measuring, each a crate's own example; this
//! puts their figures together and lays them beside the bars.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ff_harness::{Binaries, Context, Failure, ensure, run};
use serde_json::{Value, json};

use crate::report::Bar;

/// Longest that one of the programs may take.
const LIMIT: Duration = Duration::from_secs(900);

/// What was measured: the keys of the engine's benchmark, and `stack_requests` for the whole worker.
pub struct Figures(Value);

/// Runs both programs.
///
/// # Errors
/// A program is missing, or what it printed.
pub fn measure(binaries: &Binaries, quick: bool) -> Result<Figures, Failure> {
    let examples = binaries.dir.join("examples");
    let quick = if quick { &["--quick"][..] } else { &[] };
    let mut figures = program(&examples.join("stack_bench"), quick)?;
    let mut stack = program(&examples.join("request_cost"), &[])?;
    let object = figures.as_object_mut().doing("stack_bench printed no object")?;
    object.insert("benchmark".into(), json!("stack"));
    object.insert("stack_requests".into(), stack["requests"].take());
    let mut figures = Figures(figures);
    let bars = figures.bars();
    figures.0["bars"] = json!(bars);
    Ok(figures)
}

fn program(path: &Path, arguments: &[&str]) -> Result<Value, Failure> {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(path).arg("--json").args(arguments);
    let out = run(command, LIMIT)?;
    ensure!(out.success(), "{}: {}", path.display(), out.all());
    serde_json::from_str(out.stdout.trim())
        .map_err(|error| Failure(format!("{} printed no JSON: {error}", path.display())))
}

impl Figures {
    /// For programs.
    pub fn json(&self) -> String {
        self.0.to_string()
    }

    /// Figure `key` of the row for `flows` in the list `list`.
    fn row(&self, list: &str, flows: u64, key: &str) -> Option<f64> {
        let rows = self.0[list].as_array()?;
        rows.iter().find(|row| row["flows"] == flows)?[key].as_f64()
    }

    fn figure(&self, key: &str) -> f64 {
        self.0[key].as_f64().unwrap_or(f64::NAN)
    }

    /// The bars of the specification; a figure that is missing is not a number, and not met.
    fn bars(&self) -> Vec<Bar> {
        let of = |list, flows, key| self.row(list, flows, key).unwrap_or(f64::NAN);
        let at_most =
            |name: &str, value: f64, bar: f64| Bar { name: name.to_owned(), value, bar, met: value <= bar };
        let at_least =
            |name: &str, value: f64, bar: f64| Bar { name: name.to_owned(), value, bar, met: value >= bar };
        let against_smoltcp =
            |flows| of("requests", flows, "engine_ns") / of("requests", flows, "smoltcp_ns");
        let growth = |list, key| of(list, 100_000, key) / of(list, 1, key);
        vec![
            at_most("engine, 1 000 flows, in parts of smoltcp's cost", against_smoltcp(1_000), 0.6),
            at_most("engine, 100 000 flows, in parts of smoltcp's cost", against_smoltcp(100_000), 0.6),
            at_most("engine, 100 000 flows, times 1 flow", growth("requests", "engine_ns"), 2.5),
            at_most("whole stack, 100 000 flows, times 1 flow", growth("stack_requests", "stack_ns"), 3.0),
            at_least("bulk over one flow, Gbit/s", self.figure("bulk_gbit_s"), 20.0),
            at_least("new connections a second", self.figure("connections_per_s"), 500_000.0),
            at_most("bytes of an idle connection", self.figure("idle_bytes_per_connection"), 2_048.0),
        ]
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text =
            format!("{:>8} {:>10} {:>11} {:>15}\n", "flows", "engine ns", "smoltcp ns", "whole stack ns");
        for flows in [1, 1_000, 100_000] {
            let of = |list, key| self.row(list, flows, key).unwrap_or(f64::NAN);
            let _ = writeln!(
                text,
                "{flows:>8} {:>10.0} {:>11.0} {:>15.0}",
                of("requests", "engine_ns"),
                of("requests", "smoltcp_ns"),
                of("stack_requests", "stack_ns")
            );
        }
        text.push_str("100 B in, 600 B out, server side; engine and smoltcp without IP and checksums.\n\n");
        for (name, key) in [
            ("bulk, both ends on this core, Gbit/s", "bulk_gbit_s"),
            ("bulk, sender alone, Gbit/s", "bulk_sender_gbit_s"),
            ("bulk, receiver alone, Gbit/s", "bulk_receiver_gbit_s"),
            ("bulk with TSO, Gbit/s", "bulk_tso_gbit_s"),
            ("connections a second", "connections_per_s"),
            ("bytes of an idle connection", "idle_bytes_per_connection"),
        ] {
            let _ = writeln!(text, "{name}: {:.1}", self.figure(key));
        }
        text.push('\n');
        for bar in self.bars() {
            let _ = writeln!(text, "{bar}");
        }
        text
    }
}
