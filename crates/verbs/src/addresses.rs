//! Addresses: those of sockets, and `rdma_getaddrinfo`.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr::null_mut;

use libc::{c_char, c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::abi_cm::rdma_addrinfo;
use crate::identifiers::PS_TCP;
use crate::os::{self, fails};

/// The address of a program's; `None` for none, or of another family.
pub(crate) unsafe fn read(at: *const sockaddr) -> Option<SocketAddr> {
    if at.is_null() {
        return None;
    }
    match c_int::from((*at).sa_family) {
        libc::AF_INET => {
            let of = at.cast::<sockaddr_in>().read_unaligned();
            let ip = Ipv4Addr::from(of.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(of.sin_port)).into())
        }
        libc::AF_INET6 => {
            let of = at.cast::<sockaddr_in6>().read_unaligned();
            let ip = Ipv6Addr::from(of.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(of.sin6_port), 0, of.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// As the program sees it.
pub(crate) unsafe fn write(to: *mut sockaddr_storage, address: SocketAddr) {
    *to = std::mem::zeroed();
    match address {
        SocketAddr::V4(of) => {
            let to = &mut *to.cast::<sockaddr_in>();
            to.sin_family = libc::AF_INET as libc::sa_family_t;
            to.sin_port = of.port().to_be();
            to.sin_addr.s_addr = u32::from_ne_bytes(of.ip().octets());
        }
        SocketAddr::V6(of) => {
            let to = &mut *to.cast::<sockaddr_in6>();
            to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            to.sin6_port = of.port().to_be();
            to.sin6_addr.s6_addr = of.ip().octets();
            to.sin6_scope_id = of.scope_id();
        }
    }
}

pub(crate) const PASSIVE: c_int = 1;
const NUMERIC_HOST: c_int = 2;
const RC: c_int = 2;
/// Addresses of InfiniBand, which getaddrinfo(3) has none of.
const AF_IB: c_int = 27;

/// A copy of an address, to be freed with free(3).
unsafe fn copy(from: *const sockaddr, len: socklen_t) -> *mut sockaddr {
    if from.is_null() || len == 0 {
        return null_mut();
    }
    let to = libc::calloc(1, size_of::<sockaddr_storage>()).cast::<sockaddr>();
    if !to.is_null() {
        let len = (len as usize).min(size_of::<sockaddr_storage>());
        to.cast::<u8>().copy_from_nonoverlapping(from.cast(), len);
    }
    to
}

/// What the hints say of a name: addresses of sockets that getaddrinfo(3) finds.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
    info: &mut rdma_addrinfo,
) -> c_int {
    let with = |bit: c_int, flag: c_int| if hints.ai_flags & bit != 0 { flag } else { 0 };
    let mut wanted: libc::addrinfo = std::mem::zeroed();
    wanted.ai_flags = with(PASSIVE, libc::AI_PASSIVE) | with(NUMERIC_HOST, libc::AI_NUMERICHOST);
    wanted.ai_socktype = libc::SOCK_STREAM;
    wanted.ai_family = if hints.ai_family == AF_IB { 0 } else { hints.ai_family };
    let mut found = null_mut();
    let error =
        os::uncancelled(|| libc::getaddrinfo(node, service, &raw const wanted, &raw mut found));
    if error != 0 {
        // As rdma-core has it: the error of getaddrinfo(3).
        return error;
    }
    let (address, len) = ((*found).ai_addr, (*found).ai_addrlen);
    info.ai_family = (*found).ai_family;
    if hints.ai_flags & PASSIVE != 0 {
        (info.ai_src_addr, info.ai_src_len) = (copy(address, len), len);
    } else {
        (info.ai_dst_addr, info.ai_dst_len) = (copy(address, len), len);
    }
    libc::freeaddrinfo(found);
    0
}

/// One answer: `rdma_getaddrinfo` of rdma-core has no more for addresses of IP. Without a name it is what the hints have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    if node.is_null() && service.is_null() && hints.is_null() {
        return fails(libc::EINVAL);
    }
    // SAFETY: all-zero is a valid rdma_addrinfo: without hints there is none.
    let nothing: rdma_addrinfo = std::mem::zeroed();
    let hints = hints.as_ref().unwrap_or(&nothing);
    let info = libc::calloc(1, size_of::<rdma_addrinfo>()).cast::<rdma_addrinfo>();
    if info.is_null() {
        return fails(libc::ENOMEM);
    }
    let of = &mut *info;
    of.ai_flags = hints.ai_flags;
    of.ai_qp_type = if hints.ai_qp_type == 0 { RC } else { hints.ai_qp_type };
    of.ai_port_space = if hints.ai_port_space == 0 { PS_TCP } else { hints.ai_port_space };
    if node.is_null() && service.is_null() {
        of.ai_family = hints.ai_family;
        of.ai_dst_addr = copy(hints.ai_dst_addr, hints.ai_dst_len);
        of.ai_dst_len = hints.ai_dst_len;
    } else {
        let error = look_up(node, service, hints, of);
        if error != 0 {
            libc::free(info.cast());
            return error;
        }
    }
    if of.ai_src_len == 0 {
        of.ai_src_addr = copy(hints.ai_src_addr, hints.ai_src_len);
        of.ai_src_len = hints.ai_src_len;
    }
    *res = info;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_freeaddrinfo(mut info: *mut rdma_addrinfo) {
    while !info.is_null() {
        let next = (*info).ai_next;
        libc::free((*info).ai_src_addr.cast());
        libc::free((*info).ai_dst_addr.cast());
        libc::free(info.cast());
        info = next;
    }
}
