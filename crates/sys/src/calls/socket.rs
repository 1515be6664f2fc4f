//! Calls that make, change and end sockets.

use std::net::SocketAddr;
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::{Answer, answer, error, fd};

/// A stream socket of this family (`AF_INET6` and others).
///
/// # Errors
/// errno(3).
pub fn socket(family: i32) -> Answer<OwnedFd> {
    // SAFETY: it takes integers.
    owned(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })
}

fn owned(fd: libc::c_int) -> Answer<OwnedFd> {
    if fd < 0 {
        return Err(error());
    }
    // SAFETY: a call has just made this descriptor, which nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A name as the kernel has it, and its length. An address of IPv4 is that of a socket of its own family.
fn name_of(address: SocketAddr) -> (libc::sockaddr_in6, libc::socklen_t) {
    // SAFETY: integers only, for which zeros are valid.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V6(address) => {
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_port = address.port().to_be();
            name.sin6_addr.s6_addr = address.ip().octets();
            (name, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
        SocketAddr::V4(address) => {
            // The first eight bytes of sockaddr_in: family, port, address.
            name.sin6_family = libc::AF_INET as libc::sa_family_t;
            name.sin6_port = address.port().to_be();
            name.sin6_flowinfo = u32::from_ne_bytes(address.ip().octets());
            (name, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
    }
}

/// bind(2).
///
/// # Errors
/// errno(3).
pub fn bind(of: impl AsFd, to: SocketAddr) -> Answer {
    let (name, len) = name_of(to);
    // SAFETY: `name` is readable for its length.
    answer(unsafe { libc::bind(fd(of), (&raw const name).cast(), len) })
}

/// listen(2).
///
/// # Errors
/// errno(3).
pub fn listen(of: impl AsFd, backlog: i32) -> Answer {
    // SAFETY: it takes integers.
    answer(unsafe { libc::listen(fd(of), backlog) })
}

/// accept(2).
///
/// # Errors
/// errno(3).
pub fn accept(of: impl AsFd) -> Answer<OwnedFd> {
    // SAFETY: no name is asked for.
    owned(unsafe { libc::accept(fd(of), null_mut(), null_mut()) })
}

type Syscall = unsafe extern "C" fn(libc::c_long, ...) -> libc::c_long;

/// syscall(2) of libc itself: a library in front of libc has one of its own.
fn past() -> Syscall {
    static SYSCALL: OnceLock<Syscall> = OnceLock::new();
    *SYSCALL.get_or_init(|| {
        // SAFETY: both names end with a zero; libc, if it is found, stays loaded.
        let own = unsafe {
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if libc.is_null() { libc } else { libc::dlsym(libc, c"syscall".as_ptr()) }
        };
        // SAFETY: the function of that name has this type, for which null is none.
        let own = unsafe { std::mem::transmute::<*mut libc::c_void, Option<Syscall>>(own) };
        own.unwrap_or(libc::syscall)
    })
}

/// accept(2) past libc: a library in front of that knows nothing of the descriptor.
///
/// # Errors
/// errno(3).
pub fn accept_past(of: impl AsFd) -> Answer<OwnedFd> {
    let none = null_mut::<u8>();
    // SAFETY: no name is asked for.
    owned(unsafe { past()(libc::SYS_accept4, fd(of), none, none, 0) } as libc::c_int)
}

/// connect(2).
///
/// # Errors
/// errno(3).
pub fn connect(of: impl AsFd, to: SocketAddr) -> Answer {
    let (name, len) = name_of(to);
    // SAFETY: `name` is readable for its length.
    answer(unsafe { libc::connect(fd(of), (&raw const name).cast(), len) })
}

/// connect(2) past libc: a library in front of that knows nothing of the connection.
///
/// # Errors
/// errno(3).
pub fn connect_past(of: impl AsFd, to: SocketAddr) -> Answer {
    let (name, len) = name_of(to);
    // SAFETY: `name` is readable for its length.
    answer(unsafe { past()(libc::SYS_connect, fd(of), &raw const name, len) } as isize)
}

/// connect(2) past libc to nothing (`AF_UNSPEC`): the socket is unconnected then, and with `SO_LINGER` of no time its
/// peer is told so by a reset.
///
/// # Errors
/// errno(3).
pub fn disconnect(of: impl AsFd) -> Answer {
    // SAFETY: integers only, for which zeros are valid; AF_UNSPEC is zero.
    let name: libc::sockaddr = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::sockaddr>();
    // SAFETY: `name` is readable for its length.
    answer(unsafe { past()(libc::SYS_connect, fd(of), &raw const name, len) } as isize)
}

fn named(
    of: impl AsFd,
    call: unsafe extern "C" fn(
        libc::c_int,
        *mut libc::sockaddr,
        *mut libc::socklen_t,
    ) -> libc::c_int,
) -> Answer<(SocketAddr, u32)> {
    // SAFETY: integers only, for which zeros are valid.
    let mut name: libc::sockaddr_in6 = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    // SAFETY: `name` is writable for its length; both functions are of this type.
    answer(unsafe { call(fd(of), (&raw mut name).cast(), &raw mut len) })?;
    let port = u16::from_be(name.sin6_port);
    let address = if libc::c_int::from(name.sin6_family) == libc::AF_INET6 {
        SocketAddr::from((name.sin6_addr.s6_addr, port))
    } else {
        SocketAddr::from((name.sin6_flowinfo.to_ne_bytes(), port))
    };
    Ok((address, len))
}

/// getsockname(2): the name of a socket of IPv4 or IPv6, and its length.
///
/// # Errors
/// errno(3).
pub fn socket_name(of: impl AsFd) -> Answer<(SocketAddr, u32)> {
    named(of, libc::getsockname)
}

/// getpeername(2): the name of a socket of IPv4 or IPv6, and its length.
///
/// # Errors
/// errno(3).
pub fn peer_name(of: impl AsFd) -> Answer<(SocketAddr, u32)> {
    named(of, libc::getpeername)
}

/// shutdown(2).
///
/// # Errors
/// errno(3).
pub fn shutdown(of: impl AsFd, how: i32) -> Answer {
    // SAFETY: it takes integers.
    answer(unsafe { libc::shutdown(fd(of), how) })
}

/// close(2).
///
/// # Errors
/// errno(3).
pub fn close(of: OwnedFd) -> Answer {
    // SAFETY: it is owned, and nobody's from now on.
    answer(unsafe { libc::close(of.into_raw_fd()) })
}

/// dup(2).
///
/// # Errors
/// errno(3).
pub fn dup(of: impl AsFd) -> Answer<OwnedFd> {
    // SAFETY: it takes an integer.
    owned(unsafe { libc::dup(fd(of)) })
}

/// dup2(2) onto a descriptor, which is another's from then on.
///
/// # Errors
/// errno(3).
pub fn dup_onto(of: impl AsFd, onto: &OwnedFd) -> Answer {
    // SAFETY: it takes integers, and the number stays the owner's.
    answer(unsafe { libc::dup2(fd(of), fd(onto)) })
}

/// The same by dup3(2), closed on exec.
///
/// # Errors
/// errno(3).
pub fn dup_onto_for_exec(of: impl AsFd, onto: &OwnedFd) -> Answer {
    // SAFETY: it takes integers, and the number stays the owner's.
    answer(unsafe { libc::dup3(fd(of), fd(onto), libc::O_CLOEXEC) })
}

/// dup(2) by fcntl(2), closed on exec: a descriptor that is at least this one.
///
/// # Errors
/// errno(3).
pub fn dup_from(of: impl AsFd, least: i32) -> Answer<OwnedFd> {
    // SAFETY: the command takes an integer.
    owned(unsafe { libc::fcntl(fd(of), libc::F_DUPFD_CLOEXEC, least) })
}

/// fcntl(2) of a command that takes a number and duplicates nothing.
///
/// # Errors
/// errno(3).
pub fn fcntl(of: impl AsFd, command: i32, argument: i32) -> Answer {
    assert!(command == libc::F_GETFL || command == libc::F_SETFL || command == libc::F_GETFD);
    // SAFETY: these commands take integers.
    answer(unsafe { libc::fcntl(fd(of), command, argument) })
}

/// ioctl(2) of a request that gives an int, such as `FIONREAD`.
///
/// # Errors
/// errno(3).
pub fn ioctl(of: impl AsFd, request: u64) -> Answer<i32> {
    let mut value: [libc::c_int; 16] = [0; 16];
    // SAFETY: those of sockets write less than so many bytes.
    answer(unsafe { libc::ioctl(fd(of), request as libc::Ioctl, &raw mut value) })?;
    Ok(value[0])
}

/// ioctl(2) of a request that takes an int, such as `FIONBIO`.
///
/// # Errors
/// errno(3).
pub fn set_ioctl(of: impl AsFd, request: u64, value: i32) -> Answer {
    // SAFETY: the kernel reads an int.
    answer(unsafe { libc::ioctl(fd(of), request as libc::Ioctl, &raw const value) })
}

/// getsockopt(2) with so much room: what it has written.
///
/// # Errors
/// errno(3).
pub fn option(of: impl AsFd, level: i32, name: i32, room: usize) -> Answer<Vec<u8>> {
    let mut value = vec![0; room];
    let mut len = room as libc::socklen_t;
    // SAFETY: `value` is writable for its length.
    answer(unsafe {
        libc::getsockopt(fd(of), level, name, value.as_mut_ptr().cast(), &raw mut len)
    })?;
    value.truncate(len as usize);
    Ok(value)
}

/// setsockopt(2).
///
/// # Errors
/// errno(3).
pub fn set_option(of: impl AsFd, level: i32, name: i32, value: &[u8]) -> Answer {
    let len = value.len() as libc::socklen_t;
    // SAFETY: `value` is readable for its length.
    answer(unsafe { libc::setsockopt(fd(of), level, name, value.as_ptr().cast(), len) })
}
