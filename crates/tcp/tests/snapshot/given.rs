//! Snapshots that a connection could have given, made of a seed. The fuzz target has them from here,
//! too.

use std::net::SocketAddr;

use degen::Random;
use tcp::options::Block;
use tcp::snapshot::{
    Agreed, Control, Flight, MSS_MIN, Moment, Receiving, RecoveryState, RoundTrip, SEGMENT_MIN,
    Sending, Snapshot, SocketOptions, TIME_MAX, Timers,
};
use tcp::{Algorithm, Keepalive, Nanos, State};
use wire::Seq;

/// What is drawn from a seed.
pub(crate) struct Draw(Random);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Draw(Random::new(seed))
    }

    fn up_to(&mut self, most: u32) -> u32 {
        let number = self.0.below(0, u64::from(most) + 1);
        self.0.next();
        number as u32
    }

    fn between(&mut self, least: u16, most: u16) -> u16 {
        least + self.up_to(u32::from(most - least)) as u16
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.up_to(of.len() as u32 - 1) as usize]
    }

    fn flag(&mut self) -> bool {
        self.up_to(1) == 1
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| value(self))
    }

    fn time(&mut self) -> Nanos {
        let most = self.one_of(&[0, 1, 1_000_000, 1_000_000_000, 600_000_000_000, TIME_MAX]);
        self.0.next() % (most + 1)
    }

    fn seq(&mut self) -> Seq {
        let near = self.one_of(&[0, u32::MAX - 100, 1 << 31, 12_345]);
        Seq(near.wrapping_add(self.up_to(200)))
    }

    fn bytes(&mut self, most: u32) -> Vec<u8> {
        (0..self.up_to(most)).map(|at| (at * 7 + at / 256) as u8).collect()
    }
}

/// A valid snapshot; every state but CLOSED comes up.
pub(crate) fn snapshot(seed: u64) -> Snapshot {
    use State::*;
    let draw = &mut Draw::new(seed);
    let state = draw.one_of(&[
        SynSent,
        SynReceived,
        Established,
        Established,
        Established,
        FinWait1,
        FinWait2,
        CloseWait,
        Closing,
        LastAck,
        TimeWait,
    ]);
    let (local, remote) = addresses(draw);
    let headers = if local.is_ipv4() { 40 } else { 60 };
    let path_mtu = draw.between(SEGMENT_MIN + headers, 9000);
    let mss = draw.between(MSS_MIN, path_mtu - headers);
    let agreed = Agreed {
        iss: draw.seq(),
        irs: draw.seq(),
        peer_mss: draw.between(0, u16::MAX),
        our_mss: draw.between(536, 8960),
        window_scale: draw.maybe(|draw| (draw.up_to(14) as u8, draw.up_to(14) as u8)),
        sack: draw.flag(),
        timestamps: draw.flag(),
        ecn: draw.flag(),
    };
    let receive = receiving(draw, state, &agreed);
    let send = sending(draw, state, &agreed, &receive);
    let in_flight = send.nxt - send.una;
    let control = Control {
        algorithm: draw.one_of(&[Algorithm::Cubic, Algorithm::NewReno]),
        cwnd: u32::from(mss) + draw.up_to(100_000),
        ssthresh: draw.one_of(&[u32::MAX, 20_000, 2 * u32::from(mss)]),
        private: std::array::from_fn(|_| draw.0.next()),
        recovery: draw.one_of(&[
            RecoveryState::Open,
            RecoveryState::Recovery,
            RecoveryState::Loss,
            RecoveryState::Marked,
        ]),
        recovery_point: send.una + draw.up_to(in_flight),
        duplicates: draw.up_to(5),
        reordering: draw.flag(),
        reorder_window: u64::from(draw.up_to(u32::MAX)),
    };
    let moment = moment(draw, (state, path_mtu), &send, &receive);
    Snapshot {
        local,
        remote,
        state,
        agreed,
        mss,
        path_mtu,
        ts_now: draw.seq().0,
        send,
        receive,
        round_trip: RoundTrip {
            srtt: u64::from(draw.up_to(u32::MAX)),
            rttvar: u64::from(draw.up_to(u32::MAX)),
            min: u64::from(draw.up_to(u32::MAX)),
            backoff: draw.up_to(20) as u8,
        },
        control,
        timers: Timers {
            retransmit: draw.maybe(Draw::time),
            tail_probe: draw.maybe(Draw::time),
            reorder: draw.maybe(Draw::time),
            persist: draw.maybe(Draw::time),
            delayed_ack: draw.maybe(Draw::time),
            keepalive: draw.maybe(Draw::time),
            time_wait: draw.maybe(Draw::time),
        },
        socket_options: SocketOptions {
            no_delay: draw.flag(),
            cork: draw.flag(),
            urgent_inline: draw.flag(),
            keepalive: draw.maybe(|draw| Keepalive {
                idle: draw.time().max(1),
                interval: draw.time().max(1),
                probes: draw.up_to(10) as u8,
            }),
            user_timeout: draw.time().min(tcp::snapshot::USER_TIMEOUT_MAX),
        },
        moment,
    }
}

