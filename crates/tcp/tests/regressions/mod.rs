//! Faults that reading the code has found: each test failed before its fault was fixed.
use std::sync::Arc;
use tcp::config::{MILLISECOND, SECOND};
use tcp::*;
use wire::{Flags, Seq, Timestamps};

struct Lab {
    stack: Stack,
    id: Option<Id>,
    path: FourTuple,
    now: Nanos,
    seq: Seq,
    una: Seq,
    window: u16,
    ts: bool,
    ts_last: u32,
}
#[derive(Debug, Clone)]
struct Out {
    seq: Seq,
    len: u32,
    ts: Option<Timestamps>,
}

impl Lab {
    fn new(config: Config, half_open: u32, sack: bool, ts: bool, rtt: Nanos) -> Lab {
        Lab::with_mss(1000, config, half_open, sack, ts, rtt)
    }
    fn with_mss(mss: u16, config: Config, half_open: u32, sack: bool, ts: bool, rtt: Nanos) -> Lab {
        let mut stack = Stack::new(StackConfig { secret: [3; 16], half_open, connections: 8 });
        stack.listen(None, 80, Arc::new(config)).unwrap();
        let path = FourTuple {
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "10.0.0.2:5000".parse().unwrap(),
        };
        let mut lab = Lab {
            stack,
            id: None,
            path,
            now: SECOND,
            seq: Seq(1000),
            una: Seq(0),
            window: 65_535,
            ts,
            ts_last: 0,
        };
        let mut o = Options {
            mss: Some(mss),
            window_scale: Some(7),
            sack_permitted: sack,
            ..Options::default()
        };
        if ts {
            o.timestamps = Some(Timestamps { value: Seq(1000), echo: Seq(0) });
        }
        lab.put(Seq(1000), Seq(0), Flags::SYN, o, &[]);
        lab.seq = Seq(1001);
        let out = lab.listen();
        lab.una = out[0].seq + 1;
        lab.now += rtt;
        lab.ack(lab.una, &[]);
        lab.id = lab.stack.next_event().map(|e| e.0);
        lab.listen();
        lab
    }
    fn put(&mut self, seq: Seq, ack: Seq, flags: Flags, options: Options, payload: &[u8]) {
        let pieces = [payload];
        let s = Segment {
            seq,
            ack,
            flags,
            window: self.window,
            urgent: 0,
            options,
            payload: if payload.is_empty() { &[] } else { &pieces },
            gso_size: 0,
            ce: false,
        };
        self.stack.receive(&self.path, &s, self.now);
    }
    fn opts(&self, blocks: &[(u32, u32)]) -> Options {
        let mut o = Options::default();
        if self.ts {
            o.timestamps = Some(Timestamps {
                value: Seq((self.now / MILLISECOND) as u32),
                echo: Seq(self.ts_last),
            });
        }
        for &(a, b) in blocks {
            o.sack.push(Block { start: self.una + a, end: self.una + b });
        }
        o
    }
    fn ack(&mut self, ack: Seq, blocks: &[(u32, u32)]) {
        let o = self.opts(blocks);
        self.put(self.seq, ack, Flags::ACK, o, &[]);
    }
    fn data(&mut self, bytes: &[u8]) {
        let (o, ack) = (self.opts(&[]), self.una);
        self.put(self.seq, ack, Flags::ACK, o, bytes);
        self.seq += bytes.len() as u32;
    }
    fn listen(&mut self) -> Vec<Out> {
        let mut all = vec![];
        while let Some(t) = self.stack.poll_transmit(self.now) {
            all.push(Out {
                seq: t.seq,
                len: t.payload_len() as u32,
                ts: Options::parse(t.options.as_slice()).timestamps,
            });
        }
        if let Some(ts) = all.last().and_then(|o| o.ts) {
            self.ts_last = ts.value.0;
        }
        all
    }
    fn wait(&mut self, time: Nanos) -> Vec<(Nanos, Out)> {
        let until = self.now + time;
        let mut all = vec![];
        while let Some(at) = self.stack.next_deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.stack.on_time(self.now);
            let now = self.now;
            all.extend(self.listen().into_iter().map(|o| (now, o)));
        }
        self.now = until;
        all
    }
    fn send(&mut self, n: usize) {
        let now = self.now;
        let id = self.id.unwrap();
        assert_eq!(self.stack.socket(id, now).unwrap().send(&vec![7; n]).unwrap(), n);
    }
    /// As much as is taken.
    fn fill(&mut self) {
        let now = self.now;
        let id = self.id.unwrap();
        while self.stack.socket(id, now).unwrap().send(&[7; 100_000]).unwrap() > 0 {}
    }
    fn info(&self) -> Info {
        self.stack.connection(self.id.unwrap()).unwrap().info()
    }
}

