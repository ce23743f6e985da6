//! The TCP engine behind packetdrill's shared-object interface (`--so_filename`).
//!
//! packetdrill (github.com/google/packetdrill) runs a script of system calls and packets against a stack and
//! compares each result, each outgoing packet and its time with what the script says. A shared object takes the
//! kernel's place: it serves the calls, takes the packets, gives the packets that leave, and owns the clock. The
//! clock here is virtual: a script that lasts ten seconds runs in none, and a timer fires at exactly its time.
//!
//! `docs/packetdrill.md` says how the public scripts are run with it.

// The C boundary is one file; nothing else may.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod abi;
mod address;
mod calls;
mod frames;
mod options;
mod poll;
mod settings;
mod tcp_info;
#[cfg(test)]
mod tests;
mod world;
