//! `ffctl`: the commands a person types.

fn main() {}
