//! A segment that fails a check of RFC 9293 section 3.10.7.4, RFC 7323 section 5.3 or RFC 5961 may be forged: it
//! changes nothing, but that an acknowledgment may be due.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tcp::config::{MILLISECOND, SECOND};
use tcp::{Block, Config, Ecn, Events, Keepalive, Options, Reason, Segment, State};
use wire::{Flags, Seq, Timestamps};

use super::peer::{Offer, Peer};

/// Fields that an unacceptable segment may change: the time of the challenge (RFC 5961 section 7), and the duplicate
/// that the acknowledgment reports (RFC 2883 section 4).
const MAY_CHANGE: [&str; 2] = ["last_challenge", "duplicate"];
/// Bits that it may set: an acknowledgment is due, and may report the duplicate.
const MAY_BE_SET: [&str; 3] = ["hot.bits.ack_now", "hot.bits.reports", "hot.bits.ready"];

/// Something that happens to a connection whose peer is honest.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// The peer sends, with a hole of so many bytes in front.
    Data { hole: u32, len: usize },
    /// The application sends.
    Send(usize),
    /// The application reads.
    Read(usize),
    /// The peer acknowledges so much of what was sent, in percent.
    Acknowledge(u32),
    /// Time passes.
    Wait(u64),
    /// The application closes its half.
    Shutdown,
    /// The peer closes its half.
    Fin,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (prop_oneof![3 => Just(0_u32), 1 => 1..300_u32], 1..200_usize)
            .prop_map(|(hole, len)| Happening::Data { hole, len }),
        3 => (1..3_000_usize).prop_map(Happening::Send),
        1 => (1..5_000_usize).prop_map(Happening::Read),
        3 => (0..=100_u32).prop_map(Happening::Acknowledge),
        2 => prop_oneof![3 => 1..200_u64, 1 => 1_000..4_000_u64].prop_map(Happening::Wait),
        1 => Just(Happening::Shutdown),
        1 => Just(Happening::Fin),
    ]
}

/// The check that a segment fails.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It begins behind the window.
    TooNew,
    /// It ends before what is expected.
    TooOld,
    /// Its timestamp is older than that of another segment (PAWS).
    OldTimestamp,
    /// It acknowledges what was never sent.
    AckTooNew,
    /// It acknowledges what was acknowledged more than a window ago.
    AckTooOld,
    /// A reset that is not exactly at the next byte.
    Reset,
    /// A SYN within the window.
    Syn,
    /// No acknowledgment.
    NoAck,
}

const FAULTS: [Fault; 8] = [
    Fault::TooNew,
    Fault::TooOld,
    Fault::OldTimestamp,
    Fault::AckTooNew,
    Fault::AckTooOld,
    Fault::Reset,
    Fault::Syn,
    Fault::NoAck,
];

/// A segment with one fault. All else that it has would change the connection if it were acceptable.
#[derive(Clone, Copy, Debug)]
struct Forged {
    fault: Fault,
    /// How far it lies from where it would be acceptable.
    distance: u32,
    len: usize,
    fin: bool,
    urgent: bool,
    marks: bool,
    sack: bool,
    window: u16,
    later: u32,
}

fn forged() -> impl Strategy<Value = Forged> {
    let (flags, numbers) = (any::<[bool; 4]>(), (0..70_000_u32, any::<u16>(), 0..100_u32));
    let len = prop_oneof![Just(0_usize), 1..300_usize];
    (prop::sample::select(&FAULTS[..]), len, flags, numbers).prop_map(
        |(fault, len, [fin, urgent, marks, sack], (distance, window, later))| Forged {
            fault,
            distance,
            len,
            fin,
            urgent,
            marks,
            sack,
            window,
            later,
        },
    )
}

/// The engine's connection, and what its honest peer knows.
struct Run {
    peer: Peer,
    timestamps: bool,
    /// The peer's next byte, and what it has acknowledged.
    seq: Seq,
    acked: Seq,
    /// The highest timestamp that the peer has sent.
    sent_stamp: Seq,
}

impl Run {
    fn new(timestamps: bool, iss: u32, user_timeout: u64) -> Run {
        let config = Config {
            ecn: Ecn::On,
            keepalive: Some(Keepalive { idle: SECOND, interval: SECOND, probes: 200 }),
            user_timeout,
            user_timeout_option: true,
            ..Config::default()
        };
        let offer = Offer { sack: true, timestamps, window_scale: Some(2) };
        let peer = Peer::new(config, offer, iss, 10 * MILLISECOND);
        let (seq, acked) = (peer.first, peer.theirs);
        let sent_stamp = Seq((peer.now / MILLISECOND) as u32);
        Run { peer, timestamps, seq, acked, sent_stamp }
    }

