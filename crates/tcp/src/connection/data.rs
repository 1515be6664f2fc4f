//! Text, FIN and urgent data: what is stored, and when it is acknowledged (RFC 9293 section 3.10.7.4, sixth
//! to eighth check; section 3.8.6.3).

use wire::{Flags, Seq};

use crate::connection::input::Answer;
use crate::connection::timers::NEVER;
use crate::connection::{Connection, Context, Events};
use crate::options::Block;
use crate::{Nanos, Reason, Segment, State};

/// How far SND.WL1 may lag behind RCV.NXT, in bytes: with the largest window that is less than 2 GB, the
/// distance within which sequence numbers compare.
const WL1_BEHIND: u32 = 1 << 29;

impl Connection {
    /// Seventh and eighth check: text and FIN.
    pub(crate) fn on_text(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) -> Answer {
        let len = segment.payload_len();
        let fin = segment.flags.any(Flags::FIN);
        if len == 0 && !fin {
            return Answer::None;
        }
        if !self.hot.state.may_receive() {
            // A FIN once more; data after it is a peer's mistake and is ignored.
            self.acknowledge_now();
            return Answer::None;
        }
        let end = segment.seq + len;
        if self.hot.bits.released() && end.after(self.hot.rcv_nxt) && len > 0 {
            // No application will read it (RFC 9293 section 3.6.1, RFC 2525 section 2.17).
            self.finish(Reason::Aborted);
            self.hot.snd_nxt = segment.ack;
            return Answer::Reset;
        }
        let start = segment.seq.max(self.hot.rcv_nxt);
        let mut cut = end.min(self.hot.rcv_edge);
        if self.hot.bits.tight() {
            cut = self.cut_to_room(cut);
        }
        let last = self.out_of_order.as_slice().last().map_or(end, |block| block.end);
        if fin && cut == end && self.fin_at.is_none() && !last.after(end) {
            self.fin_at = Some(end);
            self.hot.bits.set_disordered(true);
        }
        // What lies beyond a FIN is dropped, whatever a later segment has there.
        if let Some(at) = self.fin_at {
            cut = cut.min(at);
        }
        if segment.seq.before(self.hot.rcv_nxt) && len > 0 {
            self.note_duplicate(segment);
            self.acknowledge_now();
        }
        let ends = fin && cut == end && self.fin_at == Some(end);
        let behind_hole = start.after(self.hot.rcv_nxt);
        if start.before(cut) {
            self.measure_segment(segment, len);
            self.take(Block { start, end: cut }, ends && behind_hole, segment, context);
        } else if ends && behind_hole {
            self.take(Block { start, end: start }, true, segment, context);
        } else if len > 0 || !ends {
            self.acknowledge_now();
        }
        self.take_fin(context);
        Answer::None
    }

    /// Stores what is new, and moves RCV.NXT over what is in order. Behind a hole a FIN counts as one
    /// sequence number of the block, of which no byte is stored, so that SACK reports it too (as
    /// tcp_data_queue_ofo in Linux does): else the sender sends it again with each hole.
    fn take(&mut self, block: Block, fin: bool, segment: &Segment<'_>, context: &mut Context<'_>) {
        let in_order = block.start == self.hot.rcv_nxt;
        if !in_order && !self.has_room_for(block, context) {
            self.acknowledge_now();
            return;
        }
        let table = self.out_of_order.memory().0;
        if !block.is_empty() {
            let base = self.hot.receive.len();
            let offset = base + (block.start - self.hot.rcv_nxt);
            let skip = block.start - segment.seq;
            if self.hot.receive.is_lent() {
                self.place(block, skip, context);
            } else {
                store(self, offset, skip, block.len(), segment, context);
            }
        }
        if !in_order {
            context.counters.out_of_order += 1;
            let end = block.end + u32::from(fin);
            let duplicate = self.out_of_order.insert(Block { end, ..block });
            self.count_out_of_order(table, context);
            self.hot.bits.set_disordered(true);
            self.hot.bits.set_reports(true);
            if self.hot.bits.sack() && duplicate.is_some() {
                self.duplicate = duplicate;
            }
            // RFC 5681 section 4.2: at once, so that the sender learns of the hole.
            self.acknowledge_disorder(block.len(), segment.gso_size);
            return;
        }
        let mut next = block.end;
        if !self.out_of_order.is_empty() {
            if let Some(first) = self.out_of_order.as_slice().first().copied()
                && first.start.before(block.end)
                && self.hot.bits.sack()
            {
                self.duplicate = Some(Block { start: first.start, end: first.end.min(block.end) });
            }
            next = self.out_of_order.advance(block.end);
            self.count_out_of_order(table, context);
            // The FIN is no byte, and is taken by itself.
            next = self.fin_at.map_or(next, |at| next.min(at));
            let left = !self.out_of_order.is_empty();
            self.hot.bits.set_disordered(left || self.fin_at.is_some());
            self.hot.bits.set_reports(left || self.duplicate.is_some());
            self.forget_dup_acks();
            // RFC 5681 section 4.2: a segment that fills a hole is acknowledged at once.
            self.acknowledge_now();
        }
        self.hot.receive.extend(next - self.hot.rcv_nxt);
        self.hot.rcv_nxt = next;
        self.bound_wl1();
        self.hot.events.add(Events::READABLE);
        self.schedule_ack(context);
    }

