//! What the queue pairs of a process share.

use alloc::collections::VecDeque;

use super::cq::{Added, Completion, CompletionQueue};
use super::event::Event;
use super::id::{Cq, Pd, Slab, kind};
use super::receive_queue::SharedQueue;
use super::region::Regions;
use super::scratch::Scratch;
use super::{Error, Limits};
use crate::counters::Counters;

/// What queue pairs share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) pds: Slab<kind::Pd, Domain>,
    pub(crate) cqs: Slab<kind::Cq, CompletionQueue>,
    pub(crate) srqs: Slab<kind::Srq, SharedQueue>,
    pub(crate) regions: Regions,
    /// Bytes that queues take.
    queue_bytes: usize,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
    pub(crate) scratch: Scratch,
}

#[derive(Debug, Default)]
pub(crate) struct Domain {
    /// Objects in it.
    pub(crate) users: u32,
}

impl Shared {
    pub(crate) fn new(limits: Limits, secret: [u8; 16]) -> Self {
        Self {
            limits,
            pds: Slab::new(limits.pds),
            cqs: Slab::new(limits.cqs),
            srqs: Slab::new(limits.srqs),
            regions: Regions::new(&limits, secret),
            queue_bytes: 0,
            events: VecDeque::new(),
            counters: Counters::default(),
            scratch: Scratch::default(),
        }
    }

    /// Whether there may be so many more bytes of queues.
    pub(crate) fn has_room(&self, bytes: usize) -> Result<(), Error> {
        let all = self.queue_bytes.checked_add(bytes);
        if all.is_none_or(|all| all > self.limits.queue_bytes) {
            return Err(Error::Limit);
        }
        Ok(())
    }

    /// A queue of so many bytes is made.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.queue_bytes += bytes;
    }

    /// A queue of so many bytes is gone.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.queue_bytes -= bytes;
    }

    /// Adds a completion, and tells whom it concerns. Whether there was room.
    pub(crate) fn complete(&mut self, cq: Cq, completion: Completion, solicited: bool) -> bool {
        let Some(queue) = self.cqs.get_mut(cq) else { return false };
        match queue.add(completion, solicited) {
            Added::Quietly => true,
            Added::Told => {
                self.events.push_back(Event::Completion(cq));
                true
            }
            Added::Overrun => {
                self.events.push_back(Event::CqError(cq));
                self.counters.lost_completions += 1;
                false
            }
            Added::Lost => {
                self.counters.lost_completions += 1;
                false
            }
        }
    }

    pub(crate) fn domain(&mut self, pd: Pd) -> Result<&mut Domain, Error> {
        self.pds.get_mut(pd).ok_or(Error::Invalid)
    }

    pub(crate) fn leave(&mut self, pd: Pd) {
        if let Some(domain) = self.pds.get_mut(pd) {
            domain.users -= 1;
        }
    }
}
