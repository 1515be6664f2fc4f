//! A connection becomes a snapshot, and a snapshot a connection.

use alloc::sync::Arc;
use alloc::vec::Vec;

use wire::Seq;

use crate::config::Config;
use crate::congestion::Congestion;
use crate::connection::duplicates::DuplicateAcks;
use crate::connection::timers::{NEVER, NOT_YET, Pending};
use crate::connection::{Connection, Events, Lend};
use crate::flight::Sent;
use crate::pool::Pool;
use crate::reassembly::OUT_OF_ORDER_MAX;
use crate::snapshot::{
    Agreed, Control, Flight, Moment, Receiving, RoundTrip, Sending, Snapshot, SocketOptions,
    TIME_MAX, Timers,
};
use crate::{FourTuple, Nanos, State};

/// Bound of the memory for the received bytes of a snapshot, as a multiple of their number.
const SPARSE: usize = 64;
/// Memory that they may take in any case: as much as the largest window without scaling.
const ROOM_LEAST: usize = 64 << 10;

impl Connection {
    /// A snapshot: everything of the connection that its peer could notice. `None` if it is over.
    pub(crate) fn snapshot(&self, lend: &mut Lend<'_>, now: Nanos) -> Option<Snapshot> {
        if self.hot.state == State::Closed {
            return None;
        }
        let path = self.key.path();
        Some(Snapshot {
            local: path.local,
            remote: path.remote,
            state: self.hot.state,
            agreed: self.agreed(),
            mss: self.hot.mss,
            path_mtu: self.path_mtu,
            ts_now: self.ts_clock(now),
            send: self.sending(lend, now),
            receive: self.receiving(lend, now),
            round_trip: RoundTrip {
                srtt: self.rtt.srtt,
                rttvar: self.rtt.rttvar,
                min: self.rtt.min,
                backoff: self.rtt.backoff,
            },
            control: Control {
                algorithm: self.congestion.algorithm(),
                cwnd: self.window.cwnd,
                ssthresh: self.window.ssthresh,
                private: self.congestion.private(now),
                recovery: self.recovery.state,
                recovery_point: self.recovery.point,
                duplicates: self.recovery.duplicates,
                reordering: self.recovery.reordering,
                reorder_window: self.recovery.reorder_window,
            },
            timers: self.timers(now),
            socket_options: SocketOptions {
                no_delay: self.hot.bits.no_delay(),
                cork: self.hot.bits.cork(),
                urgent_inline: self.urgent_inline,
                keepalive: self.keepalive,
                user_timeout: self.user_timeout,
            },
            moment: self.moment(now),
        })
    }

    fn agreed(&self) -> Agreed {
        Agreed {
            iss: self.iss,
            irs: self.irs,
            peer_mss: self.peer_mss,
            our_mss: self.our_mss(),
            window_scale: self.scaled.then_some((self.hot.snd_shift, self.hot.rcv_shift)),
            sack: self.hot.bits.sack(),
            timestamps: self.hot.bits.timestamps(),
            ecn: self.hot.bits.ecn(),
        }
    }

    fn sending(&self, lend: &mut Lend<'_>, now: Nanos) -> Sending {
        let flight = |sent: Sent| Flight {
            len: sent.len(),
            size: sent.size,
            ago: since(sent.at, now),
            sacked: sent.sacked,
            lost: sent.lost,
            retransmitted: sent.retransmitted,
            probe: sent.probe,
        };
        Sending {
            una: self.hot.snd_una,
            nxt: self.hot.snd_nxt,
            wnd: self.hot.snd_wnd,
            max_wnd: self.max_snd_wnd,
            bytes_acked: self.bytes_acked,
            wl1: self.hot.snd_wl1,
            wl2: self.hot.snd_wl2,
            urgent: self.snd_urgent,
            small: self.snd_small,
            queue: self.copy_sent(lend),
            fin: self.hot.bits.fin_queued(),
            flight: self.flight.iter().map(flight).collect(),
        }
    }

