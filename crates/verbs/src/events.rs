//! Asynchronous events.

use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_void};

use crate::abi::*;
use crate::objects::of as context_of;
use crate::os;
use crate::queues::{self, QUEUES};
use crate::work_queues::{PAIRS, SHARED, of, of_srq};

const CQ_ERR: c_int = 0;
const DEVICE_FATAL: c_int = 8;
const SRQ_ERR: c_int = 14;
const SRQ_LIMIT_REACHED: c_int = 15;

fn count(events: &AtomicU32) {
    events.fetch_add(1, Ordering::AcqRel);
}

fn acknowledge(events: &AtomicU32) {
    events.fetch_sub(1, Ordering::AcqRel);
}

/// The object of an event, which does not end before the event is acknowledged.
fn element(event_type: c_int, object: u32) -> Option<*mut c_void> {
    // SAFETY: what is in a table has not ended.
    unsafe {
        match event_type {
            CQ_ERR => QUEUES.with(object, |own| {
                count(&(*own).async_events);
                own.cast()
            }),
            SRQ_ERR | SRQ_LIMIT_REACHED => SHARED.with(object, |own| {
                count(&(*own).async_events);
                own.cast()
            }),
            _ => PAIRS.with(object, |own| {
                count(&(*own).async_events);
                own.cast()
            }),
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    loop {
        let mut words = [[0; 8]; 2];
        match os::read((*context).async_fd, words.as_flattened_mut()) {
            Ok(16) => {}
            Ok(_) => match crate::session::ended() {
                // Each context is told once.
                libc::EIO if !(*context_of(context)).was_told.swap(true, Ordering::AcqRel) => {
                    (*event).element = std::ptr::null_mut();
                    (*event).event_type = DEVICE_FATAL;
                    return 0;
                }
                error => return os::fails(error),
            },
            Err(error) => return os::fails(error),
        }
        let [event_type, object] = words.map(u64::from_ne_bytes);
        // One that was destroyed meanwhile has no events any more.
        if let Some(element) = element(event_type as c_int, object as u32) {
            *event = ibv_async_event { element, event_type: event_type as c_int };
            return 0;
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let ibv_async_event { element, event_type } = *event;
    match event_type {
        DEVICE_FATAL => {}
        CQ_ERR => acknowledge(&(*queues::of(element.cast())).async_events),
        SRQ_ERR | SRQ_LIMIT_REACHED => {
            acknowledge(&(*of_srq(element.cast())).async_events);
        }
        _ => acknowledge(&(*of(element.cast())).async_events),
    }
}
