//! How a stream ends by an error, and what becomes of what is posted.

use super::QueuePair;
use super::close::Close;
use super::state::State;
use super::stream::Stream;
use crate::ddp::{self, QUEUE_READ, QUEUE_SEND, TaggedError, UntaggedError};
use crate::mpa::deframe::Malformed;
use crate::rdmap::terminate::{Cause, Failed, Llp, Operation, Protection, Terminate};
use crate::status::Status;
use crate::verbs::cq::{Completion, Done};
use crate::verbs::event::Event;
use crate::verbs::send_queue::Progress;
use crate::verbs::shared::Shared;
use crate::verbs::work::Work;

/// An error that ends the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    pub(super) cause: Cause,
    /// The segment that it is about.
    pub(super) failed: Option<Failed>,
    /// How the receive at hand ends.
    pub(super) receive: Option<Status>,
    /// How a piece of work ends.
    pub(super) work: Option<(u32, Status)>,
}

impl Failure {
    pub(super) fn new(cause: Cause) -> Self {
        Self { cause, failed: None, receive: None, work: None }
    }

    /// The receive at hand ends so.
    pub(super) fn receive(self, status: Status) -> Self {
        Self { receive: Some(status), ..self }
    }

    /// A piece of work ends so.
    pub(super) fn work(self, place: u32, status: Status) -> Self {
        Self { work: Some((place, status)), ..self }
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::new(Cause::Llp(match malformed {
            Malformed::Crc => Llp::Crc,
            Malformed::Marker => Llp::Marker,
        }))
    }
}

impl QueuePair {
    /// Ends the stream: the peer is told by a Terminate message, which is the last that is sent (RFC 5040 section
    /// 4.8), and what is posted is flushed.
    pub(super) fn fail(&mut self, shared: &mut Shared, stream: &mut Stream, failure: Failure) {
        let Failure { cause, failed, receive, work } = failure;
        count(shared, cause);
        if stream.tx.close.is_none() {
            self.state = State::Sqe;
            stream.tx.terminate = Some(Terminate::new(cause, failed));
        } else {
            // This side has closed: there is no way to say it.
            self.state = State::Err;
        }
        let event = if is_access(cause) {
            Event::QpAccessError(self.id, cause)
        } else {
            Event::QpFatal(self.id, cause)
        };
        shared.events.push_back(event);
        self.flush(
            shared,
            Some(stream),
            work.map(|(place, status)| (place, status, None)),
            receive,
        );
    }

    /// The peer has ended the stream (RFC 5040 section 5.4: nothing more is sent; the stream is closed).
    pub(super) fn terminated(
        &mut self,
        shared: &mut Shared,
        stream: &mut Stream,
        terminate: &Terminate,
    ) {
        shared.counters.terminates_in += 1;
        self.state = State::Err;
        stream.tx.close = Some(Close::Orderly);
        let work = self.named(stream, terminate);
        shared.events.push_back(Event::Terminated(self.id, terminate.cause));
        self.flush(shared, Some(stream), work, None);
    }

    /// The work that a Terminate message is about, if it has not completed, and how it ends.
    fn named(
        &self,
        stream: &Stream,
        terminate: &Terminate,
    ) -> Option<(u32, Status, Option<Cause>)> {
        let header = terminate.failed?.header()?;
        let is_it = |place: &u32| {
            let entry = self.sq.entry(*place);
            let is_sent = entry.progress != Progress::Queued
                || stream.tx.current.is_some_and(|current| current.has_begun(*place));
            let fits = match (header, entry.work) {
                (
                    ddp::Header::Untagged(header),
                    Work::Send { .. } | Work::WriteImmediate { .. },
                ) => header.queue == QUEUE_SEND && header.msn == entry.msn,
                (ddp::Header::Untagged(header), Work::Read { .. } | Work::Atomic { .. }) => {
                    header.queue == QUEUE_READ && header.msn == entry.msn
                }
                (ddp::Header::Tagged(header), Work::Write { stag, offset }) => {
                    let at = header.offset.wrapping_sub(offset);
                    header.stag == stag && at < u64::from(entry.len.max(1))
                }
                _ => false,
            };
            is_sent && fits
        };
        let place = self.sq.places().find(is_it)?;
        let status = match terminate.cause {
            Cause::Ddp(ddp::Error::Tagged(_)) | Cause::Protection(_) => Status::RemoteAccess,
            Cause::Ddp(ddp::Error::Untagged(_)) => Status::RemoteInvalidRequest,
            Cause::Operation(Operation::CatastrophicStream | Operation::Opcode) => {
                Status::RemoteInvalidRequest
            }
            _ => Status::RemoteOperation,
        };
        Some((place, status, Some(terminate.cause)))
    }

