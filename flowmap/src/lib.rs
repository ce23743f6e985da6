//! Tables in shared memory: region header, TCP flows, UDP publish table, neighbours. Pure code over bytes.

mod key;

pub use key::{FlowIndex, FlowKey, FlowRef, HashKey, HeapIndex, TableFull};