    fn happen(&mut self, happening: Happening) {
        let Some(standing) = self.connection().map(|connection| connection.standing()) else {
            return;
        };
        match happening {
            Happening::Data { hole, len } => {
                let payload = vec![5; len];
                self.honest(self.seq + hole, Flags::ACK, &payload);
                if hole == 0 {
                    self.seq += len as u32;
                }
            }
            Happening::Send(len) => {
                let _ = self.peer.socket().send(&vec![7; len]);
            }
            Happening::Read(len) => {
                let _ = self.peer.socket().receive(&mut vec![0; len]);
            }
            Happening::Acknowledge(percent) => {
                let outstanding = standing.snd_nxt - standing.snd_una;
                self.acked = standing.snd_una + outstanding / 100 * percent;
                self.honest(self.seq, Flags::ACK, &[]);
            }
            Happening::Wait(milliseconds) => {
                self.peer.wait(milliseconds * MILLISECOND);
            }
            Happening::Shutdown => self.peer.socket().shutdown(),
            Happening::Fin => self.honest(self.seq, Flags::ACK.with(Flags::FIN), &[]),
        }
        self.peer.transmit();
    }

    fn honest(&mut self, seq: Seq, flags: Flags, payload: &[u8]) {
        self.sent_stamp = Seq((self.peer.now / MILLISECOND) as u32);
        self.peer.send(seq, self.acked, flags, payload);
    }

    fn connection(&self) -> Option<&tcp::Connection> {
        let connection = self.peer.stack.connection(self.peer.id)?;
        (connection.end().is_none()).then_some(connection)
    }

    /// Receives the segment; `None` if nothing is unacceptable in this state.
    fn forge(&mut self, forged: &Forged) -> Option<()> {
        let standing = self.connection()?.standing();
        let info = self.connection()?.info();
        let Forged { fault, distance, len, .. } = *forged;
        let payload = vec![9; len];
        let pieces = [&payload[..]];
        let before = |seq: Seq, by: u32| Seq(seq.0.wrapping_sub(by));
        let window = standing.rcv_edge - standing.rcv_nxt;
        let mut flags = Flags::ACK;
        for (is_set, flag) in [
            (forged.fin, Flags::FIN),
            (forged.urgent, Flags::URG),
            (forged.marks, Flags::CWR.with(Flags::ECE)),
        ] {
            flags = if is_set { flags.with(flag) } else { flags };
        }
        let (mut seq, mut ack) = (standing.rcv_nxt, standing.snd_nxt);
        let mut stamp = self.sent_stamp + forged.later;
        match fault {
            Fault::TooNew => seq = standing.rcv_edge + 1 + distance,
            Fault::TooOld => seq = before(standing.rcv_acked, 1 + len as u32 + 1 + distance),
            Fault::OldTimestamp => {
                // An old timestamp is none if the last one is as old, or none is known.
                if !self.timestamps || standing.ts_recent == 0 {
                    return None;
                }
                stamp = before(Seq(standing.ts_recent), 1 + distance);
            }
            Fault::AckTooNew => ack = standing.snd_nxt + 1 + distance,
            Fault::AckTooOld => ack = before(standing.snd_una, standing.max_wnd + 1 + distance),
            Fault::Reset => {
                (seq, flags) = (standing.rcv_nxt + 1 + distance % window.max(1), Flags::RST);
            }
            Fault::Syn => flags = flags.with(Flags::SYN),
            Fault::NoAck => flags = flags.without(Flags::ACK),
        }
        let mut options = Options {
            timestamps: self
                .timestamps
                .then_some(Timestamps { value: stamp, echo: Seq((info.rtt / MILLISECOND) as u32) }),
            user_timeout: Some(3_000),
            ..Options::default()
        };
        if forged.sack {
            options.sack.push(Block { start: standing.snd_una, end: standing.snd_nxt });
        }
        self.peer.put(&Segment {
            seq,
            ack,
            flags,
            window: forged.window,
            urgent: if forged.urgent { 1 } else { 0 },
            options,
            payload: if payload.is_empty() { &[] } else { &pieces },
            gso_size: 0,
            ce: forged.marks,
        });
        Some(())
    }

    /// All of the connection's state, by the names of its fields.
    fn state(&self) -> BTreeMap<String, String> {
        let connection = self.peer.stack.connection(self.peer.id);
        fields(&format!("{:#?}", connection.unwrap()))
    }
}

/// The fields of what `{:#?}` prints, by their paths. A field's value is all that stands in it.
fn fields(text: &str) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    let mut path: Vec<String> = Vec::new();
    for line in text.lines().skip(1) {
        let depth = (line.len() - line.trim_start().len()) / 4;
        let line = line.trim();
        let Some(parents) = depth.checked_sub(1) else { break };
        path.truncate(parents);
        match line.split_once(": ") {
            Some((name, value)) => {
                path.push(name.to_owned());
                fields.insert(path.join("."), value.to_owned());
            }
            // A bit that is set, an element of a list, or the end of something.
            None if line.starts_with('"') => {
                let bit = line.trim_matches(|c| c == '"' || c == ',');
                fields.insert(format!("{}.{bit}", path.join(".")), "set".to_owned());
            }
            None if line.starts_with(['}', ')', ']']) => {}
            None => *fields.entry(path.join(".")).or_default() += line,
        }
    }
    fields
}

