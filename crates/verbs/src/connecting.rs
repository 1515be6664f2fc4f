//! Connections: queue pairs of identifiers, connect, accept, disconnect.

use std::ptr::null_mut;

use libc::{c_int, c_void};
use rdma::session::Request;
use rdma::session::message::Connect;
use rdma::verbs::State;

use crate::abi::*;
use crate::abi_cm::*;
use crate::cm_events::complete;
use crate::identifiers::{bound, domain, number};
use crate::objects::{ask, session};
use crate::os::{self, errno, fails, result};
use crate::pairs::{self, create_extended, ibv_create_qp, ibv_destroy_qp, ibv_destroy_srq, modify};
use crate::queues::{
    ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
};

fn made<T>(object: *mut T) -> Result<*mut T, c_int> {
    if object.is_null() { Err(errno()) } else { Ok(object) }
}

/// A completion queue of the identifier's own, with a channel.
unsafe fn own_queue(
    id: *mut rdma_cm_id,
    entries: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), c_int> {
    let channel = made(ibv_create_comp_channel((*id).verbs))?;
    let cq = ibv_create_cq((*id).verbs, entries.max(1) as c_int, id.cast(), channel, 0);
    match made(cq) {
        Ok(cq) => Ok((channel, cq)),
        Err(error) => {
            ibv_destroy_comp_channel(channel);
            Err(error)
        }
    }
}

unsafe fn own_queues(id: *mut rdma_cm_id, attr: &mut ibv_qp_init_attr) -> Result<(), c_int> {
    if attr.send_cq.is_null() {
        ((*id).send_cq_channel, (*id).send_cq) = own_queue(id, attr.cap.max_send_wr)?;
        attr.send_cq = (*id).send_cq;
    }
    if attr.recv_cq.is_null() {
        let entries = attr.cap.max_recv_wr;
        ((*id).recv_cq_channel, (*id).recv_cq) = own_queue(id, entries)?;
        attr.recv_cq = (*id).recv_cq;
    }
    Ok(())
}

pub(crate) unsafe fn end_queues(id: *mut rdma_cm_id) {
    for (cq, channel) in [
        (&raw mut (*id).send_cq, &raw mut (*id).send_cq_channel),
        (&raw mut (*id).recv_cq, &raw mut (*id).recv_cq_channel),
    ] {
        if !(*cq).is_null() {
            ibv_destroy_cq(*cq);
            *cq = null_mut();
        }
        if !(*channel).is_null() {
            ibv_destroy_comp_channel(*channel);
            *channel = null_mut();
        }
    }
}

/// The domain of what is made for an identifier: the one that is given, or its own.
unsafe fn domain_for(id: *mut rdma_cm_id, given: *mut ibv_pd) -> Result<*mut ibv_pd, c_int> {
    match [given, (*id).pd].into_iter().find(|pd| !pd.is_null()) {
        Some(pd) => Ok(pd),
        // One that listens at any address is no device's yet.
        None => domain(),
    }
}