#[test]
fn small_writes_do_not_put_off_the_timeout() {
    let mut lab =
        Lab::new(Config { no_delay: true, ..Config::default() }, 8, true, false, 100 * MILLISECOND);
    let (first, start) = (lab.una, lab.now);
    for _ in 0..400 {
        lab.send(10);
        if lab.listen().iter().any(|o| o.seq == first && lab.now > start) {
            return;
        }
        if lab.wait(50 * MILLISECOND).iter().any(|(_, o)| o.len > 0) {
            return;
        }
    }
    panic!(
        "nothing sent again for {} s, retransmits {}",
        (lab.now - start) / SECOND,
        lab.info().retransmits
    );
}

#[test]
fn a_cookie_measures_no_round_trip_of_zero() {
    let lab = Lab::new(Config::default(), 0, true, true, 300 * MILLISECOND);
    assert_eq!(lab.stack.counters().cookies_accepted, 1);
    let info = lab.info();
    assert!(
        info.rtt == 0 || info.rtt >= 300 * MILLISECOND,
        "rtt {} ns, min {} ns, rto {} ms",
        info.rtt,
        info.min_rtt,
        info.rto / MILLISECOND
    );
}

#[test]
fn a_new_syn_leaves_unread_data_alone() {
    let mut lab = Lab::new(Config::default(), 8, true, false, MILLISECOND);
    let (id, now) = (lab.id.unwrap(), lab.now);
    lab.stack.socket(id, now).unwrap().shutdown();
    lab.listen();
    lab.una += 1;
    let o = lab.opts(&[]);
    lab.put(lab.seq, lab.una, Flags::ACK.with(Flags::FIN), o, b"unread");
    lab.seq += 7;
    lab.listen();
    assert_eq!(lab.stack.connection(id).unwrap().state(), State::TimeWait);
    lab.put(lab.seq + 5000, Seq(0), Flags::SYN, Options::default(), &[]);
    lab.listen();
    let mut into = [0; 10];
    let mut socket = lab.stack.socket(id, now).expect("the application still has it");
    assert_eq!(socket.receive(&mut into), Ok(6));
}

#[test]
fn frto_without_sack_sends_new_data_and_finds_the_timeout_spurious() {
    // One ACK a segment, no timestamps; all is only late.
    let mut lab = Lab::new(Config::default(), 8, true, false, 100 * MILLISECOND);
    lab.send(60_000);
    lab.listen();
    let out = lab.wait(700 * MILLISECOND);
    assert!(lab.stack.counters().timeouts >= 1, "{out:?}");
    lab.ack(lab.una + 1000, &[]);
    let new = lab.listen();
    println!("una {:?} out {:?} new {new:?}", lab.una, out);
    assert!(new.iter().all(|o| o.seq.after(lab.una + 9000)), "new data only: {new:?}");
    lab.ack(lab.una + 2000, &[]);
    lab.listen();
    assert_eq!(lab.stack.counters().spurious_timeouts, 1);
}

#[test]
fn sack_of_single_bytes_makes_few_records() {
    let mut lab = Lab::new(
        Config { initial_window: 60, ..Config::default() },
        8,
        true,
        false,
        100 * MILLISECOND,
    );
    lab.window = 0xffff;
    lab.ack(lab.una, &[]);
    lab.send(60_000);
    lab.listen();
    lab.now += 50 * MILLISECOND;
    let begin = std::time::Instant::now();
    for i in 0..(59_000 / 8) {
        let a = 1000 + 8 * i;
        lab.ack(lab.una, &[(a, a + 1), (a + 2, a + 3), (a + 4, a + 5), (a + 6, a + 7)]);
        lab.listen();
    }
    println!("{} ACKs took {:?}", 59_000 / 8, begin.elapsed());
    for _ in 0..1000 {
        lab.ack(lab.una, &[]);
    }
    println!("with 1000 plain ones {:?}", begin.elapsed());
    let snapshot = {
        let (id, now) = (lab.id.unwrap(), lab.now);
        lab.stack.freeze(id, now).unwrap()
    };
    assert!(
        snapshot.send.flight.len() < 300,
        "{} records for 60 segments",
        snapshot.send.flight.len()
    );
}

