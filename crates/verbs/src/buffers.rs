//! Registration by attributes (`ibv_reg_mr_ex`, rdma-core 59), and memory that is allocated for it (`ibv_alloc_buf`, rdma-core
//! 64).

// Names of the header.
#![allow(non_camel_case_types)]

use std::ptr::null_mut;

use libc::{c_int, c_void, size_t};

use crate::abi::{ibv_mr, ibv_pd};
use crate::os::{self, fails, none};
use crate::regions::ibv_reg_mr_iova2;

/// `struct ibv_mr_init_attr`. The first three fields are always there. A field that `comp_mask` does not name may lie behind the
/// end of the program's structure, which ends at `dmah` in rdma-core 59: no reference to the whole is made.
#[repr(C)]
pub struct ibv_mr_init_attr {
    length: size_t,
    access: c_int,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
    fd: c_int,
    fd_offset: u64,
    dmah: *mut c_void,
    buf: *mut ibv_buf,
}

const IOVA: u64 = 1;
const ADDR: u64 = 1 << 1;
const FD: u64 = 1 << 2;
const FD_OFFSET: u64 = 1 << 3;
const BUF: u64 = 1 << 5;

/// A buffer that was allocated for a program, which knows it by its address alone.
pub struct ibv_buf {
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: size_t,
}

impl ibv_buf {
    /// Returns true if the range lies in the buffer.
    fn contains(&self, addr: *mut c_void, length: size_t) -> bool {
        let offset = addr.addr().checked_sub(self.addr.addr());
        offset.and_then(|offset| offset.checked_add(length)).is_some_and(|end| end <= self.size)
    }
}

/// Allocates page-aligned memory of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: size_t,
    to: *mut *mut ibv_buf,
) -> *mut c_void {
    let mut addr = null_mut();
    let error = libc::posix_memalign(&raw mut addr, os::page(), size);
    if error != 0 {
        return none(error);
    }
    *to = Box::into_raw(Box::new(ibv_buf { pd, addr, size }));
    addr
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    let buf = Box::from_raw(buf);
    libc::free(buf.addr);
}

/// No buffer is backed by a DMA-buf.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(_: *mut ibv_buf) -> c_int {
    fails(libc::ENODATA)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    let nothing: ibv_mr_init_attr = std::mem::zeroed();
    let mut attr = ibv_mr_init_attr { length, access, comp_mask: BUF | ADDR, addr, buf, ..nothing };
    ibv_reg_mr_ex(pd, &raw mut attr)
}

/// Registers memory of the process by its address. DMA-bufs and DMA handles are not supported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    attr: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    let (length, access, mask) = ((*attr).length, (*attr).access, (*attr).comp_mask);
    let has = |bits| mask & bits != 0;
    let is_of_buffer = || {
        let buf = (*attr).buf;
        has(ADDR) && (*buf).pd == pd && (*buf).contains((*attr).addr, length)
    };
    if has(BUF) && (has(FD | FD_OFFSET) || !is_of_buffer()) {
        return none(libc::EINVAL);
    }
    if has(FD) || has(!(IOVA | ADDR | FD_OFFSET | BUF)) {
        return none(libc::EOPNOTSUPP);
    }
    if !has(ADDR) || has(FD_OFFSET) {
        return none(libc::EINVAL);
    }
    let addr = (*attr).addr;
    let iova = if has(IOVA) { (*attr).iova } else { addr.addr() as u64 };
    ibv_reg_mr_iova2(pd, addr, length, iova, access as u32)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Programs that were built for rdma-core 59 have a structure that ends at `dmah`.
    #[test]
    fn fields_that_the_mask_does_not_name_are_not_read() {
        let page = os::page();
        let (all, none_at) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_NONE);
        let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the mapping is new, the second of its pages is not accessible, and what is written ends with the first.
        unsafe {
            let pages = libc::mmap(null_mut(), 2 * page, none_at, private, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(pages, page, all), 0);
            let ends = [offset_of!(ibv_mr_init_attr, buf), offset_of!(ibv_mr_init_attr, iova)];
            for (end, mask, errno) in [
                (ends[0], ADDR | FD, libc::EOPNOTSUPP),
                (ends[0], ADDR | FD_OFFSET, libc::EINVAL),
                (ends[1], 0, libc::EINVAL),
            ] {
                let attr = pages.byte_add(page - end).cast::<ibv_mr_init_attr>();
                (&raw mut (*attr).comp_mask).write(mask);
                assert!(ibv_reg_mr_ex(null_mut(), attr).is_null());
                assert_eq!(os::errno(), errno);
            }
            assert_eq!(libc::munmap(pages, 2 * page), 0);
        }
    }
}