/// The paths that are not the same in both.
fn differences(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let names = before.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn an_unacceptable_segment_changes_no_state(
        happenings in prop::collection::vec(happening(), 0..25),
        all_forged in prop::collection::vec(forged(), 1..6),
        timestamps in any::<bool>(),
        days in prop_oneof![4 => Just(0_u64), 1 => Just(25)],
        iss in prop_oneof![Just(u32::MAX - 5_000), any::<u32>()],
    ) {
        let mut run = Run::new(timestamps, iss, 500 * SECOND);
        for happening in happenings {
            run.happen(happening);
        }
        if days > 0 {
            // Longer than timestamps count. Probes are not sent, as the clock of a machine that sleeps moves at once.
            run.peer.now += days * 24 * 3600 * SECOND;
        }
        for forged in all_forged {
            if run.connection().is_none() || days > 0 && matches!(forged.fault, Fault::OldTimestamp) {
                continue;
            }
            let before = run.state();
            let was_ended = run.connection().is_none();
            if run.forge(&forged).is_none() {
                continue;
            }
            let after = run.state();
            for name in differences(&before, &after) {
                let allowed = MAY_CHANGE.iter().any(|may| name == *may || name.starts_with(&format!("{may}.")))
                    || MAY_BE_SET.contains(&name.as_str()) && after.contains_key(&name);
                prop_assert!(allowed, "{:?} changes {}: {:?} to {:?}", forged, name, before.get(&name), after.get(&name));
            }
            prop_assert_eq!(was_ended, run.connection().is_none());
            prop_assert_eq!(run.peer.stack.next_event().map(|(_, events)| events), None::<Events>);
            // What may have become due goes out before the next one.
            run.peer.transmit();
        }
    }
}

/// A connection of which the peer is gone ends when its probes have had no answer, whatever others send in the peer's
/// name: acknowledgments of what was never sent, old timestamps, and segments outside of the window.
#[test]
fn forged_segments_do_not_keep_a_dead_connection() {
    for fault in [Fault::AckTooNew, Fault::AckTooOld, Fault::OldTimestamp, Fault::TooNew] {
        let mut run = Run::new(true, 7, 0);
        let keepalive = Keepalive { idle: 2 * SECOND, interval: SECOND, probes: 3 };
        run.peer.socket().set_keepalive(Some(keepalive));
        run.happen(Happening::Data { hole: 0, len: 10 });
        let begun = run.peer.now;
        let forged = Forged {
            fault,
            distance: 100,
            len: 1,
            fin: false,
            urgent: false,
            marks: false,
            sack: false,
            window: 1_000,
            later: 0,
        };
        while run.connection().is_some() {
            let waited = (run.peer.now - begun) / SECOND;
            assert!(waited < 20, "{fault:?} keeps it for {waited} s");
            run.forge(&forged);
            run.peer.wait(SECOND / 2);
        }
        let end = run.peer.stack.connection(run.peer.id).and_then(|connection| connection.end());
        assert_eq!(end, Some(Reason::TimedOut), "{fault:?}");
    }
}

/// TIME-WAIT begins anew with the peer's FIN (RFC 9293 section 3.10.7.4), and with no other segment.
#[test]
fn time_wait_is_prolonged_by_the_fin_alone() {
    let mut run = Run::new(false, 7, 0);
    run.happen(Happening::Shutdown);
    run.happen(Happening::Acknowledge(100));
    let standing = run.connection().unwrap().standing();
    run.acked = standing.snd_nxt;
    run.happen(Happening::Fin);
    assert_eq!(run.connection().unwrap().state(), State::TimeWait);
    let fin = run.seq;
    let deadline = |run: &Run| run.state()["slow_deadline"].clone();
    let begun = deadline(&run);
    let fin_at = |run: &mut Run, seq: Seq, ack: Seq| {
        run.peer.now += SECOND;
        run.peer.send(seq, ack, Flags::ACK.with(Flags::FIN), &[]);
        run.peer.transmit();
    };
    let old = Seq(fin.0.wrapping_sub(500));
    for (seq, ack) in [(fin + 100_000, run.acked), (old, run.acked), (fin, run.acked + 1)] {
        fin_at(&mut run, seq, ack);
        assert_eq!(deadline(&run), begun, "a FIN at {seq:?} that acknowledges {ack:?}");
    }
    let acked = run.acked;
    fin_at(&mut run, fin, acked);
    assert_ne!(deadline(&run), begun);
}
