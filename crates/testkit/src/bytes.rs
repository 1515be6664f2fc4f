//! Bytes that decide what a test does: those of a fuzzer, or of proptest.

/// The bytes that are left, with zeros behind their end.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    #[expect(clippy::should_implement_trait, reason = "it never ends, so nothing to iterate over")]
    pub fn next(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// The next bytes, with zeros behind the end.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.take(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// So many bytes, or all that are left.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// One of these values, chosen by the next byte.
    ///
    /// If `of` is empty.
    /// If there are none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.next()) % of.len()]
    }
}
