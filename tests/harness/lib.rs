//! The fixture that the integration cases and the benchmarks share: network namespaces, an instance that is
//! started by the real `ffctl`, a site for nginx, clients, and what a process costs according to `/proc`.
//!
//! Everything that a run makes carries the run's name (`ffit<pid>`), so that the next run can remove what an
//! interrupted one left behind ([`leftovers`]). All traffic stays inside namespaces that the run made.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod command;
mod failure;
pub mod http;
mod instance;
pub mod leftovers;
mod names;
mod netns;
pub mod pattern;
pub mod proc;
mod site;
mod upstream;

pub use command::{Output, run, run_in};
pub use failure::{Context, Failure};
pub use instance::{Binaries, Device, Instance, Spec};
pub use names::{Names, RUN_PREFIX, run_directory};
pub use netns::Netns;
pub use site::{GIB, KIB, MIB, Site};
pub use upstream::Upstream;
