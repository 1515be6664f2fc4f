//! Bytes of the program's that a call reads or writes, in parts as of readv(2). Nothing is allocated for them, as a handler
//! of a signal may make such a call in the middle of malloc(3).

use libc::iovec;

use crate::os;

/// Parts that are named to the kernel at once where it is given not all of them.
const AT_ONCE: usize = 64;

/// Parts, of which the first bytes are passed over, and no more than so many are meant.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    all: &'a [iovec],
    skip: usize,
    most: usize,
}

impl<'a> Parts<'a> {
    /// All of these.
    ///
    /// # Safety
    /// Each is memory that may be read, and if it is for a call that receives, be written.
    pub(crate) unsafe fn new(all: &'a [iovec]) -> Self {
        Parts { all, skip: 0, most: usize::MAX }
    }

    /// Without the first bytes.
    pub(crate) fn behind(self, skip: usize) -> Self {
        Parts { skip: self.skip + skip, most: self.most.saturating_sub(skip), ..self }
    }

    /// Of them, at most so many.
    pub(crate) fn limited(self, most: usize) -> Self {
        Parts { most: self.most.min(most), ..self }
    }

    /// How many bytes.
    pub(crate) fn len(self) -> usize {
        match self.all {
            [only] => only.iov_len.saturating_sub(self.skip).min(self.most),
            _ => self.places().fold(0, |all, part| all.saturating_add(part.iov_len)),
        }
    }

    /// Whether the first is nowhere (EFAULT).
    pub(crate) fn begin_nowhere(self) -> bool {
        self.places().next().is_some_and(|part| part.iov_base.is_null())
    }

    /// Where they are.
    fn places(self) -> impl Iterator<Item = iovec> + 'a {
        let (mut skip, mut most) = (self.skip, self.most);
        self.all.iter().filter_map(move |part| {
            let at = skip.min(part.iov_len);
            skip -= at;
            let iov_len = (part.iov_len - at).min(most);
            most -= iov_len;
            let iov_base = part.iov_base.wrapping_byte_add(at);
            (iov_len > 0).then_some(iovec { iov_base, iov_len })
        })
    }

    /// The same up to the first that is nowhere: what is behind it is not moved, as by the kernel.
    fn known_places(self) -> impl Iterator<Item = iovec> + 'a {
        self.places().take_while(|part| !part.iov_base.is_null())
    }

    /// The bytes, to be read.
    pub(crate) fn bytes(self) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: the promise of `new`.
        self.known_places().map(|part| unsafe { os::bytes(part.iov_base, part.iov_len) })
    }

    /// The bytes, to be written.
    ///
    /// # Safety
    /// They are those of a call that receives.
    pub(crate) unsafe fn bytes_mut(self) -> impl Iterator<Item = &'a mut [u8]> {
        // SAFETY: the caller's promise, and that of `new`.
        self.known_places().map(|part| unsafe { os::bytes_mut(part.iov_base, part.iov_len) })
    }

    /// Where they are, as the kernel is told; of many parts that are not whole, the first.
    pub(crate) fn with<R>(self, call: impl FnOnce(&[iovec]) -> R) -> R {
        if self.skip == 0 && self.most == usize::MAX {
            return call(self.all);
        }
        let mut room = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; AT_ONCE];
        let mut count = 0;
        for (place, part) in room.iter_mut().zip(self.places()) {
            *place = part;
            count += 1;
        }
        call(&room[..count])
    }
}
