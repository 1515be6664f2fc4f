//! Work that is posted.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use libc::{c_int, c_uint};
use rdma::rdmap::atomic::Operation;
use rdma::session::posts::Posts;
use rdma::session::work::{RECV_HEAD, SEND_HEAD, Send, Shape, write_sges};
use rdma::verbs::{Access, Bind, Flags, Sge, State, Work};

use crate::abi::*;
use crate::os;
use crate::session::{self, Side, lock};
use crate::work_queues::{Queue, of, of_srq, state};

/// Numbers of `ibv_wr_opcode`.
pub(crate) mod opcode {
    use libc::c_int;
    pub(crate) const WRITE: c_int = 0;
    pub(crate) const WRITE_IMM: c_int = 1;
    pub(crate) const SEND: c_int = 2;
    pub(crate) const READ: c_int = 4;
    pub(crate) const COMPARE_SWAP: c_int = 5;
    pub(crate) const FETCH_ADD: c_int = 6;
    pub(crate) const LOCAL_INV: c_int = 7;
    pub(crate) const BIND_MW: c_int = 8;
    pub(crate) const SEND_INV: c_int = 9;
}

pub(crate) const FENCE: c_uint = 1;
pub(crate) const SIGNALED: c_uint = 1 << 1;
pub(crate) const SOLICITED: c_uint = 1 << 2;
pub(crate) const INLINE: c_uint = 1 << 3;

pub(crate) fn flags(of: c_uint) -> Flags {
    Flags {
        signaled: of & SIGNALED != 0,
        solicited: of & SOLICITED != 0,
        fence: of & FENCE != 0,
        local_fence: false,
    }
}

/// How a window is bound.
pub(crate) unsafe fn bind(window: u32, info: &ibv_mw_bind_info) -> Result<Work, c_int> {
    let access = Access::from_bits(info.mw_access_flags).map_err(|error| error.errno())?;
    let region = if info.mr.is_null() { 0 } else { (*info.mr).lkey };
    let (offset, len) = (info.addr, info.length);
    Ok(Work::Bind(Bind { window, region, offset, len, access }))
}

unsafe fn work(wr: &ibv_send_wr) -> Result<Work, c_int> {
    let (rdma, atomic) = (wr.wr.rdma, wr.wr.atomic);
    let (stag, offset) = (rdma.rkey, rdma.remote_addr);
    Ok(match wr.opcode {
        opcode::WRITE => Work::Write { stag, offset },
        opcode::WRITE_IMM => {
            Work::WriteImmediate { stag, offset, immediate: wr.imm_data.to_ne_bytes() }
        }
        opcode::SEND => Work::Send { invalidate: None },
        opcode::SEND_INV => Work::Send { invalidate: Some(wr.imm_data) },
        opcode::READ => Work::Read { stag, offset },
        opcode::COMPARE_SWAP => Work::Atomic {
            stag: atomic.rkey,
            offset,
            operation: Operation::compare_swap(atomic.compare_add, atomic.swap),
        },
        opcode::FETCH_ADD => Work::Atomic {
            stag: atomic.rkey,
            offset,
            operation: Operation::fetch_add(atomic.compare_add),
        },
        opcode::LOCAL_INV => Work::LocalInvalidate { stag: wr.imm_data },
        opcode::BIND_MW => bind(wr.bind_mw.rkey, &wr.bind_mw.bind_info)?,
        // Sends with immediate data, which iWARP does not have, and what is not of this transport.
        _ => return Err(libc::EOPNOTSUPP),
    })
}

pub(crate) fn store(entry: &[AtomicU64], words: &[u64]) {
    entry.iter().zip(words).for_each(|(to, word)| to.store(*word, Ordering::Relaxed));
}

pub(crate) fn sge(of: &ibv_sge) -> Sge {
    Sge { addr: of.addr, len: of.length, lkey: of.lkey }
}

unsafe fn elements<'a>(at: *const ibv_sge, count: c_int) -> Result<&'a [ibv_sge], c_int> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count) if !at.is_null() => Ok(std::slice::from_raw_parts(at, count)),
        _ => Err(libc::EINVAL),
    }
}

/// Writes the payload of an entry; how it is given.
pub(crate) unsafe fn payload(
    entry: &[AtomicU64],
    elements: &[ibv_sge],
    is_inline: bool,
    (sges, inline): (u32, u32),
) -> Result<Shape, c_int> {
    if !is_inline {
        if elements.len() > sges as usize {
            return Err(libc::EINVAL);
        }
        write_sges(entry, SEND_HEAD, elements.iter().map(sge));
        return Ok(Shape::Sges(elements.len() as u8));
    }
    let mut at = 0;
    for element in elements {
        let len = element.length as usize;
        if at + len > inline as usize {
            return Err(libc::ENOMEM);
        }
        let from = std::ptr::with_exposed_provenance(element.addr as usize);
        wire::bytes::store(entry, SEND_HEAD * 8 + at, os::bytes(from, len));
        at += len;
    }
    Ok(Shape::Inline(at as u32))
}

