//! What the connection manager has: event channels, identifiers and events.

use std::collections::VecDeque;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use libc::{c_int, c_void};
use rdma::session::Request;

use crate::abi::{ibv_context, ibv_pd, ibv_qp_init_attr};
use crate::abi_cm::*;
use crate::devices::open;
use crate::objects::{Names, acknowledged, ask};
use crate::os::{self, fails, none};
use crate::session::{Session, begin};

pub(crate) static IDS: Names<Identifier> = Names::new();

pub(crate) const PS_TCP: c_int = 0x106;

/// An event channel, as the library has it.
#[repr(C)]
pub(crate) struct Channel {
    base: rdma_event_channel,
    pub(crate) number: u32,
    is_destroyed: AtomicBool,
}

/// Where channels are that were destroyed last. Their memory stays, as a thread may be about to wait for events.
static DESTROYED: Mutex<VecDeque<usize>> = Mutex::new(VecDeque::new());
const REMEMBERED: usize = 64;

impl Channel {
    /// A thread that waits for events while another destroys the channel waits for ever, as in a kernel's read(2), so that
    /// the program ends as it means to: rping would otherwise end with an error, once in a while.
    ///
    /// # Errors
    /// `EINTR` if a signal ends the wait, as it would there. The channel may have no memory any more.
    pub(crate) fn stay_if_destroyed(&self) -> Result<(), c_int> {
        if !self.is_destroyed.load(Ordering::Acquire) {
            return Ok(());
        }
        // SAFETY: it is given no descriptors.
        unsafe { os::wait_for(null_mut(), 0, -1) };
        Err(os::errno())
    }
}

/// An identifier, as the library has it.
#[repr(C)]
pub(crate) struct Identifier {
    /// What the program sees.
    pub(crate) base: rdma_cm_id,
    /// The device's name for it.
    pub(crate) number: u32,
    /// It has a channel of its own, and each call waits for what comes of it.
    pub(crate) is_sync: bool,
    /// Events that were read and not acknowledged.
    pub(crate) events: AtomicU32,
    /// What queue pairs of connections that come are made with.
    pub(crate) attr: Option<ibv_qp_init_attr>,
}

/// The library's own of a program's identifier.
pub(crate) fn of(id: *mut rdma_cm_id) -> *mut Identifier {
    id.cast()
}

/// The device's name for it.
///
/// # Errors
/// `EINVAL` if there is no such identifier, or none any more: perftest 4.5 connects once more by one that it has
/// destroyed when it was rejected.
pub(crate) unsafe fn number(id: *mut rdma_cm_id) -> Result<u32, c_int> {
    let own = of(id);
    if IDS.has(own) { Ok((*own).number) } else { Err(libc::EINVAL) }
}

/// The context of identifiers, which all of them share.
pub(crate) fn context() -> Result<*mut ibv_context, c_int> {
    let shared = &begin()?.context;
    let known = shared.load(Ordering::Acquire);
    if !known.is_null() {
        return Ok(known);
    }
    let new = open()?;
    match shared.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(new),
        // Another thread was faster. The second context has nothing and costs little.
        Err(known) => Ok(known),
    }
}

/// The protection domain of identifiers whose programs name none.
pub(crate) unsafe fn domain() -> Result<*mut ibv_pd, c_int> {
    let shared = &begin()?.domain;
    let known = shared.load(Ordering::Acquire);
    if !known.is_null() {
        return Ok(known);
    }
    let new = crate::regions::ibv_alloc_pd(context()?);
    if new.is_null() {
        return Err(os::errno());
    }
    match shared.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(new),
        Err(known) => {
            crate::regions::ibv_dealloc_pd(new);
            Ok(known)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let ask = |session: &Session| session.ask_for(&Request::CreateEvents, Request::DestroyEvents);
    match begin().and_then(ask) {
        Ok((number, fd)) => {
            let (base, is_destroyed) = (rdma_event_channel { fd }, AtomicBool::new(false));
            Box::into_raw(Box::new(Channel { base, number, is_destroyed })).cast()
        }
        Err(error) => none(error),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let own = channel.cast::<Channel>();
    (*own).is_destroyed.store(true, Ordering::Release);
    os::close((*channel).fd);
    // The device may be gone.
    let _ = ask(&Request::DestroyEvents((*own).number));
    let mut all = DESTROYED.lock().unwrap_or_else(PoisonError::into_inner);
    all.push_back(own.expose_provenance());
    if all.len() > REMEMBERED
        && let Some(oldest) = all.pop_front()
    {
        drop(Box::from_raw(with_exposed_provenance_mut::<Channel>(oldest)));
    }
}

/// An identifier of the device's.
pub(crate) unsafe fn adopt(
    number: u32,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    is_sync: bool,
) -> *mut Identifier {
    let mut base: rdma_cm_id = std::mem::zeroed();
    const RC: c_int = 2;
    (base.channel, base.context, base.ps, base.qp_type) = (channel, context, PS_TCP, RC);
    let (events, attr) = (AtomicU32::new(0), None);
    let own = Box::into_raw(Box::new(Identifier { base, number, is_sync, events, attr }));
    IDS.put(number, own);
    own
}

/// An event, as the library has it.
#[repr(C)]
pub(crate) struct Event {
    pub(crate) base: rdma_cm_event,
    pub(crate) private_data: Vec<u8>,
    /// Whose events are counted by it.
    pub(crate) counted: *mut Identifier,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return fails(libc::EINVAL);
    }
    let own = Box::from_raw(event.cast::<Event>());
    (*own.counted).events.fetch_sub(1, Ordering::AcqRel);
    0
}

/// It is the device's from now on. As with librdmacm (`ucma_get_device`), it has a domain with the context, so that memory may
/// be registered before there is a queue pair.
pub(crate) unsafe fn bound(id: *mut rdma_cm_id) -> Result<(), c_int> {
    if (*id).verbs.is_null() {
        let (verbs, pd) = (context()?, domain()?);
        ((*id).verbs, (*id).pd, (*id).port_num) = (verbs, pd, 1);
    }
    Ok(())
}

/// Events go to another channel from now on, with those that were not read yet; to one of its own if there is none. Waits
/// until those that were read are acknowledged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    let own = of(id);
    let number = match number(id) {
        Ok(number) => number,
        Err(error) => return fails(error),
    };
    if (*own).is_sync && channel.is_null() {
        return fails(libc::EINVAL);
    }
    let becomes_sync = channel.is_null();
    let channel = if becomes_sync { rdma_create_event_channel() } else { channel };
    if channel.is_null() {
        return -1;
    }
    let events = (*channel.cast::<Channel>()).number;
    if let Err(error) = ask(&Request::Migrate { id: number, events }) {
        if becomes_sync {
            rdma_destroy_event_channel(channel);
        }
        return fails(error);
    }
    if (*own).is_sync {
        if !(*id).event.is_null() {
            rdma_ack_cm_event((*id).event);
            (*id).event = null_mut();
        }
        rdma_destroy_event_channel((*id).channel);
    }
    (*own).is_sync = becomes_sync;
    (*id).channel = channel;
    acknowledged(&(*own).events);
    0
}
