//! Queue pairs: what is posted, and their streams.

use super::Rnic;
use crate::memory::Memory;
use crate::mpa::Negotiated;
use crate::status::Status;
use crate::verbs::Error;
use crate::verbs::id::Qp;
use crate::verbs::qp::{State, Transmitted};
use crate::verbs::work::{RecvRequest, SendRequest};

impl Rnic {
    /// The state of a queue pair.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue pair; so it is with all of these.
    pub fn state(&self, qp: Qp) -> Result<State, Error> {
        Ok(self.qps.get(qp).ok_or(Error::Invalid)?.state())
    }

    /// Changes a queue pair's state by the application's wish (`ibv_modify_qp`): to [`State::Init`] and
    /// [`State::Rtr`] on the way to a stream, to [`State::Err`] to end one at once, to [`State::Sqd`] as
    /// [`disconnect`](Self::disconnect), to [`State::Reset`] to begin again. [`State::Rts`] comes by
    /// [`start`](Self::start) alone.
    ///
    /// # Errors
    /// [`Error::State`] if there is no such way.
    pub fn modify(&mut self, qp: Qp, to: State) -> Result<(), Error> {
        self.qps.get_mut(qp).ok_or(Error::Invalid)?.modify(&mut self.shared, to)
    }

    /// The stream of a queue pair begins: connection set-up is over. What the peer sends next goes to
    /// [`receive`](Self::receive). `emss` is the largest segment that TCP sends; FPDUs are made to fit into one.
    ///
    /// # Errors
    /// [`Error::State`] if it is not in [`State::Init`] or [`State::Rtr`]; [`Error::Limit`] if IRD or ORD are over
    /// the limit.
    pub fn start(&mut self, qp: Qp, negotiated: &Negotiated, emss: usize) -> Result<(), Error> {
        let queue_pair = self.qps.get_mut(qp).ok_or(Error::Invalid)?;
        if negotiated.ird.max(negotiated.ord) > self.shared.limits.reads {
            return Err(Error::Limit);
        }
        queue_pair.start(negotiated, emss)
    }

    /// The largest segment that TCP sends has changed.
    pub fn set_emss(&mut self, qp: Qp, emss: usize) {
        if let Some(queue_pair) = self.qps.get_mut(qp) {
            queue_pair.set_emss(emss);
        }
    }

    /// Posts to the send queue. What is wrong with the request is told now; what is wrong with memory or keys, by
    /// its completion.
    ///
    /// # Errors
    /// [`Error::State`] before there is a stream, or while it is being closed; [`Error::Full`]; [`Error::Invalid`]
    /// if the request has more elements or inline bytes than the queue pair, or none that its work can have.
    #[inline]
    pub fn post_send(&mut self, qp: Qp, request: &SendRequest<'_>) -> Result<(), Error> {
        self.qps.get_mut(qp).ok_or(Error::Invalid)?.post_send(&mut self.shared, request)
    }

    /// Posts to the queue pair's own receive queue.
    ///
    /// # Errors
    /// [`Error::State`] in [`State::Reset`]; [`Error::Full`]; [`Error::Invalid`], also if it has a shared queue.
    #[inline]
    pub fn post_recv(&mut self, qp: Qp, request: &RecvRequest<'_>) -> Result<(), Error> {
        self.qps.get_mut(qp).ok_or(Error::Invalid)?.post_recv(&mut self.shared, request)
    }

    /// Work that cannot be posted completes so: what an application has put into a queue of its own is not taken back
    /// when the state has changed meanwhile, or when it is none.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue pair.
    pub fn refuse_send(&mut self, qp: Qp, wr_id: u64, status: Status) -> Result<(), Error> {
        let queue_pair = self.qps.get_mut(qp).ok_or(Error::Invalid)?;
        queue_pair.refuse_send(&mut self.shared, wr_id, status);
        Ok(())
    }

    /// The same for a receive of the queue pair's own queue.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue pair.
    pub fn refuse_recv(&mut self, qp: Qp, wr_id: u64, status: Status) -> Result<(), Error> {
        let queue_pair = self.qps.get_mut(qp).ok_or(Error::Invalid)?;
        queue_pair.refuse_recv(&mut self.shared, wr_id, status);
        Ok(())
    }

