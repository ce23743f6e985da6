//! epoll and sockets under the library behave as on the kernel: one program, two runs, the same transcript.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ff_harness::{ensure, run};

use crate::case::{Case, Outcome, Size};
use crate::lab::Lab;

pub fn cases() -> Vec<Case> {
    vec![
        Case::own("cf01", "epoll and socket options: the same transcript as on the kernel", transcripts)
            .main()
            .within_s(240),
    ]
}

fn transcripts(lab: &mut Lab, _: Size) -> Outcome {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("epoll_conformance/run");
    let mut command = Command::new(script);
    command.arg(&lab.binaries.dir).arg(lab.device.name());
    let out = run(command, Duration::from_secs(220))?;
    ensure!(out.success(), "exit code {}:\n{}", out.code(), out.all());
    Ok(out.stdout.trim().replace('\n', "; "))
}
