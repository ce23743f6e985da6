//! The one safe layer over DPDK: EAL, port, mempool, mbuf, ring, memzone.
//!
//! Nothing above this crate names `ff-dpdk-sys`. Handles are plain pointers into hugepages that stay mapped
//! for the life of the process, so they are `Copy` and carry no lifetime; an [`Eal`] value proves that EAL
//! was initialised. What the compiler cannot prove is in few `unsafe` functions, each with its conditions:
//! that a queue or one end of a ring has one user among all processes, and that a process whose packet
//! memory is taken back is dead.
//!
//! # Packet memory survives `kill -9`
//! Pools are lock-free stacks (`lf_stack`): a process killed inside one blocks nobody. Every mbuf carries
//! the tag of the process that holds it ([`owner`]), from the moment it is received or allocated until it
//! is freed, sent, or put on a ring. DPDK's own per-lcore caches are off; a private cache of tagged mbufs
//! does their work ([`mbuf`]). So what a dead process held is found by its tag, and [`Mempool::recover`]
//! also finds what was between two hands.

pub mod eal;
mod errno;
pub mod instance;
pub mod mbuf;
pub mod mempool;
pub mod memzone;
pub mod names;
pub mod owner;
pub mod port;
mod prefetch;
pub mod ring;
pub mod tap;

pub use eal::{Eal, ProcessType};
pub use errno::Errno;
pub use mbuf::Mbuf;
pub use mempool::Mempool;
pub use memzone::Memzone;
pub use port::{EthDev, RxQueue, TxQueue};
pub use ring::{Ring, RingConsumer, RingProducer};
