//! libff_nginx.so: stock nginx on the data plane by preloading.
//!
//! The library takes the place of the C library's socket, epoll and process calls ([`hooks`]). A lock-free table
//! says whose a descriptor is ([`table`]); what is not ours goes straight through. Without an instance in the
//! environment nothing is ours and the library is inert.
//!
//! - In nginx's master, bind and listen are recorded ([`description`]), and a new binary gets them handed on
//!   ([`master`]). Nothing of DPDK runs there. After a HUP, the QUITs for its old workers are held back ([`batch`]).
//! - A worker attaches to the primary when it gives up root ([`attach`]): it gets its place, starts DPDK as a
//!   secondary, opens the inherited listeners in its own stack, and says READY.
//! - From then on the stack runs inside the worker's waits ([`waiting`], [`epoll`]).
//! - At its end a worker delivers what it owes ([`exit`]).

mod address;
mod attach;
mod batch;
mod calls;
mod children;
mod clock;
mod description;
mod environment;
mod epoll;
mod exit;
mod failure;
mod hooks;
mod log;
mod master;
mod options;
mod placeholders;
mod process;
mod real;
mod signals;
mod stack;
mod start;
mod table;
mod waiting;