    /// Moves SND.WL1 after RCV.NXT. It stays where it is while all acknowledgments of a peer are old, and
    /// after 2 GB it would compare as later than RCV.NXT (RFC 9293 section 3.4).
    pub(crate) fn bound_wl1(&mut self) {
        let oldest = Seq(self.hot.rcv_nxt.0.wrapping_sub(WL1_BEHIND));
        if self.hot.snd_wl1.before(oldest) {
            self.hot.snd_wl1 = oldest;
        }
    }

    /// When in-order data is acknowledged: at least every second full segment, and within the delay
    /// (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2).
    #[inline]
    pub(crate) fn schedule_ack(&mut self, context: &mut Context<'_>) {
        self.hot.bits.set_unanswered(true);
        let waiting = self.hot.rcv_nxt - self.hot.rcv_acked;
        if waiting > u32::from(self.hot.rcv_mss) {
            self.hot.bits.set_ack_now(true);
        } else if self.hot.quick > 0 && !self.hot.bits.interactive() {
            // A sender in slow start waits for every acknowledgment.
            self.hot.quick -= 1;
            self.hot.bits.set_ack_now(true);
        } else if self.hot.ack_deadline == NEVER {
            self.hot.ack_deadline = context.now + Nanos::from(self.delayed_ack);
        }
    }

    /// Takes the largest segment of late for the peer's full segment.
    #[inline]
    pub(crate) fn measure_segment(&mut self, segment: &Segment<'_>, len: u32) {
        let one = if segment.gso_size > 0 { u32::from(segment.gso_size) } else { len };
        let one = one.min(u32::from(u16::MAX)) as u16;
        if one > self.hot.rcv_mss {
            self.hot.rcv_mss = one.min(self.our_mss());
        }
    }

    /// Whether data stands behind a hole, and not only the peer's FIN.
    pub(crate) fn has_data_behind_hole(&self) -> bool {
        let first = self.out_of_order.as_slice().first();
        first.is_some_and(|block| self.fin_at != Some(block.start))
    }

    /// The peer's FIN is in order: it has closed.
    fn take_fin(&mut self, context: &mut Context<'_>) {
        let Some(at) = self.fin_at else { return };
        if at != self.hot.rcv_nxt {
            return;
        }
        self.hot.rcv_nxt += 1;
        self.hot.rcv_edge = self.hot.rcv_edge.max(self.hot.rcv_nxt);
        self.hot.events.add(Events::READABLE);
        self.acknowledge_now();
        match self.hot.state {
            State::Established => self.hot.state = State::CloseWait,
            State::FinWait1 if self.is_fin_acknowledged() => self.enter_time_wait(context.now),
            State::FinWait1 => self.hot.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(context.now),
            _ => {}
        }
    }

    /// Sixth check: urgent data. The pointer is one after the urgent byte, as in Linux and BSD, and so in all
    /// others (RFC 6093 section 2.1).
    pub(crate) fn on_urgent(&mut self, segment: &Segment<'_>, context: &mut Context<'_>) {
        let is_urgent = segment.flags.any(Flags::URG) && segment.urgent != 0;
        // An application to which the queues are lent reads what lies there: it has no mark to stop at.
        if !is_urgent || !self.hot.state.may_receive() || self.hot.receive.is_lent() {
            return;
        }
        let up = segment.seq + u32::from(segment.urgent);
        let last = self.rcv_urgent.unwrap_or(self.read_seq());
        // Behind what was read, or before what is urgent already: nothing new.
        if !up.after(last) || up.after(self.hot.rcv_edge + 1) {
            return;
        }
        context.counters.urgent += 1;
        self.set_rcv_urgent(Some(up));
        self.urgent_read = false;
        self.hot.events.add(Events::URGENT);
    }

    /// Sequence number of the next byte that the application reads.
    pub(crate) fn read_seq(&self) -> Seq {
        let fin = u32::from(self.fin_at.is_some_and(|at| at.before(self.hot.rcv_nxt)));
        Seq((self.hot.rcv_nxt.0).wrapping_sub(fin).wrapping_sub(self.hot.receive.len()))
    }
}

/// Writes `len` bytes of the payload from `skip` on at `offset` of the receive queue.
#[inline]
fn store(
    connection: &mut Connection,
    mut offset: u32,
    mut skip: u32,
    mut len: u32,
    segment: &Segment<'_>,
    context: &mut Context<'_>,
) {
    for piece in segment.payload {
        let size = piece.len() as u32;
        if skip >= size {
            skip -= size;
            continue;
        }
        let part = &piece[skip as usize..(size.min(skip + len)) as usize];
        connection.hot.receive.write_at(offset, part, context.pool);
        offset += part.len() as u32;
        len -= part.len() as u32;
        skip = 0;
        if len == 0 {
            break;
        }
    }
}
