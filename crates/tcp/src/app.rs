//! The application's calls (RFC 9293 section 3.9.1).

use core::fmt;
use core::ops::Deref;

use crate::connection::{Connection, Context, Events};
use crate::stack::{Id, Stack};
use crate::timers::{NEVER, Pending};
use crate::{Keepalive, Nanos, Reason, State};

/// Why nothing can be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The application has closed its half already (EPIPE).
    Closing,
    /// The connection is over.
    Ended(Reason),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SendError::Closing => f.write_str("this end is closed for sending already"),
            SendError::Ended(reason) => reason.fmt(f),
        }
    }
}

impl core::error::Error for SendError {}

/// Why nothing can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiveError {
    /// Nothing is there yet (EAGAIN).
    Empty,
    /// The connection is over, and not because both had closed.
    Ended(Reason),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiveError::Empty => f.write_str("nothing has come yet"),
            ReceiveError::Ended(reason) => reason.fmt(f),
        }
    }
}

impl core::error::Error for ReceiveError {}

/// A connection in the hands of its application, for a moment. When it is dropped the stack takes up
/// what has changed.
#[derive(Debug)]
pub struct Socket<'a> {
    stack: &'a mut Stack,
    id: Id,
    now: Nanos,
}

impl Deref for Socket<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.stack.expect(self.id)
    }
}

impl Drop for Socket<'_> {
    fn drop(&mut self) {
        self.stack.settle(self.id.slot());
    }
}

impl<'a> Socket<'a> {
    /// `id` is alive.
    pub(crate) fn new(stack: &'a mut Stack, id: Id, now: Nanos) -> Self {
        Socket { stack, id, now }
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut Connection, &mut Context<'_>) -> R) -> R {
        self.stack.with(self.id.slot(), self.now, call)
    }

    /// Queues as many of `bytes` as there is room for; 0 if there is none, and then
    /// [`Events::WRITABLE`] tells when there is.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        self.with(|connection, context| connection.queue(bytes, context))
    }

    /// As [`send`](Self::send); the last byte taken is urgent (RFC 9293 section 3.8.5, which asks new
    /// programs not to use this).
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_urgent(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        self.with(|connection, context| {
            let taken = connection.queue(bytes, context)?;
            if taken > 0 {
                connection.snd_urgent = Some(connection.queue_end());
            }
            Ok(taken)
        })
    }

    /// Moves what has come in order to `into`; 0 means that the peer has closed. It stops before an
    /// urgent byte, and passes over it unless it was asked for in line.
    ///
    /// # Errors
    /// See [`ReceiveError`].
    pub fn receive(&mut self, into: &mut [u8]) -> Result<usize, ReceiveError> {
        self.with(|connection, context| connection.read(into, context))
    }

    /// What has come in order, where it lies, up to an urgent byte; the first of it, where that is more
    /// than lies in two pieces. [`consume`](Self::consume) takes it off.
    pub fn readable(&self) -> [&[u8]; 2] {
        self.hot.receive.slices(0, self.before_urgent())
    }

    /// Takes the first `bytes` of [`readable`](Self::readable) off.
    pub fn consume(&mut self, bytes: usize) {
        self.with(|connection, context| {
            let bytes = connection.before_urgent().min(u32::try_from(bytes).unwrap_or(u32::MAX));
            connection.take_off(bytes, context);
        });
    }

    /// The urgent byte, if it has come and is not in line.
    pub fn receive_urgent(&mut self) -> Option<u8> {
        self.with(|connection, context| connection.read_urgent(context))
    }

    /// No more data from here: a FIN follows what is queued (SHUT_WR).
    pub fn shutdown(&mut self) {
        self.with(|connection, _| connection.shut());
    }

    /// The application closes its socket. What is queued is still sent; if there is data that it has not
    /// read, the peer is told by a reset (RFC 2525 section 2.17). The connection goes away by itself.
    pub fn close(&mut self) {
        self.with(|connection, context| connection.release(context));
    }

    /// Ends the connection at once, by a reset (RFC 9293 section 3.10.5).
    pub fn abort(&mut self) {
        self.with(|connection, _| connection.abort());
    }

    /// Switches Nagle's algorithm off or on (TCP_NODELAY). Off sends what it held.
    pub fn set_no_delay(&mut self, yes: bool) {
        self.with(|connection, _| {
            connection.hot.bits.set_no_delay(yes);
            connection.hot.bits.set_push_small(yes);
        });
    }

    /// Holds back what is less than a segment (TCP_CORK), at most for a retransmission time-out after the last data
    /// was acknowledged: some 200 ms.
    pub fn set_cork(&mut self, yes: bool) {
        self.with(|connection, _| {
            let uncorked = connection.hot.bits.cork() && !yes;
            connection.hot.bits.set_cork(yes);
            connection.hot.bits.set_push_small(uncorked);
        });
    }

    /// Acknowledges at once from now on, or as conversations do (TCP_QUICKACK).
    pub fn set_quick_ack(&mut self, yes: bool) {
        self.with(|connection, _| {
            connection.hot.bits.set_interactive(!yes);
            connection.hot.quick = if yes { 16 } else { 0 };
            if yes && connection.hot.ack_deadline != NEVER {
                connection.acknowledge_now();
            }
        });
    }

    /// Probes a silent peer (SO_KEEPALIVE).
    pub fn set_keepalive(&mut self, keepalive: Option<Keepalive>) {
        self.with(|connection, context| {
            connection.keepalive = keepalive.map(Keepalive::bounded);
            connection.keepalive_probes = 0;
            if connection.hot.state.is_synchronized() && connection.hot.state != State::TimeWait {
                connection.arm_slow(context.now);
            }
        });
    }

    /// How long data may stay unacknowledged, in nanoseconds; 0 for what the retries give
    /// (TCP_USER_TIMEOUT).
    pub fn set_user_timeout(&mut self, timeout: Nanos) {
        let timeout = timeout.min(crate::snapshot::USER_TIMEOUT_MAX);
        self.with(|connection, _| connection.user_timeout = timeout);
    }

    /// The urgent byte stays in the stream (SO_OOBINLINE).
    pub fn set_urgent_inline(&mut self, yes: bool) {
        self.with(|connection, _| connection.urgent_inline = yes);
    }
}

