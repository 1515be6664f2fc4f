//! `ibv_wr_*`: work that is built in calls, and posted when it is complete.
//!
//! A program holds the queue from `ibv_wr_start` to `ibv_wr_complete` or `ibv_wr_abort`. Meanwhile requests are kept as
//! those of `ibv_post_send` would be.

use std::sync::atomic::Ordering;

use libc::{c_int, c_void, size_t};

use crate::abi::*;
use crate::posting::{self, INLINE, opcode};
use crate::work_queues::{Building, QueuePair, of};

/// `ibv_qp_create_send_ops_flags` that are served: all but sends with immediate data, TSO and atomic writes.
pub(crate) const OPERATIONS: u64 = 0b11_1111_0111;

/// The functions.
pub(crate) fn put(base: &mut ibv_qp_ex) {
    base.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    base.wr_atomic_fetch_add = Some(atomic_fetch_add);
    base.wr_bind_mw = Some(bind_mw);
    base.wr_local_inv = Some(local_inv);
    base.wr_rdma_read = Some(rdma_read);
    base.wr_rdma_write = Some(rdma_write);
    base.wr_rdma_write_imm = Some(rdma_write_imm);
    base.wr_send = Some(send);
    base.wr_send_imm = Some(send_imm);
    base.wr_send_inv = Some(send_inv);
    base.wr_set_inline_data = Some(set_inline_data);
    base.wr_set_inline_data_list = Some(set_inline_data_list);
    base.wr_set_sge = Some(set_sge);
    base.wr_set_sge_list = Some(set_sge_list);
    base.wr_start = Some(start);
    base.wr_complete = Some(complete);
    base.wr_abort = Some(abort);
}

fn own(qp: *mut ibv_qp_ex) -> *mut QueuePair {
    of(qp.cast())
}

unsafe extern "C" fn start(qp: *mut ibv_qp_ex) {
    let build = &raw mut (*own(qp)).build;
    while (*build).is_held.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    (*build).error = 0;
    (*build).requests.clear();
}

unsafe fn begin(qp: *mut ibv_qp_ex, opcode: c_int, with: impl FnOnce(&mut ibv_send_wr)) {
    let mut wr: ibv_send_wr = std::mem::zeroed();
    (wr.wr_id, wr.send_flags, wr.opcode) = ((*qp).wr_id, (*qp).wr_flags & !INLINE, opcode);
    with(&mut wr);
    let build = &mut (*own(qp)).build;
    build.requests.push(Building { wr, elements: Vec::new(), inline: Vec::new() });
}

unsafe fn last<'a>(qp: *mut ibv_qp_ex) -> Option<&'a mut Building> {
    let build = &mut (*own(qp)).build;
    if build.requests.is_empty() {
        build.error = libc::EINVAL;
    }
    build.requests.last_mut()
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
    swap: u64,
) {
    begin(qp, opcode::COMPARE_SWAP, |wr| {
        wr.wr.atomic = wr_atomic { remote_addr, compare_add, swap, rkey };
    });
}

unsafe extern "C" fn atomic_fetch_add(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
) {
    begin(qp, opcode::FETCH_ADD, |wr| {
        wr.wr.atomic = wr_atomic { remote_addr, compare_add, swap: 0, rkey };
    });
}

unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    let bind_info = *info;
    begin(qp, opcode::BIND_MW, |wr| wr.bind_mw = wr_bind_mw { mw, rkey, bind_info });
}

unsafe extern "C" fn local_inv(qp: *mut ibv_qp_ex, key: u32) {
    begin(qp, opcode::LOCAL_INV, |wr| wr.imm_data = key);
}

unsafe extern "C" fn rdma_read(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    begin(qp, opcode::READ, |wr| wr.wr.rdma = wr_rdma { remote_addr, rkey });
}

unsafe extern "C" fn rdma_write(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64) {
    begin(qp, opcode::WRITE, |wr| wr.wr.rdma = wr_rdma { remote_addr, rkey });
}

unsafe extern "C" fn rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm: u32) {
    begin(qp, opcode::WRITE_IMM, |wr| {
        wr.wr.rdma = wr_rdma { remote_addr, rkey };
        wr.imm_data = imm;
    });
}

unsafe extern "C" fn send(qp: *mut ibv_qp_ex) {
    begin(qp, opcode::SEND, |_| ());
}

unsafe extern "C" fn send_imm(qp: *mut ibv_qp_ex, _: u32) {
    (*own(qp)).build.error = libc::EOPNOTSUPP;
}

unsafe extern "C" fn send_inv(qp: *mut ibv_qp_ex, key: u32) {
    begin(qp, opcode::SEND_INV, |wr| wr.imm_data = key);
}

unsafe extern "C" fn set_inline_data(qp: *mut ibv_qp_ex, addr: *mut c_void, length: size_t) {
    let buffer = ibv_data_buf { addr, length };
    set_inline_data_list(qp, 1, &raw const buffer);
}

unsafe extern "C" fn set_inline_data_list(
    qp: *mut ibv_qp_ex,
    count: size_t,
    list: *const ibv_data_buf,
) {
    let Some(request) = last(qp) else { return };
    request.wr.send_flags |= INLINE;
    request.inline.clear();
    for at in 0..count {
        let ibv_data_buf { addr, length } = *list.add(at);
        request.inline.extend_from_slice(crate::os::bytes(addr, length));
    }
}

unsafe extern "C" fn set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let element = ibv_sge { addr, length, lkey };
    set_sge_list(qp, 1, &raw const element);
}

unsafe extern "C" fn set_sge_list(qp: *mut ibv_qp_ex, count: size_t, list: *const ibv_sge) {
    let Some(request) = last(qp) else { return };
    request.elements.clear();
    request.elements.extend((0..count).map(|at| *list.add(at)));
}

unsafe extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    let build = &mut (*own(qp)).build;
    let mut error = build.error;
    if error == 0 {
        error = post(qp, &mut build.requests);
    }
    abort(qp);
    error
}

unsafe fn post(qp: *mut ibv_qp_ex, requests: &mut [Building]) -> c_int {
    let mut next = std::ptr::null_mut();
    for request in requests.iter_mut().rev() {
        if request.wr.send_flags & INLINE != 0 {
            let addr = request.inline.as_ptr().expose_provenance() as u64;
            let length = request.inline.len() as u32;
            request.elements = vec![ibv_sge { addr, length, lkey: 0 }];
        }
        request.wr.sg_list = request.elements.as_mut_ptr();
        request.wr.num_sge = request.elements.len() as c_int;
        request.wr.next = next;
        next = &raw mut request.wr;
    }
    let mut bad = std::ptr::null_mut();
    match next.is_null() {
        true => 0,
        // All of it, or nothing (ibv_wr_post(3)).
        false => posting::post(qp.cast(), next, &raw mut bad, true),
    }
}

unsafe extern "C" fn abort(qp: *mut ibv_qp_ex) {
    let build = &raw mut (*own(qp)).build;
    (*build).requests.clear();
    (*build).is_held.store(false, Ordering::Release);
}
