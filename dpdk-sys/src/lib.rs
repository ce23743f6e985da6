//! Raw bindings to the installed libdpdk.
