//! What is not supported, so that no object of this library reaches rdma-core's.

use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void, fd_set, nfds_t, pollfd, timeval};

use crate::objects::code;
use crate::os::{self, fails, none, wait_for, wait_for_sets};

/// A line for standard error that a process writes once.
pub(crate) struct Once(AtomicBool);

impl Once {
    pub(crate) const fn new() -> Self {
        Once(AtomicBool::new(false))
    }

    /// Says what the program asks for that is not served, and what to do. Programs have few words for a call that fails.
    pub(crate) fn say(&self, text: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            os::say(text);
        }
    }
}

/// The child of a fork has no device, so that there is nothing to prepare.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> c_int {
    const UNNEEDED: c_int = 2;
    UNNEEDED
}

/// Data is not there in the order of its addresses: it is as for a queue pair of which that is not known.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_query_qp_data_in_order() -> c_int {
    0
}

/// Functions that return a null pointer.
macro_rules! no_object {
    ($($name:ident)*) => {$(
        #[doc = "Not supported."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut c_void {
            none(libc::EOPNOTSUPP)
        }
    )*};
}

/// Functions that return an errno.
macro_rules! no_verb {
    ($($name:ident)*) => {$(
        #[doc = "Not supported."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            code(Err(libc::EOPNOTSUPP))
        }
    )*};
}

/// Functions that return -1.
macro_rules! no_call {
    ($($name:ident)*) => {$(
        #[doc = "Not supported."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_int {
            fails(libc::EOPNOTSUPP)
        }
    )*};
}

/// Functions that return nothing: there is no such object, so that none is to be ended.
macro_rules! no_end {
    ($($name:ident)*) => {$(
        #[doc = "Not supported."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {}
    )*};
}

no_object! {
    ibv_create_ah ibv_create_ah_from_wc ibv_import_device ibv_import_pd ibv_import_mr ibv_import_dm ibv_reg_dmabuf_mr
    ibv_alloc_dmah ibv_create_comp_cntr
}

no_end! {
    ibv_unimport_pd ibv_unimport_mr ibv_unimport_dm
}

no_verb! {
    ibv_attach_mcast ibv_detach_mcast ibv_destroy_ah ibv_init_ah_from_wc ibv_resolve_eth_l2_from_gid ibv_rereg_mr
    ibv_set_ece ibv_query_ece ibv_dealloc_dmah _ibv_query_comp_cntr_caps ibv_destroy_comp_cntr ibv_set_comp_cntr
    ibv_set_err_comp_cntr ibv_inc_comp_cntr ibv_inc_err_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr
    ibv_qp_attach_comp_cntr
}

no_call! {
    rdma_join_multicast rdma_join_multicast_ex rdma_leave_multicast rdma_reject_ece rdma_set_local_ece
    rdma_get_remote_ece rsocket rbind rlisten raccept rconnect rshutdown rclose rrecv rrecvfrom rrecvmsg rsend rsendto
    rsendmsg rread rreadv rwrite rwritev rgetpeername rgetsockname rsetsockopt rgetsockopt rfcntl riomap riounmap riowrite
    repoll_create repoll_ctl repoll_wait ibv_dm_export_dmabuf_fd rdma_resolve_addrinfo rdma_query_addrinfo
}

/// Not supported for events of a program (`RDMA_CM_EVENT_USER`), and invalid for all others.
#[unsafe(no_mangle)]
pub extern "C" fn rdma_write_cm_event(_: *mut c_void, event: c_int) -> c_int {
    const USER: c_int = 18;
    fails(if event == USER { libc::EOPNOTSUPP } else { libc::EINVAL })
}

/// There are no rsockets, so that all descriptors are the kernel's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rpoll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    wait_for(fds, count, timeout)
}

/// The same. Other than select(2), and as rdma-core's, it leaves the timeout as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rselect(
    count: c_int,
    reads: *mut fd_set,
    writes: *mut fd_set,
    exceptions: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let mut left = timeout.as_ref().copied();
    let left = left.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
    wait_for_sets(count, [reads, writes, exceptions], left)
}