impl Connection {
    fn queue(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Result<usize, SendError> {
        if let Some(reason) = self.end {
            return Err(SendError::Ended(reason));
        }
        if self.hot.bits.fin_queued() || !self.hot.state.may_send() {
            return Err(SendError::Closing);
        }
        let wanted = bytes.len().min(self.send_space());
        let taken = wanted.min(self.memory_for(wanted, context));
        self.wants_space |= taken < bytes.len();
        self.hot.send.push(&bytes[..taken], context.pool);
        Ok(taken)
    }

    /// Bytes that can be read before the urgent one.
    fn before_urgent(&self) -> u32 {
        let len = self.hot.receive.len();
        if !self.hot.bits.urgent() {
            return len;
        }
        match self.rcv_urgent {
            Some(up) => {
                let ahead = (up - self.read_seq()).wrapping_sub(1);
                // In line, it begins a read of its own.
                if ahead < len && !(self.urgent_inline && ahead == 0) { ahead } else { len }
            }
            _ => len,
        }
    }

    fn read(&mut self, into: &mut [u8], context: &mut Context<'_>) -> Result<usize, ReceiveError> {
        if self.before_urgent() == 0 && !self.hot.receive.is_empty() {
            // At the mark: the urgent byte was not asked for, and is passed over.
            self.set_rcv_urgent(None);
            self.take_off(1, context);
        }
        let len = self.before_urgent().min(u32::try_from(into.len()).unwrap_or(u32::MAX));
        if len == 0 && !into.is_empty() {
            return match self.end {
                Some(Reason::Closed) => Ok(0),
                Some(reason) => Err(ReceiveError::Ended(reason)),
                None if self.is_at_end() => Ok(0),
                None => Err(ReceiveError::Empty),
            };
        }
        let copied = self.hot.receive.copy_out(&mut into[..len as usize]);
        self.take_off(copied, context);
        Ok(copied as usize)
    }

    fn take_off(&mut self, bytes: u32, context: &mut Context<'_>) {
        let keep = self.hot.bits.disordered();
        self.hot.receive.consume(bytes, keep, context.pool);
        if self.hot.bits.urgent()
            && self.urgent_inline
            && self.rcv_urgent.is_some_and(|up| !up.after(self.read_seq()))
        {
            self.set_rcv_urgent(None);
        }
        self.after_read(context);
    }

    fn read_urgent(&mut self, context: &mut Context<'_>) -> Option<u8> {
        let up = self.rcv_urgent?;
        let ahead = (up - self.read_seq()).wrapping_sub(1);
        if self.urgent_inline || self.urgent_read || ahead >= self.hot.receive.len() {
            return None;
        }
        let [first, second] = self.hot.receive.slices(ahead, 1);
        let byte = first.first().or(second.first()).copied()?;
        self.urgent_read = true;
        if ahead == 0 {
            self.set_rcv_urgent(None);
            self.take_off(1, context);
        }
        Some(byte)
    }

    /// RFC 9293 section 3.10.4.
    fn shut(&mut self) {
        if self.hot.state == State::SynSent {
            self.finish(Reason::Aborted);
            return;
        }
        if self.hot.bits.fin_queued() || self.end.is_some() {
            return;
        }
        match self.hot.state {
            // The FIN waits until the connection is there.
            State::SynReceived => self.hot.bits.set_fin_queued(true),
            State::Established | State::CloseWait => {
                self.hot.bits.set_fin_queued(true);
                self.hot.state = if self.hot.state == State::Established {
                    State::FinWait1
                } else {
                    State::LastAck
                };
                if self.hot.pending == Pending::Persist {
                    self.set_pending(Pending::None, NEVER);
                }
            }
            _ => {}
        }
    }

    fn release(&mut self, context: &mut Context<'_>) {
        let unread = !self.hot.receive.is_empty() || self.has_data_behind_hole();
        if unread && self.hot.state.is_synchronized() && self.hot.state != State::TimeWait {
            self.abort();
            return;
        }
        self.hot.bits.set_released(true);
        self.hot.events = Events::default();
        self.shut();
        if self.hot.state == State::FinWait2 {
            self.arm_slow(context.now);
        }
    }

    fn abort(&mut self) {
        let told = self.hot.state >= State::SynReceived && self.hot.state != State::TimeWait;
        if self.end.is_none() {
            self.finish(Reason::Aborted);
            self.hot.bits.set_reset_due(told);
        }
        self.hot.bits.set_released(true);
        self.hot.events = Events::default();
    }
}
