//! A load generator: an HTTP/1.1 client that opens connections, asks, checks every byte of the answers, and says how
//! fast that went.
//!
//! What is asked and checked is pure and does no I/O: [`request`], [`response`], [`expectation`], [`conversation`],
//! [`schedule`], [`statistics`]. The [`Driver`](driver::Driver) joins it to a [`Network`](network::Network), which is
//! our own stack as a client over any packet I/O; [`wire`] is the client's end of the in-memory wire.

pub mod addresses;
pub mod arguments;
pub mod attach;
pub mod conversation;
pub mod driver;
pub mod expectation;
pub mod failure;
pub mod network;
pub mod report;
pub mod request;
pub mod response;
pub mod schedule;
pub mod statistics;
pub mod url;
pub mod wire;
