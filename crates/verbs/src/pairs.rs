//! Making, changing and ending queue pairs and shared receive queues.

use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

use libc::{c_int, c_void};
use rdma::session::message::QpRequest;
use rdma::session::posts::Posts;
use rdma::session::{Area, Request};
use rdma::verbs::State;

use crate::abi::*;
use crate::building;
use crate::objects::{acknowledged, ask, code, number, session};
use crate::os::none;
use crate::queues;
use crate::refused;
use crate::session::lock;
use crate::work_queues::{Build, PAIRS, Queue, QueuePair, SHARED, SharedQueue, of, of_srq, state};

const RC: c_int = 2;

/// The name of a type of queue pairs (`enum ibv_qp_type`).
fn type_name(qp_type: c_int) -> &'static str {
    match qp_type {
        3 => "UC",
        4 => "UD",
        8 => "raw packet",
        9 | 10 => "XRC",
        _ => "others",
    }
}

fn small(n: u32) -> Result<u8, c_int> {
    u8::try_from(n).map_err(|_| libc::EINVAL)
}

unsafe fn create(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
    is_extended: bool,
) -> Result<*mut ibv_qp, c_int> {
    let ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, mut cap, qp_type, sq_sig_all } =
        *attr;
    if qp_type != RC {
        static SAID: refused::Once = refused::Once::new();
        SAID.say(&format!(
            "this RDMA device has queue pairs of type RC alone, and not {}: use the program's option for RC",
            type_name(qp_type)
        ));
        return Err(libc::EOPNOTSUPP);
    }
    if send_cq.is_null() || recv_cq.is_null() {
        return Err(libc::EINVAL);
    }
    let context = (*pd).context;
    if !srq.is_null() {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let request = QpRequest {
        context: number(context),
        pd: (*pd).handle,
        send_cq: (*send_cq).handle,
        receive_cq: (*recv_cq).handle,
        srq: (!srq.is_null()).then(|| (*srq).handle),
        sends: cap.max_send_wr,
        receives: cap.max_recv_wr,
        send_sges: small(cap.max_send_sge)?,
        receive_sges: small(cap.max_recv_sge)?,
        inline: cap.max_inline_data,
        signal_all: sq_sig_all != 0,
    };
    let reply = ask(&Request::CreateQp(request))?;
    let memory = session()?.memory;
    let area = |at: usize| Area::decode([reply.words[at], reply.words[at + 1]]);
    let sends = area(1).and_then(|area| Posts::new(area, cap.max_send_wr, memory));
    let sends = sends.ok_or(libc::EPROTO)?;
    let receives = area(3).filter(|_| srq.is_null());
    let receives = receives.and_then(|area| Posts::new(area, cap.max_recv_wr, memory));
    let qp_num = reply.words[0] as u32;
    session()?.read_none(qp_num);
    let mut base: ibv_qp_ex = std::mem::zeroed();
    if is_extended {
        building::put(&mut base);
    }
    let qp = &mut base.qp_base;
    (qp.context, qp.qp_context, qp.pd) = (context, qp_context, pd);
    (qp.send_cq, qp.recv_cq, qp.srq) = (send_cq, recv_cq, srq);
    (qp.handle, qp.qp_num, qp.qp_type) = (qp_num, qp_num, qp_type);
    (*attr).cap = cap;
    let own = Box::into_raw(Box::new(QueuePair {
        base,
        sends: Mutex::new(Queue::new(Some(sends), cap.max_send_sge, cap.max_inline_data)),
        receives: Mutex::new(Queue::new(receives, cap.max_recv_sge, 0)),
        async_events: AtomicU32::new(0),
        cap,
        sq_sig_all,
        is_extended,
        build: Build::default(),
    }));
    PAIRS.put(qp_num, own);
    Ok(own.cast())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    create(pd, attr, false).unwrap_or_else(none)
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    _: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    create_extended(attr).unwrap_or_else(none)
}

