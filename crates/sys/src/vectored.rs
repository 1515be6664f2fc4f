//! Calls that read or write a file at an offset, in parts (preadv(2)).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Most parts of one call.
pub const PARTS_MAX: usize = 64;

/// Reads what is at this offset into places of the buffer, (begin, length) each, one behind the other. Returns how many
/// bytes.
///
/// # Errors
/// What preadv says, for no byte read. `InvalidInput` for places outside the buffer, or more than [`PARTS_MAX`].
pub(crate) fn read(
    file: &File,
    at: u64,
    buffer: &mut [u8],
    places: &[(usize, usize)],
) -> io::Result<usize> {
    let (parts, count) = parts(places, |(begin, len): (usize, usize)| {
        let part = buffer.get_mut(begin..begin.checked_add(len)?)?;
        Some((part.as_mut_ptr(), part.len()))
    })?;
    let at = offset(at)?;
    // SAFETY: each part lies within `buffer`, which nothing else reads meanwhile.
    let read = unsafe { libc::preadv(file.as_raw_fd(), parts.as_ptr(), count, at) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Stores these one behind the other from this offset on, but not more than `most` bytes. Returns how many.
///
/// # Errors
/// What pwritev says, for no byte written. `InvalidInput` for more than [`PARTS_MAX`].
pub(crate) fn write(file: &File, at: u64, bytes: &[&[u8]], most: u64) -> io::Result<usize> {
    let mut left = usize::try_from(most).unwrap_or(usize::MAX);
    let (parts, count) = parts(bytes, |bytes: &[u8]| {
        let len = bytes.len().min(left);
        left -= len;
        Some((bytes.as_ptr().cast_mut(), len))
    })?;
    let at = offset(at)?;
    // SAFETY: the parts are readable, and the kernel only reads them.
    let written = unsafe { libc::pwritev(file.as_raw_fd(), parts.as_ptr(), count, at) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

fn offset(at: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(at).map_err(|_| io::ErrorKind::InvalidInput.into())
}

type Parts = [libc::iovec; PARTS_MAX];

fn parts<T: Copy>(
    of: &[T],
    mut part: impl FnMut(T) -> Option<(*mut u8, usize)>,
) -> io::Result<(Parts, libc::c_int)> {
    let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut parts = [none; PARTS_MAX];
    if of.len() > PARTS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, of) in parts.iter_mut().zip(of) {
        let (start, len) = part(*of).ok_or(io::ErrorKind::InvalidInput)?;
        *to = libc::iovec { iov_base: start.cast(), iov_len: len };
    }
    Ok((parts, of.len() as libc::c_int))
}
