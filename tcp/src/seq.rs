//! Sequence numbers: modulo 2^32, compared by signed difference (RFC 9293,
//! section 3.4).

/// A TCP sequence number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// `self + n`.
    #[inline]
    pub const fn add(self, n: u32) -> Seq {
        Seq(self.0.wrapping_add(n))
    }

    /// `self - n`.
    #[inline]
    pub const fn sub(self, n: u32) -> Seq {
        Seq(self.0.wrapping_sub(n))
    }

    /// Signed distance from `other` to `self`.
    #[inline]
    pub const fn diff(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Distance from `earlier` to `self`; 0 if `earlier` lies ahead.
    #[inline]
    pub const fn since(self, earlier: Seq) -> u32 {
        let d = self.diff(earlier);
        if d < 0 { 0 } else { d as u32 }
    }

    /// `self < other`.
    #[inline]
    pub const fn lt(self, other: Seq) -> bool {
        self.diff(other) < 0
    }

    /// `self <= other`.
    #[inline]
    pub const fn le(self, other: Seq) -> bool {
        self.diff(other) <= 0
    }

    /// `self > other`.
    #[inline]
    pub const fn gt(self, other: Seq) -> bool {
        self.diff(other) > 0
    }

    /// `self >= other`.
    #[inline]
    pub const fn ge(self, other: Seq) -> bool {
        self.diff(other) >= 0
    }

    /// The later of the two.
    #[inline]
    pub const fn max(self, other: Seq) -> Seq {
        if self.ge(other) { self } else { other }
    }

    /// The earlier of the two.
    #[inline]
    pub const fn min(self, other: Seq) -> Seq {
        if self.le(other) { self } else { other }
    }
}