#[test]
fn no_tail_probe_is_sent_in_recovery() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 100 * MILLISECOND);
    lab.send(10_000);
    lab.listen();
    let una = lab.una;
    assert!(lab.wait(100 * MILLISECOND).is_empty());
    lab.ack(una, &[(1000, 10_000)]);
    let again = lab.listen();
    assert_eq!(again.len(), 1, "{again:?}");
    assert_eq!(again[0].seq, una);
    // The retransmission's acknowledgment takes a little longer than the first did.
    let needless = lab.wait(130 * MILLISECOND);
    assert!(needless.is_empty(), "{needless:?}");
}

#[test]
fn an_idle_period_reduces_the_window_once() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 10 * MILLISECOND);
    // Grow the window.
    for _ in 0..6 {
        let n = lab.info().snd_cwnd;
        lab.send(n as usize);
        lab.listen();
        lab.now += 10 * MILLISECOND;
        let una = lab.una + n;
        lab.ack(una, &[]);
        lab.una = una;
        lab.listen();
    }
    let before = lab.info().snd_cwnd;
    lab.now += 300 * MILLISECOND; // one RTO and a bit
    lab.window = 0;
    lab.ack(lab.una, &[]);
    lab.send(1000);
    for _ in 0..10 {
        lab.listen();
        lab.ack(lab.una, &[]);
    }
    let after = lab.info().snd_cwnd;
    assert!(after >= before / 2, "{before} -> {after} after one idle RTO");
}

#[test]
fn a_released_connection_ends_at_a_closed_window() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 10 * MILLISECOND);
    lab.window = 0;
    lab.ack(lab.una, &[]);
    lab.send(100_000);
    let (id, now) = (lab.id.unwrap(), lab.now);
    lab.stack.socket(id, now).unwrap().close();
    for _ in 0..1000 {
        // An hour by 10 s.
        if !lab.wait(10 * SECOND).is_empty() {
            lab.ack(lab.una, &[]);
            lab.listen();
        }
    }
    assert!(lab.stack.is_empty(), "alive after {} s", lab.now / SECOND);
}

#[test]
fn the_age_of_data_behind_a_hole_is_no_round_trip() {
    let mut lab = Lab::new(Config::default(), 8, false, false, 100 * MILLISECOND);
    lab.send(10_000);
    lab.listen();
    lab.now += 100 * MILLISECOND;
    for _ in 0..9 {
        lab.ack(lab.una, &[]);
    }
    let again = lab.listen();
    assert!(again.iter().any(|o| o.seq == lab.una), "{again:?}");
    lab.now += 100 * MILLISECOND;
    let una = lab.una + 10_000;
    lab.ack(una, &[]);
    assert_eq!(lab.info().rtt, 100 * MILLISECOND);
}

#[test]
fn data_is_sent_into_a_small_window_while_the_peer_sends() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 10 * MILLISECOND);
    let base = lab.una;
    lab.send(5000);
    lab.listen();
    lab.now += 10 * MILLISECOND;
    lab.una = base + 5000;
    lab.window = 0;
    lab.ack(lab.una, &[]);
    lab.listen();
    lab.send(5000);
    lab.listen();
    for i in 0..200 {
        lab.window = if i % 2 == 0 { 3 } else { 4 }; // 384 or 512 bytes: less than a segment
        lab.data(b"hello");
        if lab.listen().iter().any(|o| o.len > 0) {
            return;
        }
        if lab.wait(50 * MILLISECOND).iter().any(|(_, o)| o.len > 0) {
            return;
        }
    }
    panic!("10 s without a byte through an open window");
}