fn moment(
    draw: &mut Draw,
    (state, path_mtu): (State, u16),
    send: &Sending,
    receive: &Receiving,
) -> Moment {
    let opening = matches!(state, State::SynSent | State::SynReceived);
    let in_flight = send.nxt - send.una;
    let data = in_flight.min(send.queue.len() as u32);
    Moment {
        quick: draw.up_to(16) as u8,
        interactive: draw.flag(),
        unanswered: draw.flag(),
        round: (draw.up_to(u32::MAX), Seq(draw.up_to(u32::MAX))),
        cwnd_limited: draw.flag(),
        cwr_due: draw.flag(),
        syn_due: opening && (send.nxt == send.una || draw.flag()),
        probe_due: draw.flag(),
        push_small: draw.flag(),
        duplicate: draw.maybe(|_| Block {
            start: Seq(receive.nxt.0.wrapping_sub(20)),
            end: Seq(receive.nxt.0.wrapping_sub(10)),
        }),
        retransmits: draw.up_to(15) as u8,
        retransmitted_ago: draw.time(),
        keepalive_probes: draw.up_to(9) as u8,
        received_ago: draw.time(),
        sent_ago: draw.time(),
        challenged_ago: draw.maybe(Draw::time),
        min_ago: draw.time(),
        stalled_ago: draw.time(),
        tuned: (Seq(draw.up_to(u32::MAX)), draw.time()),
        mtu_high: draw.between(0, 9_000),
        mtu_probe: draw
            .maybe(|draw| (path_mtu + draw.between(1, 500), send.una + draw.up_to(in_flight))),
        prior: draw.one_of(&[(0, 0), (5_000, u32::MAX), (90_000, 3_000)]),
        undo: draw.flag(),
        undo_bytes: draw.up_to(100_000),
        undo_ts: draw.maybe(|draw| draw.seq().0),
        prr: (draw.up_to(100_000), draw.up_to(100_000)),
        prr_flight: draw.up_to(100_000),
        frto: draw.flag(),
        frto_new: draw.flag(),
        rack_ago: draw.maybe(Draw::time),
        rack_end: draw.seq(),
        rack_rtt: u64::from(draw.up_to(u32::MAX)),
        fack: draw.seq(),
        reorder_persist: draw.up_to(16) as u8,
        duplicate_round: draw.maybe(Draw::seq),
        tlp_end: draw.maybe(Draw::seq),
        tlp_retransmitted: draw.flag(),
        tail_probe: (data > 0 && !opening).then(|| {
            let len = 1 + draw.up_to(data - 1);
            (send.una + draw.up_to(data - len), len)
        }),
        reduced: draw.flag(),
        undo_from: Seq(draw.up_to(u32::MAX)),
        urgent_read: draw.flag(),
        dup_acks: (draw.between(0, 100), draw.up_to(3) as u8),
        mtu_tried_ago: draw.time(),
        first_timestamp: draw.maybe(|draw| draw.seq().0),
    }
}

fn addresses(draw: &mut Draw) -> (SocketAddr, SocketAddr) {
    let (local, remote) = draw.one_of(&[
        ("10.0.0.1:80", "192.0.2.255:40000"),
        ("127.0.0.1:1", "127.0.0.1:65535"),
        ("[fd00::1]:443", "[2001:db8::2]:9"),
        ("[fe80::1%3]:443", "[fe80::2%3]:9"),
    ]);
    (local.parse().expect("an address"), remote.parse().expect("an address"))
}

