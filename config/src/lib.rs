//! f-stack.conf: text to findings, typed configuration and device digest.