    fn receiving(&self, lend: &mut Lend<'_>, now: Nanos) -> Receiving {
        let ring = &self.hot.receive;
        let queue = self.copy_received(0, ring.len(), lend);
        let out_of_order = self.out_of_order.as_slice().iter().map(|&block| {
            let offset = ring.len() + (block.start - self.hot.rcv_nxt);
            let end = self.fin_at.map_or(block.end, |at| block.end.min(at));
            (block, self.copy_received(offset, end - block.start, lend))
        });
        Receiving {
            nxt: self.hot.rcv_nxt,
            acked: self.hot.rcv_acked,
            edge: self.hot.rcv_edge,
            buffer: self.hot.buffer,
            queue,
            out_of_order: out_of_order.collect(),
            recent: self.out_of_order.recent().as_slice().to_vec(),
            fin: self.fin_at,
            urgent: self.rcv_urgent,
            ts_recent: (self.hot.ts_recent, self.moment(now).received_ago),
            mss: self.hot.rcv_mss,
            ecn_echo: self.hot.bits.ecn_echo(),
        }
    }

    fn timers(&self, now: Nanos) -> Timers {
        let left = |deadline: Nanos| (deadline != NEVER).then(|| since(now, deadline));
        let of = |pending| {
            if self.hot.pending == pending { left(self.retransmit_deadline) } else { None }
        };
        let waits = self.hot.state == State::TimeWait
            || self.hot.state == State::FinWait2 && self.hot.bits.released();
        let slow = left(self.slow_deadline);
        Timers {
            retransmit: of(Pending::Rto),
            tail_probe: of(Pending::TailProbe),
            reorder: of(Pending::Reorder),
            persist: of(Pending::Persist),
            delayed_ack: if self.hot.bits.ack_now() {
                Some(0)
            } else {
                left(self.hot.ack_deadline)
            },
            keepalive: if waits { None } else { slow },
            time_wait: if waits { slow } else { None },
        }
    }

    fn moment(&self, now: Nanos) -> Moment {
        // An instant that has not come about is written as 0.
        let ago = |at: Nanos| if at == NOT_YET { 0 } else { since(at, now) };
        let (bits, recovery) = (self.hot.bits, &self.recovery);
        Moment {
            quick: self.hot.quick,
            interactive: bits.interactive(),
            unanswered: bits.unanswered(),
            round: (self.most_out, self.round_end),
            cwnd_limited: bits.cwnd_limited(),
            cwr_due: bits.cwr_due(),
            syn_due: bits.syn_due(),
            probe_due: bits.probe_due(),
            push_small: bits.push_small(),
            duplicate: self.duplicate,
            retransmits: self.retransmits,
            retransmitted_ago: ago(self.retransmit_since),
            keepalive_probes: self.keepalive_probes,
            received_ago: ago(self.hot.last_received),
            sent_ago: ago(self.last_sent),
            challenged_ago: (self.last_challenge != NOT_YET).then(|| ago(self.last_challenge)),
            stalled_ago: ago(self.stalled_since),
            min_ago: ago(self.rtt.min_at),
            tuned: (self.hot.tune_at, ago(self.tune_since)),
            mtu_high: self.mtu.high,
            mtu_probe: self.mtu.probe,
            mtu_tried_ago: ago(self.mtu.tried),
            prior: (recovery.prior_cwnd, recovery.prior_ssthresh),
            undo: recovery.undo,
            reduced: recovery.reduced,
            undo_from: recovery.undo_from,
            undo_bytes: recovery.undo_bytes,
            undo_ts: recovery.undo_ts,
            prr: (recovery.prr_delivered, recovery.prr_out),
            prr_flight: recovery.prr_flight,
            frto: recovery.frto,
            frto_new: recovery.frto_new,
            rack_ago: (recovery.rack_at != NOT_YET).then(|| ago(recovery.rack_at)),
            rack_end: recovery.rack_end,
            rack_rtt: recovery.rack_rtt,
            fack: recovery.fack,
            reorder_persist: recovery.reorder_persist,
            duplicate_round: recovery.duplicate_round,
            tlp_end: recovery.tlp_end,
            tlp_retransmitted: recovery.tlp_retransmitted,
            tail_probe: self.tail_probe,
            urgent_read: self.urgent_read,
            dup_acks: (self.dup_acks.due, self.dup_acks.singly),
            first_timestamp: self.first_timestamp,
        }
    }