unsafe fn put_send(
    posts: &mut Posts<'static>,
    of: (u32, u32),
    wr: &ibv_send_wr,
    read: impl FnOnce() -> Option<u32>,
) -> Result<(), c_int> {
    let work = work(wr)?;
    let (elements, is_inline) = match wr.opcode {
        // They have no payload, whatever is said of it.
        opcode::LOCAL_INV | opcode::BIND_MW => (&[][..], false),
        _ => (elements(wr.sg_list, wr.num_sge)?, wr.send_flags & INLINE != 0),
    };
    // As devices do, so that it ends no connection.
    let len = elements.iter().map(|element| u64::from(element.length)).sum();
    if !work.takes((!is_inline).then_some(elements.len()), len) {
        return Err(libc::EINVAL);
    }
    let entry = posts.slot_after(read).ok_or(libc::ENOMEM)?;
    let shape = payload(entry, elements, is_inline, of)?;
    let send = Send { wr_id: wr.wr_id, work, flags: flags(wr.send_flags), shape };
    store(entry, &send.encode());
    posts.push();
    Ok(())
}

/// Whether sends may be posted in this state: they are flushed in those behind RTS.
pub(crate) fn takes_sends(posts: &Posts<'_>) -> bool {
    !matches!(posts.state(), State::Reset | State::Init | State::Rtr)
}

pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    post(qp, wr, bad, false)
}

/// Posts what comes before the first request that cannot be posted; of what is whole, nothing then.
#[inline]
pub(crate) unsafe fn post(
    qp: *mut ibv_qp,
    mut wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    is_whole: bool,
) -> c_int {
    let own = of(qp);
    let Some(session) = session::get() else {
        *bad = wr;
        return libc::ENODEV;
    };
    let mut queue = lock(&(*own).sends);
    let Queue { posts: Some(posts), sges, inline, .. } = &mut *queue else { return libc::EINVAL };
    if !takes_sends(posts) {
        *bad = wr;
        return libc::EINVAL;
    }
    let (mut error, before) = (0, posts.posted());
    while !wr.is_null() {
        if let Err(why) =
            put_send(posts, (*sges, *inline), &*wr, || session.read((*qp).qp_num, Side::Sends))
        {
            (*bad, error) = (wr, why);
            break;
        }
        wr = (*wr).next;
    }
    if error != 0 && is_whole {
        posts.withdraw(before);
        return error;
    }
    posts.publish();
    session.posted((*qp).qp_num);
    error
}

/// Posts receives. Returns the error, and the number of a queue pair at which a message waits for one of them, or zero.
unsafe fn put_receives(
    queue: &mut Queue,
    mut wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> (c_int, u32) {
    let Queue { posts: Some(posts), sges, .. } = queue else {
        *bad = wr;
        return (libc::EINVAL, 0);
    };
    let mut error = 0;
    while !wr.is_null() {
        let put = elements((*wr).sg_list, (*wr).num_sge).and_then(|elements| {
            // A receive is of less than 4 GB: the length of what has come has 32 bits.
            let all: u64 = elements.iter().map(|element| u64::from(element.length)).sum();
            if elements.len() > *sges as usize || all > u64::from(u32::MAX) {
                return Err(libc::EINVAL);
            }
            let entry = posts.slot().ok_or(libc::ENOMEM)?;
            store(entry, &[(*wr).wr_id, elements.len() as u64]);
            write_sges(entry, RECV_HEAD, elements.iter().map(sge));
            posts.push();
            Ok(())
        });
        if let Err(why) = put {
            (*bad, error) = (wr, why);
            break;
        }
        wr = (*wr).next;
    }
    posts.publish();
    // The device asks for messages that wait, and then looks at receives once more: see `Posts::wanted`.
    fence(Ordering::SeqCst);
    (error, posts.wanted())
}

pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let own = of(qp);
    let Some(session) = session::get() else {
        *bad = wr;
        return libc::ENODEV;
    };
    // It is the library that takes a queue pair there, and away.
    if (*qp).state == State::Reset as c_int {
        *bad = wr;
        return libc::EINVAL;
    }
    let (error, wanted) = put_receives(&mut lock(&(*own).receives), wr, bad);
    // The device looks at receives when a message comes. A message that waits for one, and the flush of an ended queue pair,
    // need word of them. It tells the state and looks at them once more: either that sees these, or they are posted behind
    // the state.
    if wanted != 0 || matches!(state(qp), State::Sqd | State::Sqe | State::Err) {
        session.posted((*qp).qp_num);
    }
    error
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let Some(session) = session::get() else {
        *bad = wr;
        return libc::ENODEV;
    };
    let (error, wanted) = put_receives(&mut lock(&(*of_srq(srq)).queue), wr, bad);
    if wanted != 0 {
        session.posted(wanted);
    }
    error
}

/// `ibv_bind_mw`, of type 1 windows: the next key is the library's choice.
pub(crate) unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    of: *mut ibv_mw_bind,
) -> c_int {
    const KEY: u32 = 0xff;
    let old = (*mw).rkey;
    let rkey = old & !KEY | old.wrapping_add(1) & KEY;
    let mut wr: ibv_send_wr = std::mem::zeroed();
    (wr.wr_id, wr.opcode, wr.send_flags) = ((*of).wr_id, opcode::BIND_MW, (*of).send_flags);
    wr.bind_mw = wr_bind_mw { mw, rkey, bind_info: (*of).bind_info };
    let mut bad = std::ptr::null_mut();
    let error = post_send(qp, &raw mut wr, &raw mut bad);
    if error == 0 {
        (*mw).rkey = rkey;
    }
    error
}
