//! Calls that move bytes.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::ptr::null_mut;

use super::{Answer, answer, fd};

/// What recvmsg(2) says beside its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Message {
    /// Bytes.
    pub len: usize,
    /// `msg_flags`.
    pub flags: i32,
    /// `msg_namelen`, of room for a name.
    pub name_len: u32,
    /// `msg_controllen`, of room for control messages.
    pub control_len: usize,
}

/// Room for control messages of a received message, aligned as `cmsghdr` is.
type Control = [u64; 32];

/// read(2).
///
/// # Errors
/// errno(3).
pub fn read(of: impl AsFd, into: &mut [u8]) -> Answer {
    // SAFETY: `into` is writable for its length.
    answer(unsafe { libc::read(fd(of), into.as_mut_ptr().cast(), into.len()) })
}

/// write(2).
///
/// # Errors
/// errno(3).
pub fn write(of: impl AsFd, from: &[u8]) -> Answer {
    // SAFETY: `from` is readable for its length.
    answer(unsafe { libc::write(fd(of), from.as_ptr().cast(), from.len()) })
}

/// readv(2).
///
/// # Errors
/// errno(3).
pub fn readv(of: impl AsFd, into: &mut [IoSliceMut<'_>]) -> Answer {
    let count = into.len() as libc::c_int;
    // SAFETY: IoSliceMut is an iovec, and each is writable.
    answer(unsafe { libc::readv(fd(of), into.as_mut_ptr().cast(), count) })
}

/// writev(2).
///
/// # Errors
/// errno(3).
pub fn writev(of: impl AsFd, from: &[IoSlice<'_>]) -> Answer {
    // SAFETY: IoSlice is an iovec, and each is readable.
    answer(unsafe { libc::writev(fd(of), from.as_ptr().cast(), from.len() as libc::c_int) })
}

/// recv(2).
///
/// # Errors
/// errno(3).
pub fn receive(of: impl AsFd, into: &mut [u8], flags: i32) -> Answer {
    // SAFETY: `into` is writable for its length.
    answer(unsafe { libc::recv(fd(of), into.as_mut_ptr().cast(), into.len(), flags) })
}

/// recvfrom(2), and the length of the name that it gives.
///
/// # Errors
/// errno(3).
pub fn receive_from(of: impl AsFd, into: &mut [u8], flags: i32) -> Answer<(usize, u32)> {
    // SAFETY: integers only, for which zeros are valid.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    // SAFETY: `into` and `name` are writable for their lengths.
    let result = unsafe {
        let at = (&raw mut name).cast();
        libc::recvfrom(fd(of), into.as_mut_ptr().cast(), into.len(), flags, at, &raw mut len)
    };
    answer(result).map(|count| (count, len))
}

/// send(2).
///
/// # Errors
/// errno(3).
pub fn send(of: impl AsFd, from: &[u8], flags: i32) -> Answer {
    // SAFETY: `from` is readable for its length.
    answer(unsafe { libc::send(fd(of), from.as_ptr().cast(), from.len(), flags) })
}

/// sendto(2) with a name of zeros.
///
/// # Errors
/// errno(3).
pub fn send_to(of: impl AsFd, from: &[u8], flags: i32) -> Answer {
    // SAFETY: integers only, for which zeros are valid.
    let name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: `from` and `name` are readable for their lengths.
    answer(unsafe {
        let at = (&raw const name).cast();
        libc::sendto(fd(of), from.as_ptr().cast(), from.len(), flags, at, len)
    })
}

/// A header for these parts, with room for a name and control messages if there is any.
fn header(
    parts: *mut libc::iovec,
    count: usize,
    room: Option<(&mut libc::sockaddr_storage, &mut Control)>,
) -> libc::msghdr {
    // SAFETY: pointers and integers, for which zeros are valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (parts, count);
    if let Some((name, control)) = room {
        header.msg_name = std::ptr::from_mut(name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of::<Control>();
    }
    header
}

/// recvmsg(2), with or without room for a name and for control messages.
///
/// # Errors
/// errno(3).
pub fn receive_message(
    of: impl AsFd,
    into: &mut [IoSliceMut<'_>],
    flags: i32,
    has_room: bool,
) -> Answer<Message> {
    let mut control = Control::default();
    // SAFETY: integers only, for which zeros are valid.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let room = has_room.then_some((&mut name, &mut control));
    let mut header = header(into.as_mut_ptr().cast(), into.len(), room);
    // SAFETY: `header` names live memory of its lengths; IoSliceMut is an iovec.
    let len = answer(unsafe { libc::recvmsg(fd(of), &raw mut header, flags) })?;
    let (name_len, control_len) = (header.msg_namelen, header.msg_controllen);
    Ok(Message { len, flags: header.msg_flags, name_len, control_len })
}

/// sendmsg(2).
///
/// # Errors
/// errno(3).
pub fn send_message(of: impl AsFd, from: &[IoSlice<'_>], flags: i32) -> Answer {
    let header = header(from.as_ptr().cast_mut().cast(), from.len(), None);
    // SAFETY: `header` names live memory of its lengths, which is not written; IoSlice is an iovec.
    answer(unsafe { libc::sendmsg(fd(of), &raw const header, flags) })
}

/// recvmmsg(2) into a message for each piece: the bytes of each message.
///
/// # Errors
/// errno(3).
pub fn receive_messages(
    of: impl AsFd,
    into: &mut [IoSliceMut<'_>],
    flags: i32,
) -> Answer<Vec<u32>> {
    let mut all: Vec<libc::mmsghdr> = into
        .iter_mut()
        .map(|piece| libc::mmsghdr {
            msg_hdr: header(std::ptr::from_mut(piece).cast(), 1, None),
            msg_len: 0,
        })
        .collect();
    let count = all.len() as libc::c_uint;
    // SAFETY: each header names live memory of its lengths; IoSliceMut is an iovec.
    let result = unsafe { libc::recvmmsg(fd(of), all.as_mut_ptr(), count, flags, null_mut()) };
    answer(result).map(|count| all[..count].iter().map(|message| message.msg_len).collect())
}

/// sendmmsg(2) of a message for each piece: the bytes of each message.
///
/// # Errors
/// errno(3).
pub fn send_messages(of: impl AsFd, from: &[IoSlice<'_>], flags: i32) -> Answer<Vec<u32>> {
    let mut all: Vec<libc::mmsghdr> = from
        .iter()
        .map(|piece| libc::mmsghdr {
            msg_hdr: header(std::ptr::from_ref(piece).cast_mut().cast(), 1, None),
            msg_len: 0,
        })
        .collect();
    let count = all.len() as libc::c_uint;
    // SAFETY: each header names live memory of its lengths, which is not written; IoSlice is an iovec.
    let result = unsafe { libc::sendmmsg(fd(of), all.as_mut_ptr(), count, flags) };
    answer(result).map(|count| all[..count].iter().map(|message| message.msg_len).collect())
}

/// sendfile(2), from a place or from where the file is.
///
/// # Errors
/// errno(3).
pub fn send_file(to: impl AsFd, file: impl AsFd, at: Option<&mut i64>, count: usize) -> Answer {
    let at = at.map_or(null_mut(), std::ptr::from_mut);
    // SAFETY: `at` is null or writable.
    answer(unsafe { libc::sendfile(fd(to), fd(file), at, count) })
}

/// splice(2) without places.
///
/// # Errors
/// errno(3).
pub fn splice(from: impl AsFd, to: impl AsFd, count: usize, flags: u32) -> Answer {
    // SAFETY: no place is given.
    answer(unsafe { libc::splice(fd(from), null_mut(), fd(to), null_mut(), count, flags) })
}

const _: () = assert!(size_of::<IoSlice<'_>>() == size_of::<libc::iovec>());