fn receiving(draw: &mut Draw, state: State, agreed: &Agreed) -> Receiving {
    let closed =
        matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
    let nxt = agreed.irs + 1 + draw.up_to(5_000) + u32::from(closed);
    let shift = agreed.window_scale.map_or(0, |(_, ours)| ours);
    let window = draw.up_to((u32::from(u16::MAX) << shift).min(200_000));
    let edge = nxt + window;
    let open = state != State::SynSent;
    let mut out_of_order = Vec::new();
    let mut end = nxt;
    while open && !closed && draw.flag() {
        let start = end + 1 + draw.up_to(1_500);
        let bytes = draw.bytes(3_000);
        end = start + bytes.len() as u32;
        if bytes.is_empty() || end.after(edge) {
            break;
        }
        out_of_order.push((Block { start, end }, bytes));
    }
    let last = out_of_order.last().map_or(nxt + 1, |(block, _)| block.end);
    let fin = match closed {
        true => Some(Seq(nxt.0.wrapping_sub(1))),
        false if open && last.before(edge) => draw.maybe(|draw| last + draw.up_to(edge - last)),
        false => None,
    };
    if let Some(at) = fin.filter(|_| !closed && draw.flag()) {
        match out_of_order.last_mut() {
            Some((block, _)) if block.end == at => block.end = at + 1,
            _ => out_of_order.push((Block { start: at, end: at + 1 }, Vec::new())),
        }
    }
    let queue = if open { draw.bytes(5_000) } else { Vec::new() };
    Receiving {
        nxt,
        acked: Seq(nxt.0.wrapping_sub(draw.up_to(3_000))),
        edge,
        buffer: draw.up_to(1 << 30),
        recent: out_of_order.iter().rev().map(|(block, _)| *block).collect(),
        out_of_order,
        fin,
        urgent: (open && draw.flag()).then(|| {
            let (unread, fin) = (queue.len() as u32, u32::from(closed));
            let read = Seq(nxt.0.wrapping_sub(unread + fin));
            read + (unread + fin - draw.up_to(unread)).max(1)
        }),
        ts_recent: (draw.seq().0, draw.time()),
        mss: draw.between(0, 9000),
        ecn_echo: draw.flag(),
        queue,
    }
}

fn sending(draw: &mut Draw, state: State, agreed: &Agreed, receive: &Receiving) -> Sending {
    use State::*;
    let opening = matches!(state, SynSent | SynReceived);
    let fin = match state {
        SynSent | SynReceived => draw.flag(),
        state => !matches!(state, Established | CloseWait),
    };
    let all_acknowledged = matches!(state, FinWait2 | TimeWait);
    let una = if opening { agreed.iss } else { agreed.iss + 1 + draw.up_to(5_000) };
    let queue = if all_acknowledged { Vec::new() } else { draw.bytes(10_000) };
    let queued = queue.len() as u32;
    let in_flight = match state {
        SynSent | SynReceived => draw.up_to(1),
        FinWait2 | TimeWait => 0,
        _ => draw.up_to(queued + u32::from(fin)),
    };
    let mut flight = Vec::new();
    let mut rest = in_flight;
    while rest > 0 {
        let len = 1 + draw.up_to(rest - 1);
        let sacked = draw.up_to(3) == 0;
        flight.push(Flight {
            size: 1 + draw.up_to(9000) as u16,
            len,
            ago: draw.time(),
            sacked,
            lost: !sacked && draw.up_to(3) == 0,
            retransmitted: draw.flag(),
            probe: draw.up_to(9) == 0,
        });
        rest -= len;
    }
    let shift = agreed.window_scale.map_or(0, |(peer, _)| peer);
    let wnd = draw.up_to(u32::from(u16::MAX) << shift);
    let syn = u32::from(opening);
    Sending {
        una,
        nxt: una + in_flight,
        wnd,
        max_wnd: wnd,
        bytes_acked: draw.one_of(&[0, 1, 100_000, u32::MAX]),
        wl1: receive.nxt,
        wl2: una,
        urgent: (queued > 0 && draw.flag()).then(|| una + syn + 1 + draw.up_to(queued - 1)),
        small: una,
        queue,
        fin,
        flight,
    }
}