    /// The connection of a valid snapshot. `config` gives what a snapshot does not have: sizes of buffers
    /// and times.
    pub(crate) fn thaw(
        snapshot: &Snapshot,
        config: Arc<Config>,
        room: Option<u32>,
        now: Nanos,
        pool: &mut Pool,
    ) -> Connection {
        let path = FourTuple { local: snapshot.local, remote: snapshot.remote };
        let clock = (now / 1_000_000) as u32;
        let ts_offset = snapshot.ts_now.wrapping_sub(clock);
        let mut connection = Connection::new(&path, config, snapshot.agreed.iss, ts_offset);
        if let Some(room) = room {
            connection.lend_queues(room);
        }
        connection.hot.state = snapshot.state;
        connection.take_agreed(snapshot);
        connection.take_sending(&snapshot.send, now, pool);
        connection.take_receiving(&snapshot.receive, now, pool);
        connection.review_room();
        connection.take_control(snapshot, now);
        connection.take_timers(&snapshot.timers, now);
        connection.take_moment(&snapshot.moment, now);
        connection.rtt.srtt = snapshot.round_trip.srtt;
        connection.rtt.rttvar = snapshot.round_trip.rttvar;
        connection.rtt.min = snapshot.round_trip.min;
        connection.rtt.backoff = snapshot.round_trip.backoff;
        connection.wants_space = true;
        if !snapshot.receive.queue.is_empty() || connection.is_at_end() {
            connection.hot.events.add(Events::READABLE);
        }
        connection.hot.events.add(Events::WRITABLE);
        connection
    }

    fn take_agreed(&mut self, snapshot: &Snapshot) {
        let agreed = &snapshot.agreed;
        self.irs = agreed.irs;
        self.peer_mss = agreed.peer_mss;
        self.scaled = agreed.window_scale.is_some();
        let (theirs, ours) = agreed.window_scale.unwrap_or((0, 0));
        self.hot.snd_shift = theirs;
        self.hot.rcv_shift = ours;
        self.hot.bits.set_sack(agreed.sack);
        self.hot.bits.set_timestamps(agreed.timestamps);
        self.hot.bits.set_ecn(agreed.ecn);
        self.hot.mss = snapshot.mss;
        self.window.mss = u32::from(self.hot.mss);
        self.path_mtu = snapshot.path_mtu;
        let options = &snapshot.socket_options;
        self.hot.bits.set_no_delay(options.no_delay);
        self.hot.bits.set_cork(options.cork);
        self.urgent_inline = options.urgent_inline;
        self.keepalive = options.keepalive;
        self.user_timeout = options.user_timeout;
    }

    fn take_sending(&mut self, send: &Sending, now: Nanos, pool: &mut Pool) {
        self.hot.snd_una = send.una;
        self.hot.snd_nxt = send.nxt;
        self.hot.snd_wnd = send.wnd;
        self.max_snd_wnd = send.max_wnd;
        self.bytes_acked = send.bytes_acked;
        self.hot.snd_wl1 = send.wl1;
        self.hot.snd_wl2 = send.wl2;
        self.snd_urgent = send.urgent;
        self.snd_small = send.small;
        self.hot.send.push(&send.queue, pool);
        self.hot.bits.set_fin_queued(send.fin);
        let mut start = send.una;
        for flight in &send.flight {
            let end = start + flight.len;
            self.flight.restore(Sent {
                start,
                end,
                at: now.saturating_sub(flight.ago),
                size: if flight.size == 0 { self.hot.mss } else { flight.size },
                sacked: flight.sacked,
                lost: flight.lost,
                retransmitted: flight.retransmitted,
                probe: flight.probe,
            });
            start = end;
        }
        let sent = send.nxt.after(self.queue_end());
        let acknowledged = matches!(self.hot.state, State::FinWait2 | State::TimeWait);
        self.hot.bits.set_fin_sent(send.fin && (sent || acknowledged));
    }

