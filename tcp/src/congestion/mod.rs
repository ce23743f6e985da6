//! Congestion control behind one small interface.

/// Which congestion control a connection uses (TCP_CONGESTION).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and 6582.
    NewReno,
}
