//! Header prediction: the commonest segment is in order, with nothing unusual, on an established connection.
//! Here is what the checks of RFC 9293 section 3.10.7.4 come to for it.

use wire::Flags;

use crate::connection::{Connection, Context, Events};
use crate::options::Block;
use crate::{Segment, State};

impl Connection {
    /// Whether it is an in-order segment with data and nothing new in its acknowledgment.
    #[inline]
    pub(crate) fn is_predicted(&self, segment: &Segment<'_>) -> bool {
        let hot = &self.hot;
        let flags = segment.flags.without(Flags::PSH);
        hot.state == State::Established
            && flags == Flags::ACK
            && segment.seq == hot.rcv_nxt
            && segment.ack == hot.snd_una
            && u32::from(segment.window) << hot.snd_shift == hot.snd_wnd
            && !segment.ce
            && !hot.bits.ecn_echo()
            && !hot.bits.released()
            && segment.options.sack.is_empty()
            && segment.options.user_timeout.is_none()
            && segment.payload_len() > 0
            && !hot.bits.disordered()
            && !hot.bits.tight()
            && self.is_newer(segment)
    }

    /// Timestamps as they were agreed to, and not older than the last.
    #[inline]
    fn is_newer(&self, segment: &Segment<'_>) -> bool {
        match segment.options.timestamps {
            Some(timestamps) => {
                self.hot.bits.timestamps()
                    && self.hot.ts_recent.wrapping_sub(timestamps.value.0) as i32 <= 0
            }
            None => !self.hot.bits.timestamps(),
        }
    }

    /// Takes a segment that [`is_predicted`](Self::is_predicted).
    #[inline]
    pub(crate) fn on_predicted(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) {
        let len = segment.payload_len();
        let window = self.hot.rcv_edge - self.hot.rcv_nxt;
        let take = len.min(window);
        self.hot.snd_wl1 = segment.seq;
        self.take_timestamps(segment, context.now);
        self.hot.last_received = context.now;
        if take < len {
            self.acknowledge_now();
        }
        if take == 0 {
            return;
        }
        if self.hot.receive.is_lent() {
            self.place(Block { start: segment.seq, end: segment.seq + take }, 0, context);
            self.hot.receive.extend(take);
        } else {
            let mut left = take as usize;
            for piece in segment.payload {
                let part = &piece[..piece.len().min(left)];
                self.hot.receive.push(part, context.pool);
                left -= part.len();
            }
        }
        self.measure_segment(segment, len);
        self.hot.rcv_nxt += take;
        self.hot.events.add(Events::READABLE);
        self.schedule_ack(context);
    }
}
