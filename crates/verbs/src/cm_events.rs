//! Events of the connection manager.

use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;

use libc::{c_int, c_void};
use rdma::session::cm::{CmEvent, Kind};
use rdma::session::{MESSAGE_MAX, Reply, Request};
use rdma::verbs::State;

use crate::abi_cm::*;
use crate::addresses;
use crate::identifiers::{
    Channel, Event, IDS, Identifier, adopt, bound, of, rdma_ack_cm_event, rdma_migrate_id,
};
use crate::objects::ask;
use crate::os::{self, fails};
use crate::pairs::modify;
use crate::session;

/// Counts an event of this identifier, which does not end before it is acknowledged.
fn count(id: u32) -> Option<*mut Identifier> {
    IDS.with(id, |own| {
        // SAFETY: it is in the table, so that it has not ended.
        unsafe { (*own).events.fetch_add(1, Ordering::AcqRel) };
        own
    })
}

/// What the event changes, and to whom it is told; `None` for one that was destroyed meanwhile.
unsafe fn receive(of: &CmEvent) -> Option<(*mut Identifier, *mut Identifier)> {
    if of.kind != Kind::ConnectRequest {
        let own = count(of.id)?;
        if of.kind == Kind::Established || of.kind == Kind::AddrResolved {
            note(&raw mut (*own).base, of);
        }
        // As librdmacm has it: what was posted is flushed.
        let qp = (*own).base.qp;
        if of.kind == Kind::Rejected && !qp.is_null() {
            // It fails only where the device is gone, which has flushed it.
            let _ = modify(qp, State::Err);
        }
        return Some((own, own));
    }
    let Some(listener) = count(of.listener) else {
        // It was destroyed while this was read: nobody will answer.
        let _ = ask(&Request::DestroyId(of.id));
        return None;
    };
    let listens = &(*listener).base;
    let new = adopt(of.id, listens.channel, listens.context, false);
    note(&raw mut (*new).base, of);
    // Its queue pair is made with what the listener's program has given.
    if (*listener).is_sync && rdma_migrate_id(new.cast(), null_mut()) != 0 {
        (*listener).events.fetch_sub(1, Ordering::AcqRel);
        IDS.take(of.id);
        drop(Box::from_raw(new));
        let _ = ask(&Request::DestroyId(of.id));
        return None;
    }
    Some((new, listener))
}

unsafe fn note(id: *mut rdma_cm_id, of: &CmEvent) {
    let addr = &raw mut (*id).route.addr;
    if let Some(local) = of.local {
        addresses::write(&raw mut (*addr).src_storage, local);
    }
    if let Some(remote) = of.remote {
        addresses::write(&raw mut (*addr).dst_storage, remote);
    }
    // It fails only where the device is gone.
    let _ = bound(id);
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if channel.is_null() || event.is_null() {
        return fails(libc::EINVAL);
    }
    let (fd, own) = ((*channel).fd, channel.cast::<Channel>());
    loop {
        let mut message = [0; MESSAGE_MAX];
        let read = os::read(fd, &mut message);
        // A signal ends the wait whatever has become of the channel.
        if !matches!(read, Ok(1..) | Err(libc::EINTR))
            && let Err(error) = (*own).stay_if_destroyed()
        {
            return fails(error);
        }
        let len = match read {
            Ok(0) => return fails(session::ended()),
            Ok(len) => len,
            Err(error) => return fails(error),
        };
        let reply = Reply::decode(&message[..len]).ok();
        let Some((of, reply)) = reply.and_then(|reply| Some((CmEvent::decode(&reply)?, reply)))
        else {
            return fails(libc::EPROTO);
        };
        if let Some((id, counted)) = receive(&of) {
            let is_request = of.kind == Kind::ConnectRequest;
            let listener = if is_request { counted } else { null_mut() };
            *event = made(&of, reply.bytes, id, listener, counted);
            return 0;
        }
        // The descriptor may be another's by now.
        if let Err(error) = (*own).stay_if_destroyed() {
            return fails(error);
        }
    }
}

unsafe fn made(
    of: &CmEvent,
    private_data: Vec<u8>,
    id: *mut Identifier,
    listener: *mut Identifier,
    counted: *mut Identifier,
) -> *mut rdma_cm_event {
    let mut base: rdma_cm_event = std::mem::zeroed();
    (base.id, base.listen_id) = (id.cast(), listener.cast());
    (base.event, base.status) = (of.kind as c_int, of.status as i32);
    let small = |n: u16| u8::try_from(n).unwrap_or(u8::MAX);
    base.conn.responder_resources = small(of.ird);
    base.conn.initiator_depth = small(of.ord);
    let len = private_data.len().min(u8::MAX.into());
    let made = Box::into_raw(Box::new(Event { base, private_data, counted }));
    if len > 0 {
        (*made).base.conn.private_data = (*made).private_data.as_ptr().cast();
        (*made).base.conn.private_data_len = len as u8;
    } else {
        (*made).base.conn.private_data = null::<c_void>();
    }
    made.cast()
}

/// What a call returns. Of an identifier with a channel of its own it waits for what came of it, where its thread may be
/// cancelled: whoever calls this has nothing to drop, and lets unwinding through.
pub(crate) unsafe fn complete(id: *mut rdma_cm_id, done: Result<(), c_int>) -> c_int {
    if let Err(error) = done {
        return fails(error);
    }
    if !(*of(id)).is_sync {
        return 0;
    }
    if !(*id).event.is_null() {
        rdma_ack_cm_event((*id).event);
        (*id).event = null_mut();
    }
    if rdma_get_cm_event((*id).channel, &raw mut (*id).event) != 0 {
        return -1;
    }
    let (event, status) = ((*(*id).event).event, (*(*id).event).status);
    match status {
        0 => 0,
        _ if event == Kind::Rejected as c_int => fails(libc::ECONNREFUSED),
        _ => fails(status.saturating_abs()),
    }
}
