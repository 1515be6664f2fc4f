//! Protection domains, memory regions and windows.

use libc::{c_int, c_uint, c_void, size_t};
use rdma::session::Request;
use rdma::session::message::RegisterRequest;

use crate::abi::*;
use crate::objects::{ask, ends, number, session};
use crate::os::{self, none};
use crate::shared;

/// Rights for which pages must be writable.
const WRITES: c_uint = 1 | 1 << 1 | 1 << 3;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    match ask(&Request::AllocPd(number(context))) {
        Ok(reply) => Box::into_raw(Box::new(ibv_pd { context, handle: reply.words[0] as u32 })),
        Err(error) => none(error),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    ends(&Request::DeallocPd((*pd).handle), pd)
}

unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let session = match session() {
        Ok(session) => session,
        Err(error) => return none(error),
    };
    // Before pages are brought in, which takes as much memory.
    if length as u64 > session.device.limits.registered {
        return none(libc::ENOMEM);
    }
    // Registering brings pages in, as it does where they are pinned.
    if let Err(error) = os::populate(addr, length, access & WRITES != 0) {
        return none(error);
    }
    let (start, len) = (addr.expose_provenance() as u64, length as u64);
    // It opens and reads files, by calls in which a thread may be cancelled.
    let found = os::uncancelled(|| shared::file(start, len, access & WRITES != 0));
    let (file, offset) = found.unzip();
    let pd_number = (*pd).handle;
    let request = RegisterRequest { pd: pd_number, access, addr: start, len, iova, file: offset };
    match session.ask_with(&Request::Register(request), file) {
        Ok(reply) => {
            let key = reply.words[0] as u32;
            let (context, handle, lkey, rkey) = ((*pd).context, key, key, key);
            Box::into_raw(Box::new(ibv_mr { context, pd, addr, length, handle, lkey, rkey }))
        }
        Err(error) => none(error),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    register(pd, addr, length, addr.addr() as u64, access as c_uint)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    register(pd, addr, length, iova, access as c_uint)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    register(pd, addr, length, iova, access)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    ends(&Request::Deregister((*mr).handle), mr)
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, type_: c_int) -> *mut ibv_mw {
    const TYPE_1: c_int = 1;
    const TYPE_2: c_int = 2;
    if ![TYPE_1, TYPE_2].contains(&type_) {
        return none(libc::EINVAL);
    }
    let (pd_number, is_type_2) = ((*pd).handle, type_ == TYPE_2);
    match ask(&Request::AllocWindow { pd: pd_number, is_type_2 }) {
        Ok(reply) => {
            let rkey = reply.words[0] as u32;
            let (context, handle) = ((*pd).context, rkey);
            Box::into_raw(Box::new(ibv_mw { context, pd, rkey, handle, type_ }))
        }
        Err(error) => none(error),
    }
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    ends(&Request::DeallocWindow((*mw).rkey), mw)
}
