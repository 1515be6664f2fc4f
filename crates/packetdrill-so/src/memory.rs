//! C's memory as slices, and addresses as C writes them.

use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{iovec, sockaddr, socklen_t};
use packetdrill::sockets::Errno;

/// What a function of C returns: a number, or -1 and an errno.
pub(crate) fn answer(result: Result<i64, Errno>) -> i64 {
    match result {
        Ok(value) => value,
        Err(Errno(number)) => {
            // SAFETY: the address of the calling thread's errno is valid as long as the thread.
            unsafe { *libc::__errno_location() = number };
            -1
        }
    }
}

/// Bytes to read. Empty for a null pointer.
///
/// # Safety
/// `data` is null or points to `len` bytes that are initialized and stay as they are for `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// Writes `from` to `to`, of which `len` bytes are there; gives how many were written.
///
/// # Safety
/// `to` is null or points to `len` bytes that may be written.
pub(crate) unsafe fn put(to: *mut c_void, len: usize, from: &[u8]) -> usize {
    let count = len.min(from.len());
    if to.is_null() || count == 0 {
        return 0;
    }
    // SAFETY: `count` is at most `len`, and memory of ours does not overlap the caller's.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.cast::<u8>(), count) };
    count
}

/// Pieces of memory.
///
/// # Safety
/// `vector` is null or points to `count` pieces that are initialized.
pub(crate) unsafe fn pieces<'a>(vector: *const iovec, count: usize) -> &'a [iovec] {
    if vector.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(vector, count) }
}

/// All bytes of some pieces.
///
/// # Safety
/// Each piece is as [`bytes`] asks.
pub(crate) unsafe fn gather(pieces: &[iovec]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        // SAFETY: as the caller promises.
        out.extend_from_slice(unsafe { bytes(piece.iov_base, piece.iov_len) });
    }
    out
}

/// Spreads bytes over pieces.
///
/// # Safety
/// Each piece is as [`put`] asks.
pub(crate) unsafe fn scatter(pieces: &[iovec], mut from: &[u8]) {
    for piece in pieces {
        // SAFETY: as the caller promises.
        let count = unsafe { put(piece.iov_base, piece.iov_len, from) };
        from = &from[count..];
    }
}

/// An address that C has written; `None` for AF_UNSPEC.
///
/// # Safety
/// `address` points to `len` bytes that are initialized.
pub(crate) unsafe fn socket_address(
    address: *const sockaddr,
    len: socklen_t,
) -> Result<Option<SocketAddr>, Errno> {
    // SAFETY: as the caller promises.
    let bytes = unsafe { bytes(address.cast(), len as usize) };
    let two = |at: usize| bytes.get(at..at + 2).and_then(|two| <[u8; 2]>::try_from(two).ok());
    let family = two(0).map(u16::from_ne_bytes).ok_or(Errno(libc::EINVAL))?;
    if i32::from(family) == libc::AF_UNSPEC {
        return Ok(None);
    }
    let port = two(2).map(u16::from_be_bytes).ok_or(Errno(libc::EINVAL))?;
    let part = |from: usize, to: usize| bytes.get(from..to).ok_or(Errno(libc::EINVAL));
    let ip = match i32::from(family) {
        libc::AF_INET => {
            let octets = <[u8; 4]>::try_from(part(4, 8)?).map_err(|_| Errno(libc::EINVAL))?;
            IpAddr::from(Ipv4Addr::from(octets))
        }
        libc::AF_INET6 => {
            let octets = <[u8; 16]>::try_from(part(8, 24)?).map_err(|_| Errno(libc::EINVAL))?;
            IpAddr::from(Ipv6Addr::from(octets))
        }
        _ => return Err(Errno(libc::EAFNOSUPPORT)),
    };
    Ok(Some(SocketAddr::new(ip, port)))
}

/// Writes an address as C reads it, cut to the room there is.
///
/// # Safety
/// `to` and `len` are null, or `len` points to the number of bytes that may be written at `to`.
pub(crate) unsafe fn put_address(to: *mut sockaddr, len: *mut socklen_t, address: SocketAddr) {
    if to.is_null() || len.is_null() {
        return;
    }
    let mut out = Vec::new();
    match address.ip() {
        IpAddr::V4(ip) => {
            out.extend((libc::AF_INET as u16).to_ne_bytes());
            out.extend(address.port().to_be_bytes());
            out.extend(ip.octets());
            out.extend([0; 8]);
        }
        IpAddr::V6(ip) => {
            out.extend((libc::AF_INET6 as u16).to_ne_bytes());
            out.extend(address.port().to_be_bytes());
            out.extend([0; 4]);
            out.extend(ip.octets());
            out.extend([0; 4]);
        }
    }
    // SAFETY: as the caller promises.
    unsafe {
        put(to.cast(), *len as usize, &out);
        *len = out.len() as socklen_t;
    }
}
