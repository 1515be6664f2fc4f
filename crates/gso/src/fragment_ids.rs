//! IDs of the IP fragments that are made here.

/// A series of IDs for IP fragments.
///
/// One that was [made](Self::new) from a secret cannot be foreseen by others (RFC 7739). All 2^32 come
/// before one comes again, and of the lower halves, which are all that IPv4 has room for, all 2^16. One
/// that was made from an ID has that one first, and then counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentIds {
    secret: Option<u64>,
    count: u32,
}

impl From<u32> for FragmentIds {
    fn from(first: u32) -> FragmentIds {
        FragmentIds { secret: None, count: first }
    }
}

impl FragmentIds {
    /// `secret` is what makes the series its own.
    pub const fn new(secret: u64) -> FragmentIds {
        FragmentIds { secret: Some(secret), count: 0 }
    }

    /// Leaves out the next `by`: those that a
    /// [segmenter](crate::Segmenter::fragment_ids) has used.
    #[inline]
    pub fn advance(&mut self, by: u32) {
        self.count = self.count.wrapping_add(by);
    }

    /// The ID that comes after `n` others.
    #[inline]
    pub fn nth(&self, n: u32) -> u32 {
        let count = self.count.wrapping_add(n);
        let Some(secret) = self.secret else { return count };
        let [low, high] = [count as u16, (count >> 16) as u16];
        let low = mix(secret, low, 0);
        // Whatever is added to it, the upper half stays one of its own for each lower half.
        let high = mix(secret, high ^ mix(secret, low, 32), 16);
        u32::from(high) << 16 | u32::from(low)
    }
}

/// Another number for each number: each step can be undone.
fn mix(secret: u64, number: u16, at: u32) -> u16 {
    let [a, b, c, d] = [0, 16, 32, 48].map(|by| secret.rotate_left(at + by) as u16);
    let mut x = number.wrapping_add(a).wrapping_mul(b | 1);
    x ^= x >> 7;
    x = x.wrapping_mul(c | 1);
    x ^= x >> 9;
    x = x.wrapping_mul(b | 1) ^ d;
    x ^ (x >> 8)
}
