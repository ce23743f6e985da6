//! A smoltcp socket as the peer: follows.
