//! What holds of a connection between any two calls. Debug builds look at it after each: tests,
//! simulation and fuzzing run with it.

use crate::connection::Connection;
use crate::connection::timers::Pending;
use crate::state::State;

impl Connection {
    /// Panics in a debug build if the connection contradicts itself.
    #[inline]
    pub(crate) fn debug_check(&self) {
        debug_assert!(
            self.end.is_none() || self.hot.state == State::Closed,
            "over, but not closed"
        );
        if cfg!(debug_assertions) && self.hot.state.is_synchronized() {
            self.check_send();
            self.check_receive();
            self.check_window();
        }
    }

    /// RFC 9293 section 3.3.1: SND.UNA is no later than SND.NXT. What lies between them is in flight, and
    /// a timer runs for it.
    fn check_send(&self) {
        let (una, nxt) = (self.hot.snd_una, self.hot.snd_nxt);
        debug_assert!(!una.after(nxt), "SND.UNA {una:?} is behind SND.NXT {nxt:?}");
        let in_flight = nxt - una;
        debug_assert_eq!(self.flight.outstanding(), in_flight, "the scoreboard has all in flight");
        let (sacked, lost) = (self.flight.sacked(), self.flight.lost());
        debug_assert!(
            sacked + lost <= in_flight,
            "{sacked} by SACK and {lost} lost of {in_flight}"
        );
        let queued = self.hot.send.len();
        debug_assert!(in_flight <= queued + 1, "{in_flight} in flight of {queued} and a FIN");
        let timed = self.hot.pending != Pending::None;
        debug_assert!(in_flight == 0 || timed, "{in_flight} in flight and no timer");
    }

    /// The window's right edge does not move left; a FIN behind it takes no room. What is out of order
    /// lies behind a hole.
    fn check_receive(&self) {
        let nxt = self.hot.rcv_nxt;
        let edge = self.hot.rcv_edge.distance(nxt);
        debug_assert!(edge >= -1, "the window ends {edge} bytes behind RCV.NXT");
        let first = self.out_of_order.as_slice().first();
        debug_assert!(
            first.is_none_or(|block| block.start.after(nxt)),
            "{first:?} does not lie behind a hole at {nxt:?}"
        );
    }

    /// A segment may always be sent (RFC 5681 section 3.1, the loss window).
    fn check_window(&self) {
        let (cwnd, mss) = (self.window.cwnd, u32::from(self.hot.mss));
        debug_assert!(cwnd >= mss, "the window is {cwnd}, a segment {mss}");
        debug_assert!(self.window.mss == mss, "{} is not {mss}", self.window.mss);
        debug_assert!(self.window.ssthresh > 0);
    }
}
