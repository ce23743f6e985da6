//! Load generator over the in-memory wire.
fn main() {}
