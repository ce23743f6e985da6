//! Scripts against one engine: follows.
