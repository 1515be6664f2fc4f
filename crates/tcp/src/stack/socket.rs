//! The application's view of a connection.

use core::ops::Deref;

use super::{Id, Stack};
use crate::connection::{Connection, Context, NEVER, ReceiveError, SendError};
use crate::{Keepalive, Nanos, State};

/// A connection on which its application makes calls. When it is dropped the stack takes up what has changed.
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
    /// `id` names a connection of the stack.
    pub(crate) fn new(stack: &'a mut Stack, id: Id, now: Nanos) -> Self {
        Socket { stack, id, now }
    }

    fn with<R>(&mut self, call: impl FnOnce(&mut Connection, &mut Context<'_>) -> R) -> R {
        let (result, traced) = self.stack.with(self.id.slot(), self.now, |connection, context| {
            let result = call(connection, context);
            (result, connection.hot.bits.traced())
        });
        if traced {
            self.stack.trace_changes(self.id.slot(), self.now);
        }
        result
    }

    /// Queues as many of `bytes` as there is room for; 0 if there is none, and then
    /// [`Events::WRITABLE`](crate::Events::WRITABLE) comes when there is.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        self.with(|connection, context| connection.queue(bytes, context))
    }

    /// Of a [lent](Stack::thaw_lent) connection: so many bytes more are to be sent, which lie with the application.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn lend(&mut self, bytes: u32) -> Result<(), SendError> {
        self.with(|connection, _| connection.lend(bytes))
    }

    /// The application of a [lent](Stack::thaw_lent) connection has memory for so many bytes that it has not read, no
    /// fewer than before.
    pub fn set_room(&mut self, bytes: u32) {
        self.with(|connection, _| connection.set_room(bytes));
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
    /// read, a reset is sent (RFC 2525 section 2.17). The connection goes away by itself.
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

    /// Whether [`Events::ACKNOWLEDGED`](crate::Events::ACKNOWLEDGED) is to come when data is acknowledged.
    pub fn tell_acknowledged(&mut self, yes: bool) {
        self.with(|connection, _| connection.hot.bits.set_tells_acks(yes));
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
