//! The states, and the ways between them.

use alloc::boxed::Box;

use super::QueuePair;
use super::close::Close;
use super::stream::Stream;
use crate::mpa::Negotiated;
use crate::verbs::Error;
use crate::verbs::event::Event;
use crate::verbs::shared::Shared;

/// The states of a queue pair: see [the table](super).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// New, or begun again.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// As `Init`: iWARP knows no difference.
    Rtr = 2,
    /// It has a stream.
    Rts = 3,
    /// Its stream is being closed.
    Sqd = 4,
    /// A Terminate message is to be sent.
    Sqe = 5,
    /// Its stream is over, or about to be.
    Err = 6,
}

impl State {
    /// All of them.
    pub const ALL: [State; 7] =
        [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];

    /// The state of this number; [`State::Err`] if there is none.
    pub fn from_number(number: u64) -> Self {
        let known = usize::try_from(number).ok().and_then(|number| Self::ALL.get(number));
        known.copied().unwrap_or(State::Err)
    }
}

impl QueuePair {
    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn modify(&mut self, shared: &mut Shared, to: State) -> Result<(), Error> {
        use State::{Err as Error_, Init, Reset, Rtr, Rts, Sqd, Sqe};
        match (self.state, to) {
            (Reset, Init) | (Init, Init) | (Init, Rtr) | (Rtr, Rtr) => self.state = to,
            (Sqd, Sqd) => {}
            (Rts, Sqd) => {
                self.state = to;
                if let Some(stream) = &mut self.stream {
                    stream.tx.closing = true;
                }
            }
            (_, Reset) => self.reset(shared),
            (Error_, Error_) => {}
            (_, Error_) => self.abort(shared),
            (Reset | Init | Rtr | Rts | Sqd | Sqe | Error_, _) => return Err(Error::State),
        }
        Ok(())
    }

    /// Begins again. Nothing that was posted completes; the stream is forgotten, and is to be closed.
    fn reset(&mut self, shared: &mut Shared) {
        shared.regions.forget(self.id);
        *self = Self::new(self.id, self.config);
    }

    /// Ends the stream without a word.
    fn abort(&mut self, shared: &mut Shared) {
        let mut stream = self.stream.take();
        self.end(shared, stream.as_deref_mut());
        if let Some(stream) = &mut stream {
            stream.tx.terminate = None;
            stream.tx.close = Some(Close::Abort);
            // Though it was told to close in order.
            stream.tx.close_told = false;
        }
        self.stream = stream;
    }

    pub(crate) fn start(&mut self, negotiated: &Negotiated, emss: usize) -> Result<(), Error> {
        if !matches!(self.state, State::Init | State::Rtr) {
            return Err(Error::State);
        }
        let most = usize::from(self.config.receive_sges);
        self.stream = Some(Box::new(Stream::new(negotiated, emss, most)));
        self.state = State::Rts;
        Ok(())
    }

    pub(crate) fn set_emss(&mut self, emss: usize) {
        if let Some(stream) = &mut self.stream {
            stream.tx.set_emss(emss);
        }
    }

    pub(crate) fn stream_ended(&mut self, shared: &mut Shared) {
        let Some(mut stream) = self.stream.take() else { return };
        self.end(shared, Some(&mut stream));
        shared.events.push_back(Event::Disconnected(self.id));
    }

    /// To the last state; what is posted is flushed, unless it was already.
    fn end(&mut self, shared: &mut Shared, stream: Option<&mut Stream>) {
        let is_flushed = matches!(self.state, State::Sqe | State::Err);
        self.state = State::Err;
        if !is_flushed {
            self.flush(shared, stream, None, None);
        }
    }
}
