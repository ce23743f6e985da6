//! A TCP engine for servers, sans-IO and deterministic.
