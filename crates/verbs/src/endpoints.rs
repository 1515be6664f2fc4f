//! `rdma_create_ep` and `rdma_get_request`: identifiers whose calls wait.

use std::ptr::null_mut;

use libc::{c_int, sockaddr};

use crate::abi::*;
use crate::abi_cm::*;
use crate::addresses::PASSIVE;
use crate::cm_events::rdma_get_cm_event;
use crate::connecting::{rdma_create_qp, rdma_destroy_qp, rdma_destroy_srq};
use crate::identifiers::{of, rdma_ack_cm_event};
use crate::ids::{
    rdma_bind_addr, rdma_create_id, rdma_destroy_id, rdma_resolve_addr, rdma_resolve_route,
};
use crate::os::fails;

const TIMEOUT: c_int = 2000;
const CONNECT_REQUEST: c_int = 4;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    const RC: c_int = 2;
    if (*res).ai_qp_type != RC {
        return fails(libc::EOPNOTSUPP);
    }
    let mut new = null_mut();
    if rdma_create_id(null_mut(), &raw mut new, null_mut(), (*res).ai_port_space) != 0 {
        return -1;
    }
    if make(new, res, pd, attr) != 0 {
        let error = crate::os::errno();
        rdma_destroy_ep(new);
        return fails(error);
    }
    *id = new;
    0
}

unsafe fn make(
    id: *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    const RC: c_int = 2;
    if (*res).ai_flags & PASSIVE != 0 {
        if rdma_bind_addr(id, (*res).ai_src_addr) != 0 {
            return -1;
        }
        if !pd.is_null() {
            (*id).pd = pd;
        }
        if !attr.is_null() {
            let of = &mut *of(id);
            of.attr = Some(ibv_qp_init_attr { qp_type: RC, ..*attr });
        }
        return 0;
    }
    let src: *mut sockaddr = (*res).ai_src_addr;
    if rdma_resolve_addr(id, src, (*res).ai_dst_addr, TIMEOUT) != 0
        || rdma_resolve_route(id, TIMEOUT) != 0
    {
        return -1;
    }
    if attr.is_null() {
        return 0;
    }
    (*attr).qp_type = RC;
    rdma_create_qp(id, pd, attr)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    rdma_destroy_qp(id);
    rdma_destroy_srq(id);
    rdma_destroy_id(id);
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    if !(*of(listen)).is_sync {
        return fails(libc::EINVAL);
    }
    if !(*listen).event.is_null() {
        rdma_ack_cm_event((*listen).event);
        (*listen).event = null_mut();
    }
    let mut event = null_mut();
    if rdma_get_cm_event((*listen).channel, &raw mut event) != 0 {
        return -1;
    }
    let (kind, status, new) = ((*event).event, (*event).status, (*event).id);
    if status != 0 || kind != CONNECT_REQUEST {
        rdma_ack_cm_event(event);
        return fails(if status == 0 { libc::EINVAL } else { status.saturating_abs() });
    }
    if let Some(attr) = &(*of(listen)).attr {
        let mut attr = *attr;
        if !(*listen).srq.is_null() {
            attr.srq = (*listen).srq;
        }
        if rdma_create_qp(new, (*listen).pd, &raw mut attr) != 0 {
            let error = crate::os::errno();
            rdma_ack_cm_event(event);
            rdma_destroy_id(new);
            return fails(error);
        }
    }
    // It is acknowledged with the identifier's next call, or its end.
    (*new).event = event;
    *id = new;
    0
}
