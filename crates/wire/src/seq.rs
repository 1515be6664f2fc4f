//! TCP sequence numbers.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A TCP sequence or acknowledgment number: a point on a circle of 2^32 (RFC 9293 section 3.4).
///
/// There is no `Ord`: modulo 2^32, no number is the smallest. [`Seq::before`] and [`Seq::after`] compare
/// within half the sequence space, as in RFC 9293; timestamps (RFC 7323 section 5.2) compare in the same way
/// and use this type, too.
///
/// ```
/// use wire::Seq;
/// let last = Seq(u32::MAX);
/// assert!(last.before(last + 1));
/// assert_eq!((last + 2) - last, 2);
/// assert_eq!(last.max(last + 1), Seq(0));
/// assert_eq!(last.min(last + 1), last);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Seq(pub u32);

impl Seq {
    /// Whether `self` is strictly before `other`, by less than 2^31.
    #[inline]
    pub const fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether `self` is strictly after `other`, by less than 2^31.
    #[inline]
    pub const fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// The earlier of the two. As for [`Seq::before`], they must be less than 2^31 apart.
    #[inline]
    #[must_use]
    pub const fn min(self, other: Seq) -> Seq {
        if self.before(other) { self } else { other }
    }

    /// The later of the two. As for [`Seq::before`], they must be less than 2^31 apart.
    #[inline]
    #[must_use]
    pub const fn max(self, other: Seq) -> Seq {
        if self.after(other) { self } else { other }
    }

    /// The signed distance from `other` to `self`, in bytes.
    #[inline]
    pub const fn distance(self, other: Seq) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    #[inline]
    fn add(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for Seq {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub for Seq {
    type Output = u32;
    /// The bytes from `other` forward to `self`, mod 2^32.
    #[inline]
    fn sub(self, other: Seq) -> u32 {
        self.0.wrapping_sub(other.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