#[test]
fn the_second_loss_without_sack_is_recovered_fast_too() {
    let mut lab = Lab::new(Config::default(), 8, false, false, 100 * MILLISECOND);
    for round in 0..3 {
        lab.send(10_000);
        lab.listen();
        lab.now += 100 * MILLISECOND;
        for _ in 0..5 {
            lab.ack(lab.una, &[]);
        }
        let again = lab.listen();
        assert!(again.iter().any(|o| o.seq == lab.una), "round {round}: {again:?}");
        lab.now += 100 * MILLISECOND;
        lab.una += lab.info().unacked;
        lab.ack(lab.una, &[]);
        lab.listen();
        for _ in 0..3 {
            lab.send(3000);
            lab.listen();
            lab.now += 100 * MILLISECOND;
            lab.una += lab.info().unacked;
            lab.ack(lab.una, &[]);
        }
    }
}

#[test]
fn a_duplicate_of_later_data_undoes_nothing() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 100 * MILLISECOND);
    lab.send(10_000);
    lab.listen();
    lab.now += 100 * MILLISECOND;
    lab.ack(lab.una, &[(1000, 10_000)]);
    assert_eq!(lab.listen().len(), 1);
    for _ in 0..5 {
        lab.now += 100 * MILLISECOND;
        lab.una += lab.info().unacked;
        lab.ack(lab.una, &[]);
        lab.send(5000);
        lab.listen();
    }
    lab.now += 100 * MILLISECOND;
    let back = 0u32.wrapping_sub(5000);
    lab.ack(lab.una, &[(back, back.wrapping_add(1000))]);
    assert_eq!(lab.stack.counters().undone, 0);
}

#[test]
fn a_released_connection_ends_although_the_window_was_shrunk() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 10 * MILLISECOND);
    lab.send(5000);
    lab.listen();
    let (id, now) = (lab.id.unwrap(), lab.now);
    lab.stack.socket(id, now).unwrap().close();
    lab.listen();
    lab.window = 0;
    lab.ack(lab.una, &[]);
    for _ in 0..1000 {
        if !lab.wait(10 * SECOND).is_empty() {
            lab.ack(lab.una, &[]);
            lab.listen();
        }
    }
    assert!(lab.stack.is_empty(), "alive after {} s", lab.now / SECOND);
}

#[test]
fn frto_finds_a_timeout_spurious_with_many_records() {
    let mut lab = Lab::new(
        Config { initial_window: 20, ..Config::default() },
        8,
        true,
        false,
        100 * MILLISECOND,
    );
    // Grow, acknowledging two segments at a time: records of two segments.
    let mut sent = lab.una;
    lab.fill();
    for o in lab.listen() {
        sent = o.seq + o.len;
    }
    for _ in 0..5 {
        lab.now += 100 * MILLISECOND;
        let end = sent;
        while lab.una != end {
            lab.una += (end - lab.una).min(2000);
            lab.ack(lab.una, &[]);
            lab.fill();
            for o in lab.listen() {
                sent = o.seq + o.len;
            }
        }
    }
    let before = lab.info();
    let out = lab.wait(700 * MILLISECOND);
    assert_eq!(lab.stack.counters().timeouts, 1, "{out:?} {before:?}");
    lab.ack(lab.una + 1000, &[]);
    lab.listen();
    lab.ack(lab.una + 2000, &[]);
    lab.listen();
    assert_eq!(lab.stack.counters().spurious_timeouts, 1, "{before:?}");
}

/// RFC 2018 section 3: segments are those that were sent, wherever the acknowledgment stands.
#[test]
fn sack_of_single_segments_behind_an_acknowledgment_inside_one() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 100 * MILLISECOND);
    lab.send(10_000);
    lab.listen();
    lab.now += 100 * MILLISECOND;
    let part = lab.una + 500;
    lab.ack(part, &[]);
    lab.ack(part, &[(2_000, 3_000), (4_000, 5_000)]);
    assert_eq!(lab.info().sacked, 2_000);
}