    fn take_receiving(&mut self, receive: &Receiving, now: Nanos, pool: &mut Pool) {
        self.hot.rcv_nxt = receive.nxt;
        self.hot.rcv_acked = receive.acked;
        self.hot.rcv_edge = receive.edge;
        if self.hot.state.is_synchronized() {
            self.bound_wl1();
        }
        self.hot.buffer = receive.buffer;
        self.hot.receive.push(&receive.queue, pool);
        let len = self.hot.receive.len();
        let mut blocks = Vec::new();
        // The ring reaches as far as the last block out of order, so that a byte at the end of the largest
        // window would take 1 GB. What is beyond the bound is dropped, as are blocks beyond OUT_OF_ORDER_MAX:
        // SACK is advisory, and the peer sends them again (RFC 2018 section 8).
        let held =
            receive.out_of_order.iter().fold(len as usize, |sum, (_, bytes)| sum + bytes.len());
        let room = held.saturating_mul(SPARSE).max(ROOM_LEAST);
        let fits = |start: Seq, bytes: &[u8]| {
            let end = len as usize + (start - receive.nxt) as usize + bytes.len();
            bytes.is_empty() || end <= room
        };
        let out_of_order = receive.out_of_order.iter().take(OUT_OF_ORDER_MAX);
        for (block, bytes) in out_of_order.take_while(|(block, bytes)| fits(block.start, bytes)) {
            if !bytes.is_empty() {
                self.hot.receive.write_at(len + (block.start - receive.nxt), bytes, pool);
            }
            blocks.push(*block);
        }
        self.out_of_order.restore(blocks, &receive.recent);
        self.fin_at = receive.fin;
        self.hot.bits.set_disordered(receive.fin.is_some() || !self.out_of_order.is_empty());
        self.hot.bits.set_reports(!self.out_of_order.is_empty());
        self.set_rcv_urgent(receive.urgent);
        self.hot.ts_recent = receive.ts_recent.0;
        self.hot.last_received = now.saturating_sub(receive.ts_recent.1);
        self.hot.rcv_mss = receive.mss;
        self.hot.bits.set_ecn_echo(receive.ecn_echo);
    }

    fn take_control(&mut self, snapshot: &Snapshot, now: Nanos) {
        let control = &snapshot.control;
        self.congestion = Congestion::new(control.algorithm);
        self.congestion.control().restore(&control.private, now);
        self.window.cwnd = control.cwnd;
        self.window.ssthresh = control.ssthresh;
        self.recovery.state = control.recovery;
        self.recovery.point = control.recovery_point;
        self.recovery.duplicates = control.duplicates;
        self.recovery.reordering = control.reordering;
        self.recovery.reorder_window = control.reorder_window;
    }

    fn take_timers(&mut self, timers: &Timers, now: Nanos) {
        let pending = [
            (Pending::Rto, timers.retransmit),
            (Pending::TailProbe, timers.tail_probe),
            (Pending::Reorder, timers.reorder),
            (Pending::Persist, timers.persist),
        ];
        match pending.into_iter().find_map(|(kind, left)| Some((kind, left?))) {
            // The persist timer runs only while nothing is in flight: closing the connection would stop it,
            // and leave what is in flight without a timer.
            Some((Pending::Persist, _)) if !self.flight.is_empty() => self.rearm_rto(now),
            Some((kind, left)) => self.set_pending(kind, now.saturating_add(left)),
            // What is in flight always has a timer.
            None if !self.flight.is_empty() => self.rearm_rto(now),
            None => {}
        }
        match timers.delayed_ack {
            Some(0) => self.acknowledge_now(),
            Some(left) => {
                let left = left.min(Nanos::from(self.delayed_ack));
                self.hot.ack_deadline = now.saturating_add(left);
            }
            None => {}
        }
        match timers.time_wait.or(timers.keepalive) {
            Some(left) => self.slow_deadline = now.saturating_add(left),
            None => self.arm_slow(now),
        }
        if timers.time_wait.is_some() && self.hot.state == State::FinWait2 {
            self.hot.bits.set_released(true);
        }
    }

