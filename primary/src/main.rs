//! The resident primary: owns ports and shared memory, moves no packet.
fn main() {}