pub(crate) unsafe fn create_extended(attr: *mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, c_int> {
    const PD: u32 = 1;
    const CREATE_FLAGS: u32 = 1 << 2;
    const SEND_OPS: u32 = 1 << 6;
    let mask = (*attr).comp_mask;
    if mask & PD == 0 {
        return Err(libc::EINVAL);
    }
    let has_flags = mask & CREATE_FLAGS != 0 && (*attr).create_flags != 0;
    let has_others = mask & !(PD | CREATE_FLAGS | SEND_OPS) != 0;
    let operations = if mask & SEND_OPS == 0 { 0 } else { (*attr).send_ops_flags };
    if has_flags || has_others || operations & !building::OPERATIONS != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let mut plain = (*attr).plain();
    let qp = create((*attr).pd, &raw mut plain, mask & SEND_OPS != 0)?;
    (*attr).set_plain(&plain);
    Ok(qp)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    if (*of(qp)).is_extended { qp.cast() } else { std::ptr::null_mut() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let (own, qp_num) = (of(qp), (*qp).qp_num);
    match ask(&Request::DestroyQp(qp_num)) {
        Ok(_) | Err(libc::EIO) => {}
        Err(error) => return code(Err(error)),
    }
    PAIRS.take(qp_num);
    forget(own);
    acknowledged(&(*own).async_events);
    drop(Box::from_raw(own));
    0
}

/// Changes the state.
pub(crate) unsafe fn modify(qp: *mut ibv_qp, to: State) -> Result<(), c_int> {
    let own = of(qp);
    // The child of a fork does not have the memory of the queues.
    session()?;
    if to == State::Rts {
        // It came with the connection, or will.
        return if state(qp) == State::Rts { Ok(()) } else { Err(libc::EINVAL) };
    }
    // As with siw, whose programs take their own queue pair all the way once it is connected (`rping -c -q`).
    if matches!(to, State::Init | State::Rtr) && state(qp) == State::Rts {
        return Ok(());
    }
    let request = Request::ModifyQp { qp: (*qp).qp_num, state: to as u8 };
    if to == State::Reset {
        return begin_anew(own, &request);
    }
    (*qp).state = ask(&request)?.words[0] as c_int;
    Ok(())
}

/// The queues are empty, at the device and here. Nobody posts between the one and the other: the device would take it for
/// more than there can be.
unsafe fn begin_anew(own: *mut QueuePair, request: &Request<'_>) -> Result<(), c_int> {
    let mut queues = [&(*own).sends, &(*own).receives].map(lock);
    let reply = ask(request)?;
    for queue in &mut queues {
        queue.flushed = 0;
        if let Some(posts) = &mut queue.posts {
            posts.reset();
        }
    }
    let qp = &mut (*own).base.qp_base;
    session()?.read_none(qp.qp_num);
    qp.state = reply.words[0] as c_int;
    drop(queues);
    forget(own);
    Ok(())
}

/// What has completed of a queue pair is not that of one which begins.
unsafe fn forget(own: *mut QueuePair) {
    let (qp_num, cq) = ((*own).base.qp_base.qp_num, queues::of((*own).base.qp_base.send_cq));
    // Where the device is gone, the queue may have ended before its queue pair.
    queues::QUEUES.each(|queue| {
        if queue == cq {
            lock(&(*queue).queue).forget(qp_num);
        }
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    const STATE: c_int = 1;
    const PORT: c_int = 1 << 5;
    const AV: c_int = 1 << 7;
    const DEST_QPN: c_int = 1 << 20;
    // iWARP has no address handles: connections are made by the connection manager.
    if mask & (AV | DEST_QPN) != 0 {
        static SAID: refused::Once = refused::Once::new();
        SAID.say(
            "this RDMA device connects queue pairs by the connection manager (librdmacm), and not by hand (ibv_modify_qp to RTR): \
             use the program's option for that, which is -R in perftest",
        );
        return code(Err(libc::EOPNOTSUPP));
    }
    if mask & PORT != 0 && (*attr).port_num != 1 {
        return code(Err(libc::EINVAL));
    }
    if mask & STATE == 0 {
        return 0;
    }
    let to = u8::try_from((*attr).qp_state).ok();
    let to = to.and_then(|to| State::ALL.into_iter().find(|state| *state as u8 == to));
    code(to.ok_or(libc::EINVAL).and_then(|to| modify(qp, to)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    let own = of(qp);
    if let Err(error) = session() {
        return code(Err(error));
    }
    let state = state(qp) as c_int;
    (*qp).state = state;
    let base = &(*own).base.qp_base;
    *attr = std::mem::zeroed();
    (*attr).qp_state = state;
    (*attr).cur_qp_state = state;
    (*attr).path_mtu = 5;
    (*attr).cap = (*own).cap;
    (*attr).port_num = 1;
    (*attr).qp_access_flags = 0xf;
    *init = ibv_qp_init_attr {
        qp_context: base.qp_context,
        send_cq: base.send_cq,
        recv_cq: base.recv_cq,
        srq: base.srq,
        cap: (*own).cap,
        qp_type: base.qp_type,
        sq_sig_all: (*own).sq_sig_all,
    };
    0
}

unsafe fn create_shared(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attr: *mut ibv_srq_attr,
) -> Result<*mut ibv_srq, c_int> {
    let ibv_srq_attr { max_wr, max_sge, .. } = *attr;
    let context = (*pd).context;
    let request = Request::CreateSrq {
        context: number(context),
        pd: (*pd).handle,
        depth: max_wr,
        sges: small(max_sge)?,
    };
    let reply = ask(&request)?;
    let handle = reply.words[0] as u32;
    let area = Area::decode([reply.words[1], reply.words[2]]);
    let posts = area.and_then(|area| Posts::new(area, max_wr, session().ok()?.memory));
    let posts = posts.ok_or(libc::EPROTO)?;
    let mut base: ibv_srq = std::mem::zeroed();
    (base.context, base.srq_context, base.pd, base.handle) = (context, srq_context, pd, handle);
    let own = Box::into_raw(Box::new(SharedQueue {
        base,
        queue: Mutex::new(Queue::new(Some(posts), max_sge, 0)),
        async_events: AtomicU32::new(0),
        max_wr,
    }));
    SHARED.put(handle, own);
    Ok(own.cast())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    create_shared(pd, (*attr).srq_context, &raw mut (*attr).attr).unwrap_or_else(none)
}

pub(crate) unsafe extern "C" fn create_srq_ex(
    _: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const TYPE: u32 = 1;
    const PD: u32 = 1 << 1;
    let mask = (*attr).comp_mask;
    if mask & PD == 0 {
        return none(libc::EINVAL);
    }
    let is_basic = mask & TYPE == 0 || (*attr).srq_type == 0;
    if mask & !(TYPE | PD) != 0 || !is_basic {
        return none(libc::EOPNOTSUPP);
    }
    create_shared((*attr).pd, (*attr).srq_context, &raw mut (*attr).attr).unwrap_or_else(none)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    const LIMIT: c_int = 1 << 1;
    if mask & !LIMIT != 0 {
        return code(Err(libc::EOPNOTSUPP));
    }
    let limit = (*attr).srq_limit;
    if limit > (*of_srq(srq)).max_wr {
        return code(Err(libc::EINVAL));
    }
    code(ask(&Request::ArmSrq { srq: (*srq).handle, limit }).map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    let own = of_srq(srq);
    match ask(&Request::QuerySrq((*srq).handle)) {
        Ok(reply) => {
            let (max_wr, max_sge) = ((*own).max_wr, lock(&(*own).queue).sges);
            *attr = ibv_srq_attr { max_wr, max_sge, srq_limit: reply.words[0] as u32 };
            0
        }
        Err(error) => code(Err(error)),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    let (own, handle) = (of_srq(srq), (*srq).handle);
    match ask(&Request::DestroySrq(handle)) {
        Ok(_) | Err(libc::EIO) => {}
        Err(error) => return code(Err(error)),
    }
    SHARED.take(handle);
    acknowledged(&(*own).async_events);
    drop(Box::from_raw(own));
    0
}
