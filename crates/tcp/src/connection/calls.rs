//! The application's calls (RFC 9293 section 3.9.1).

use core::fmt;

use crate::connection::timers::{NEVER, Pending};
use crate::connection::{Connection, Context, Events};
use crate::{Reason, State};

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

impl Connection {
    pub(crate) fn queue(
        &mut self,
        bytes: &[u8],
        context: &mut Context<'_>,
    ) -> Result<usize, SendError> {
        self.may_queue()?;
        let wanted = bytes.len().min(self.send_space());
        let taken = wanted.min(self.memory_for(wanted, context));
        self.wants_space |= taken < bytes.len();
        self.hot.send.push(&bytes[..taken], context.pool);
        Ok(taken)
    }

    /// Why nothing more can be queued, if so.
    pub(crate) fn may_queue(&self) -> Result<(), SendError> {
        if let Some(reason) = self.end {
            return Err(SendError::Ended(reason));
        }
        if self.hot.bits.fin_queued() || !self.hot.state.may_send() {
            return Err(SendError::Closing);
        }
        Ok(())
    }

    /// Bytes that can be read before the urgent one.
    pub(crate) fn before_urgent(&self) -> u32 {
        let len = self.hot.receive.len();
        if !self.hot.bits.urgent() {
            return len;
        }
        match self.rcv_urgent {
            Some(up) => {
                let ahead = (up - self.read_seq()).wrapping_sub(1);
                // In line, a read begins at it.
                if ahead < len && !(self.urgent_inline && ahead == 0) { ahead } else { len }
            }
            _ => len,
        }
    }

    pub(crate) fn read(
        &mut self,
        into: &mut [u8],
        context: &mut Context<'_>,
    ) -> Result<usize, ReceiveError> {
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

    pub(crate) fn take_off(&mut self, bytes: u32, context: &mut Context<'_>) {
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

    pub(crate) fn read_urgent(&mut self, context: &mut Context<'_>) -> Option<u8> {
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
    pub(crate) fn shut(&mut self) {
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

    pub(crate) fn release(&mut self, context: &mut Context<'_>) {
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

    pub(crate) fn abort(&mut self) {
        let resets = self.hot.state >= State::SynReceived && self.hot.state != State::TimeWait;
        if self.end.is_none() {
            self.finish(Reason::Aborted);
            self.hot.bits.set_reset_due(resets);
        }
        self.hot.bits.set_released(true);
        self.hot.events = Events::default();
    }
}
