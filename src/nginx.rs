//! nginx as a program: its own check of its configuration, and what of it decides how it is started.

mod dump;
mod test;

pub use dump::WorkerProcesses;
pub use test::{NginxProgram, Tested};
