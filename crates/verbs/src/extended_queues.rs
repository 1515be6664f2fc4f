//! `ibv_cq_ex`: completion queues that are read field by field.

use libc::{c_int, c_uint, c_void};

use crate::abi::*;
use crate::os::none;
use crate::queues::{self, CompletionQueue, Turn, immediate};
use crate::session::lock;

/// `IBV_WC_STANDARD_FLAGS`.
const STANDARD: u64 = 0x7f;

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    const FLAGS: u32 = 1;
    /// Which a queue that one thread uses needs nothing for.
    const SINGLE_THREADED: u32 = 1;
    let ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, wc_flags, .. } = *attr;
    let has_flags = (*attr).comp_mask & FLAGS != 0;
    let is_single = has_flags && (*attr).flags & SINGLE_THREADED != 0;
    let is_plain = !has_flags || (*attr).flags & !SINGLE_THREADED == 0;
    if wc_flags & !STANDARD != 0 || (*attr).comp_mask & !FLAGS != 0 || !is_plain {
        return none(libc::EOPNOTSUPP);
    }
    if cqe == 0 || comp_vector != 0 {
        return none(libc::EINVAL);
    }
    match queues::create(context, cqe, cq_context, channel, Turn::new(is_single)) {
        Ok(own) => {
            put(&mut (*own).base);
            own.cast()
        }
        Err(error) => none(error),
    }
}

fn put(base: &mut ibv_cq_ex) {
    base.start_poll = Some(start_poll);
    base.next_poll = Some(next_poll);
    base.end_poll = Some(end_poll);
    base.read_opcode = Some(read_opcode);
    base.read_vendor_err = Some(read_vendor_err);
    base.read_byte_len = Some(read_byte_len);
    base.read_imm_data = Some(read_imm_data);
    base.read_qp_num = Some(read_qp_num);
    base.read_src_qp = Some(read_nothing);
    base.read_wc_flags = Some(read_wc_flags);
    base.read_slid = Some(read_nothing);
    base.read_sl = Some(read_no_byte);
    base.read_dlid_path_bits = Some(read_no_byte);
}

fn own(cq: *mut ibv_cq_ex) -> *mut CompletionQueue {
    cq.cast()
}

unsafe fn next(cq: *mut ibv_cq_ex) -> c_int {
    let own = own(cq);
    let mut queue = lock(&(*own).queue);
    let Some(entry) = queue.poll(own) else { return libc::ENOENT };
    queue.current = entry;
    ((*cq).wr_id, (*cq).status) = (entry.wr_id, entry.status.into());
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut c_void) -> c_int {
    if !attr.is_null() && *attr.cast::<u32>() != 0 {
        return libc::EINVAL;
    }
    if crate::session::get().is_none() {
        return libc::ENODEV;
    }
    (*own(cq)).turn.take();
    let error = next(cq);
    // There is no end of what has not begun.
    if error != 0 {
        (*own(cq)).turn.give();
    }
    error
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    next(cq)
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    lock(&(*own(cq)).queue).release();
    (*own(cq)).turn.give();
}

unsafe fn current(cq: *mut ibv_cq_ex) -> rdma::session::completions::Entry {
    lock(&(*own(cq)).queue).current
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> c_int {
    current(cq).opcode.into()
}

unsafe extern "C" fn read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    current(cq).vendor_err.into()
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    current(cq).len
}

unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    immediate(&current(cq)).0
}

unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    current(cq).qp
}

unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    immediate(&current(cq)).1
}

unsafe extern "C" fn read_nothing(_: *mut ibv_cq_ex) -> u32 {
    0
}

unsafe extern "C" fn read_no_byte(_: *mut ibv_cq_ex) -> u8 {
    0
}
