//! Raw bindings to the installed libdpdk.
//!
//! Generated at build time by bindgen from `wrapper.h`; the functions named `ff_*` are DPDK's static
//! inlines and structure accesses, compiled from `inlined.c`. Only `ff-dpdk` uses this crate: everything
//! here is unsafe in the way that DPDK's own documentation says.
#![no_std]
#![allow(missing_docs, non_camel_case_types, non_upper_case_globals, non_snake_case)]
#![allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
