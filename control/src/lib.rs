//! The control protocol between ffctl, the primary and the workers, and the status document.