    fn take_moment(&mut self, moment: &Moment, now: Nanos) {
        let at = |ago: Nanos| now.saturating_sub(ago);
        self.hot.quick = moment.quick;
        let bits = &mut self.hot.bits;
        bits.set_interactive(moment.interactive);
        bits.set_cwnd_limited(moment.cwnd_limited);
        bits.set_unanswered(moment.unanswered);
        bits.set_cwr_due(moment.cwr_due);
        bits.set_syn_due(moment.syn_due);
        bits.set_probe_due(moment.probe_due);
        bits.set_push_small(moment.push_small);
        (self.most_out, self.round_end) = moment.round;
        self.duplicate = moment.duplicate;
        self.hot.bits.set_reports(moment.duplicate.is_some() || !self.out_of_order.is_empty());
        self.retransmits = moment.retransmits;
        self.retransmit_since = at(moment.retransmitted_ago);
        self.keepalive_probes = moment.keepalive_probes;
        self.hot.last_received = at(moment.received_ago);
        self.last_sent = at(moment.sent_ago);
        self.first_timestamp = moment.first_timestamp;
        self.last_challenge = moment.challenged_ago.map_or(NOT_YET, at);
        self.stalled_since = at(moment.stalled_ago);
        self.rtt.min_at = at(moment.min_ago);
        (self.hot.tune_at, self.tune_since) = (moment.tuned.0, at(moment.tuned.1));
        self.mtu.high = moment.mtu_high;
        self.mtu.probe = moment.mtu_probe;
        self.mtu.tried = at(moment.mtu_tried_ago);
        self.hot.bits.set_mtu_bounded(moment.mtu_high != 0);
        self.tail_probe = moment.tail_probe;
        self.urgent_read = moment.urgent_read;
        // Without a hole there are no duplicate acknowledgments to send.
        if !self.out_of_order.is_empty() {
            let (due, singly) = moment.dup_acks;
            self.dup_acks = DuplicateAcks { due, singly };
            self.hot.bits.set_dup_acks_due(due > 0);
        }
        let recovery = &mut self.recovery;
        recovery.undo = moment.undo;
        (recovery.prior_cwnd, recovery.prior_ssthresh) = moment.prior;
        recovery.reduced = moment.reduced;
        recovery.undo_from = moment.undo_from;
        recovery.undo_bytes = moment.undo_bytes;
        recovery.undo_ts = moment.undo_ts;
        (recovery.prr_delivered, recovery.prr_out) = moment.prr;
        recovery.prr_flight = moment.prr_flight.max(1);
        recovery.frto = moment.frto;
        recovery.frto_new = moment.frto_new;
        recovery.rack_at = moment.rack_ago.map_or(NOT_YET, at);
        recovery.rack_end = moment.rack_end;
        recovery.rack_rtt = moment.rack_rtt;
        recovery.fack = moment.fack;
        recovery.reorder_persist = moment.reorder_persist;
        recovery.duplicate_round = moment.duplicate_round;
        recovery.tlp_end = moment.tlp_end;
        recovery.tlp_retransmitted = moment.tlp_retransmitted;
        if *moment == Moment::default() {
            // Of a connection that another engine had: nothing is known beyond its sequence numbers.
            self.recovery.fack = self.hot.snd_una;
        }
    }
}

/// Time from `start` to `end`, no longer than a snapshot may have.
fn since(start: Nanos, end: Nanos) -> Nanos {
    end.saturating_sub(start).min(TIME_MAX)
}