pub(crate) unsafe fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: &mut ibv_qp_init_attr,
    make: impl FnOnce(*mut ibv_pd, &mut ibv_qp_init_attr) -> Result<*mut ibv_qp, c_int>,
) -> Result<(), c_int> {
    if !(*id).qp.is_null() || (*id).verbs.is_null() {
        return Err(libc::EINVAL);
    }
    let pd = domain_for(id, pd)?;
    if attr.srq.is_null() {
        attr.srq = (*id).srq;
    }
    own_queues(id, attr).inspect_err(|_| end_queues(id))?;
    let qp = make(pd, attr).inspect_err(|_| end_queues(id))?;
    // As the kernel's manager needs it, and programs expect: receives may be posted.
    if let Err(error) = modify(qp, State::Init) {
        ibv_destroy_qp(qp);
        end_queues(id);
        return Err(error);
    }
    ((*id).pd, (*id).qp) = (pd, qp);
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    result(create_qp(id, pd, &mut *attr, |pd, attr| made(ibv_create_qp(pd, attr))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    const PD: u32 = 1;
    let pd = if (*attr).comp_mask & PD != 0 { (*attr).pd } else { null_mut() };
    let mut plain = (*attr).plain();
    let created = create_qp(id, pd, &mut plain, |pd, plain| {
        let mut whole = ibv_qp_init_attr_ex { pd, ..*attr };
        whole.set_plain(plain);
        whole.comp_mask |= PD;
        let qp = create_extended(&raw mut whole)?;
        *plain = whole.plain();
        Ok(qp)
    });
    if created.is_ok() {
        (*attr).set_plain(&plain);
    }
    result(created)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    if !(*id).qp.is_null() {
        ibv_destroy_qp((*id).qp);
        (*id).qp = null_mut();
    }
    end_queues(id);
}

/// Makes the shared queue of an identifier, which has one at most.
unsafe fn create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    make: impl FnOnce(*mut ibv_pd) -> *mut ibv_srq,
) -> Result<(), c_int> {
    if !(*id).srq.is_null() {
        return Err(libc::EINVAL);
    }
    let srq = made(make(domain_for(id, pd)?))?;
    if (*id).pd.is_null() {
        (*id).pd = (*srq).pd;
    }
    (*id).srq = srq;
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    result(create_srq(id, pd, |pd| pairs::ibv_create_srq(pd, attr)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    const PD: u32 = 1 << 1;
    let pd = if (*attr).comp_mask & PD != 0 { (*attr).pd } else { null_mut() };
    result(create_srq(id, pd, |pd| {
        (*attr).pd = pd;
        (*attr).comp_mask |= PD;
        pairs::create_srq_ex((*id).verbs, attr)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    if !(*id).srq.is_null() {
        ibv_destroy_srq((*id).srq);
        (*id).srq = null_mut();
    }
}

/// What is asked for, of a connection.
unsafe fn asked<'a>(
    id: *mut rdma_cm_id,
    param: *const rdma_conn_param,
) -> Result<Connect<'a>, c_int> {
    /// `RDMA_MAX_RESP_RES` and `RDMA_MAX_INIT_DEPTH`.
    const MOST: u8 = 0xff;
    let number = number(id)?;
    let none: rdma_conn_param = std::mem::zeroed();
    let of = match param.is_null() {
        // As librdmacm has it.
        true => rdma_conn_param { responder_resources: MOST, initiator_depth: MOST, ..none },
        false => *param,
    };
    let limit = session()?.device.limits.reads;
    let reads = |n: u8| if n == MOST { limit } else { u16::from(n).min(limit) };
    let qp = if (*id).qp.is_null() { of.qp_num } else { (*(*id).qp).qp_num };
    Ok(Connect {
        id: number,
        qp,
        ird: reads(of.responder_resources),
        ord: reads(of.initiator_depth),
        private_data: os::bytes(of.private_data, of.private_data_len.into()),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    complete(id, asked(id, param).and_then(|of| ask(&Request::Connect(of))).map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    complete(id, asked(id, param).and_then(|of| ask(&Request::Accept(of))).map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    len: u8,
) -> c_int {
    let private_data = os::bytes(private_data, len.into());
    result(number(id).and_then(|id| ask(&Request::Reject { id, private_data })).map(drop))
}

/// The device establishes connections itself, whosever queue pair it is. As with librdmacm, that is asked for only where it is the
/// program's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    if (*id).qp.is_null() { 0 } else { fails(libc::EINVAL) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_notify(_: *mut rdma_cm_id, _: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    complete(id, number(id).and_then(|id| ask(&Request::Disconnect(id))).map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    const STATE: c_int = 1;
    const ACCESS: c_int = 1 << 3;
    const PORT: c_int = 1 << 5;
    if let Err(error) = bound(id) {
        return fails(error);
    }
    let to = (*attr).qp_state;
    *attr = std::mem::zeroed();
    ((*attr).qp_state, (*attr).port_num) = (to, 1);
    (*attr).qp_access_flags = 0xf;
    // As the kernel's manager says for iWARP (rdma_init_qp_attr; iwcm_init_qp_init_attr and iwcm_init_qp_rts_attr): RTS comes
    // with the connection.
    *mask = if to == State::Rts as c_int { PORT } else { STATE | ACCESS | PORT };
    0
}