    /// The number of the oldest work that is posted to the send queue and has not completed.
    pub fn oldest_send(&self, qp: Qp) -> Option<u64> {
        self.qps.get(qp)?.oldest_send()
    }

    /// What the stream has brought, as slices where it lies, in order. Returns how many bytes are done with; the
    /// others are an FPDU that is not all there, and are given again with what follows them, in whatever slices.
    /// They are at most [`FPDU_MAX`](crate::mpa::layout::FPDU_MAX) less one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue pair.
    pub fn receive<M: Memory>(
        &mut self,
        qp: Qp,
        slices: &[&[u8]],
        memory: &mut M,
    ) -> Result<usize, Error> {
        let queue_pair = self.qps.get_mut(qp).ok_or(Error::Invalid)?;
        Ok(queue_pair.receive(&mut self.shared, slices, memory))
    }

    /// Lets a message that meets no receive wait for one, instead of ending the stream, or not any more: [`receive`](Self::receive) keeps it,
    /// and what follows it but responses, up to [`PARKED_MAX`](crate::verbs::PARKED_MAX) bytes, and looks for receives when it is
    /// called the next time. RFC 5041 section 7 ends the stream by what has come and finds no buffer; what waits has not come.
    /// Programs that were written for InfiniBand rely on such a wait (receiver not ready, RNR).
    pub fn let_wait(&mut self, qp: Qp, waits: bool) {
        if let Some(queue_pair) = self.qps.get_mut(qp) {
            queue_pair.let_wait(waits);
        }
    }

    /// Returns true if a message waited for a receive when [`receive`](Self::receive) was called last, and the stream has not
    /// ended since.
    pub fn is_waiting(&self, qp: Qp) -> bool {
        self.qps.get(qp).is_some_and(|queue_pair| queue_pair.is_waiting())
    }

    /// Returns a number that changes when the message that waits for a receive has got one.
    pub fn waits_since(&self, qp: Qp) -> u64 {
        self.qps.get(qp).map_or(0, |queue_pair| queue_pair.waits_since())
    }

    /// Returns true if [`receive`](Self::receive) takes no more before the message that waits has a receive.
    pub fn is_full(&self, qp: Qp) -> bool {
        self.qps.get(qp).is_some_and(|queue_pair| queue_pair.is_full())
    }

    /// What responses are waited for: of how many reads and atomics, and how many bytes of the first read have come.
    pub fn awaited(&self, qp: Qp) -> (usize, u32) {
        self.qps.get(qp).map_or((0, 0), |queue_pair| queue_pair.awaited())
    }

    /// Writes what the queue pair has to send into `buffer`: whole FPDUs, as many as there is room for. With room
    /// for less than [`fpdu_len`](Self::fpdu_len) it may write nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such queue pair.
    pub fn transmit<M: Memory>(
        &mut self,
        qp: Qp,
        buffer: &mut [u8],
        memory: &mut M,
    ) -> Result<Transmitted, Error> {
        let queue_pair = self.qps.get_mut(qp).ok_or(Error::Invalid)?;
        Ok(queue_pair.transmit(&mut self.shared, buffer, memory))
    }

    /// Whether [`transmit`](Self::transmit) has something to do. It can change by a post, by
    /// [`receive`](Self::receive), and by what ends the stream.
    pub fn wants_transmit(&self, qp: Qp) -> bool {
        self.qps.get(qp).is_some_and(|queue_pair| queue_pair.wants_transmit())
    }

    /// The longest FPDU that the queue pair sends, in bytes of the stream.
    pub fn fpdu_len(&self, qp: Qp) -> usize {
        self.qps.get(qp).map_or(0, |queue_pair| queue_pair.fpdu_len())
    }

    /// Closes the stream in order: what was posted is sent, its responses are waited for, then
    /// [`Transmitted::close`] says [`Close::Orderly`](crate::verbs::Close::Orderly).
    ///
    /// # Errors
    /// [`Error::State`] if there is no stream.
    pub fn disconnect(&mut self, qp: Qp) -> Result<(), Error> {
        self.modify(qp, State::Sqd)
    }

    /// The stream is over: the peer has closed it, it was lost, or it was closed as
    /// [`Transmitted::close`] asked. All that is posted is flushed.
    pub fn stream_ended(&mut self, qp: Qp) {
        if let Some(queue_pair) = self.qps.get_mut(qp) {
            queue_pair.stream_ended(&mut self.shared);
        }
    }
}