    /// All that is posted completes: first what has failed, then all other sends in their order, then all receives
    /// (the verbs specification, section 6.2.4 on the error state).
    pub(super) fn flush(
        &mut self,
        shared: &mut Shared,
        mut stream: Option<&mut Stream>,
        work: Option<(u32, Status, Option<Cause>)>,
        receive: Option<Status>,
    ) {
        let work = work.filter(|(place, ..)| self.sq.has(*place));
        if let Some((place, status, cause)) = work {
            let entry = *self.sq.entry(place);
            let is_early = place != self.sq.head;
            let completion = Completion { status, cause, is_early, ..self.success(&entry) };
            self.complete_send(shared, completion);
        }
        // Receives that a message has come for, whole or in part, are before those that are posted.
        let mut taken = alloc::vec::Vec::new();
        if let Some(stream) = &mut stream {
            taken.append(&mut stream.rx.lost);
            taken.extend(stream.rx.incoming.take().map(|incoming| incoming.wr_id));
        }
        let mut taken = taken.into_iter();
        if let Some(status) = receive
            && let Some(wr_id) = taken.next()
        {
            let completion = Completion { status, ..self.flushed(wr_id, Done::Receive) };
            self.complete_receive(shared, completion, false);
        }
        for place in self.sq.places() {
            if work.is_some_and(|(failed, ..)| failed == place) {
                continue;
            }
            let entry = *self.sq.entry(place);
            if entry.progress == Progress::Ended(Status::Success) {
                if entry.flags.signaled || self.config.signal_all {
                    let completion = self.success(&entry);
                    self.complete_send(shared, completion);
                }
                continue;
            }
            // A failure completes whether it was asked to or not.
            let completion = self.flushed(entry.wr_id, entry.done());
            shared.counters.flushed += 1;
            self.complete_send(shared, completion);
        }
        (self.sq.head, self.sq.next) = (self.sq.tail, self.sq.tail);
        for wr_id in taken {
            let completion = self.flushed(wr_id, Done::Receive);
            shared.counters.flushed += 1;
            self.complete_receive(shared, completion, false);
        }
        self.flush_receives(shared);
        if let Some(stream) = stream {
            stream.rx.parked.clear();
            stream.outstanding.clear();
            stream.tx.responses.clear();
            stream.tx.current = None;
            stream.tx.rtr = None;
        }
    }

    fn flush_receives(&mut self, shared: &mut Shared) {
        if self.config.srq.is_some() {
            shared.events.push_back(Event::LastWqe(self.id));
            return;
        }
        let mut sges = alloc::vec::Vec::new();
        while let Some(wr_id) = self.rq.take(&mut sges) {
            let completion = self.flushed(wr_id, Done::Receive);
            shared.counters.flushed += 1;
            self.complete_receive(shared, completion, false);
        }
    }

    /// A completion queue had no room: the queue pair cannot go on (the verbs specification, section 6.5.3).
    pub(super) fn check_overrun(&mut self, shared: &mut Shared, stream: &mut Stream) {
        let overrun = core::mem::take(&mut self.overrun);
        if overrun && matches!(self.state, State::Rts | State::Sqd) {
            self.fail(shared, stream, Failure::new(Cause::Local));
            self.overrun = false;
        }
    }
}

/// Whether the peer has reached for what is not its own.
fn is_access(cause: Cause) -> bool {
    match cause {
        Cause::Protection(_) => true,
        Cause::Ddp(ddp::Error::Tagged(error)) => error != ddp::TaggedError::Version,
        _ => false,
    }
}

/// Counts a Terminate message by its reason.
fn count(shared: &mut Shared, cause: Cause) {
    let counters = &mut shared.counters;
    let counter = match cause {
        Cause::Llp(Llp::Crc) => &mut counters.crc_errors,
        Cause::Llp(_) => &mut counters.framing_errors,
        Cause::Ddp(ddp::Error::Untagged(UntaggedError::NoBuffer)) => &mut counters.no_buffer_errors,
        Cause::Ddp(ddp::Error::Untagged(UntaggedError::TooLong)) => &mut counters.length_errors,
        Cause::Ddp(ddp::Error::Catastrophic) | Cause::Local => &mut counters.local_errors,
        Cause::Protection(of) => match of {
            Protection::InvalidStag => &mut counters.stag_errors,
            Protection::Bounds | Protection::Wrap => &mut counters.bounds_errors,
            Protection::Access | Protection::Unspecified => &mut counters.access_errors,
            Protection::NotAssociated => &mut counters.domain_errors,
            Protection::CannotInvalidate => &mut counters.invalidate_errors,
        },
        Cause::Operation(Operation::CannotInvalidate) => &mut counters.invalidate_errors,
        Cause::Ddp(ddp::Error::Tagged(of)) => match of {
            TaggedError::InvalidStag => &mut counters.stag_errors,
            TaggedError::Bounds | TaggedError::Wrap => &mut counters.bounds_errors,
            TaggedError::NotAssociated => &mut counters.domain_errors,
            TaggedError::Version => &mut counters.header_errors,
        },
        _ => &mut counters.header_errors,
    };
    *counter += 1;
}