/// RFC 8985 section 6.2, step 2: every segment of an acknowledgment counts, also where the one that was
/// sent last may be the first transmission.
#[test]
fn an_early_acknowledgment_of_a_retransmission_does_not_hide_the_rest() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 100 * MILLISECOND);
    lab.send(5_000);
    lab.listen();
    lab.now += 50 * MILLISECOND;
    lab.send(5_000);
    lab.listen();
    lab.now += 50 * MILLISECOND;
    let first = lab.una;
    lab.ack(first, &[(1_000, 4_000)]);
    assert_eq!(lab.listen()[0].seq, first);
    // 50 ms after it was sent again the first segment is there, and one of the second write is.
    lab.now += 50 * MILLISECOND;
    lab.ack(first + 4_000, &[(5_000, 6_000)]);
    // So late was its first transmission; RACK waits as long for what was sent with the second write.
    let again = lab.wait(150 * MILLISECOND);
    assert!(again.iter().any(|(_, o)| o.seq == first + 4_000), "{again:?}");
    assert_eq!(lab.stack.counters().timeouts, 0);
}

#[test]
fn ten_long_segments_may_be_asked_for() {
    let first = |mss, initial_window| {
        let config = Config { mtu: 9000, initial_window, ..Config::default() };
        let mut lab = Lab::with_mss(mss, config, 8, true, false, 20 * MILLISECOND);
        lab.send(200_000);
        lab.listen().iter().map(|out| out.len).sum::<u32>()
    };
    // RFC 6928 section 2: ten, in 14,600 bytes or two segments; Linux's ten are of any length.
    assert_eq!([first(1000, 0), first(1460, 0)], [10_000, 14_600]);
    assert_eq!([first(2000, 0), first(8960, 0)], [14_000, 17_920]);
    assert_eq!([first(1460, 10), first(8960, 10)], [14_600, 89_600]);
    assert_eq!([first(8960, 1), first(8960, 3)], [8_960, 26_880]);
}

/// Reads all, in pieces of 16 KB.
fn read_all(lab: &mut Lab) {
    let (id, now) = (lab.id.unwrap(), lab.now);
    let mut piece = vec![0; 16 << 10];
    while lab.stack.socket(id, now).unwrap().receive(&mut piece).is_ok_and(|read| read > 0) {}
}

#[test]
fn the_window_keeps_ahead_of_a_sender_that_doubles() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 100 * MILLISECOND);
    let segment = vec![5; 1000];
    for segments in [10, 20, 40, 80, 160, 320, 640] {
        lab.now += 100 * MILLISECOND;
        for _ in 0..segments {
            lab.data(&segment);
            read_all(&mut lab);
            lab.listen();
        }
        // Twice that is what comes next, and twice as much again while a hole of it is open.
        let (came, window) = (segments * 1000, lab.info().rcv_space);
        assert!(window >= 4 * came, "{window} after {came} in a round trip");
    }
}

#[test]
fn the_window_grows_by_what_stood_behind_a_hole() {
    let mut lab = Lab::new(Config::default(), 8, true, false, 100 * MILLISECOND);
    let segment = vec![5; 1000];
    let (hole, before) = (lab.seq, lab.info().rcv_space);
    lab.seq += 1000;
    for _ in 0..60 {
        lab.data(&segment);
    }
    let behind = lab.seq;
    lab.now += 100 * MILLISECOND;
    lab.seq = hole;
    lab.data(&segment);
    lab.seq = behind;
    read_all(&mut lab);
    assert_eq!(lab.info().rcv_space, 2 * before);
}

#[test]
fn probes_of_a_closed_window_are_no_retransmissions_and_count_until_they_are_answered() {
    let mut lab = Lab::new(Config::default(), 8, true, true, 10 * MILLISECOND);
    lab.window = 0;
    lab.ack(lab.una, &[]);
    lab.send(5000);
    assert!(!lab.wait(3 * SECOND).is_empty());
    let info = lab.info();
    assert!(info.probes > 1 && info.unacked == 0 && info.notsent == 5000, "{info:?}");
    let moved = |lab: &Lab| lab.stack.last_moved(lab.id.unwrap(), lab.now).unwrap();
    assert_eq!((info.retransmits, moved(&lab).1), (0, 3 * SECOND), "{info:?}");
    lab.ack(lab.una, &[]);
    assert_eq!((lab.info().probes, moved(&lab).1), (0, 0));
    lab.window = 65_535;
    lab.ack(lab.una, &[]);
    assert!(!lab.listen().is_empty());
    assert_eq!(moved(&lab), (0, 0));
}
