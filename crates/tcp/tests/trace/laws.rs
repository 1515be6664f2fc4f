//! A trace of transfers on a path that loses packets.

use proptest::prelude::*;
use tcp::snapshot::RecoveryState;
use tcp::trace::{Event, Record, Timer};
use tcp::{FourTuple, Reason, State};
use wire::Flags;

use super::lab::{Lab, Seen, path, reversed};

const LEN: usize = 150_000;

/// A transfer beside another, of which the first is traced; or none, with `None`.
fn run(lost: Vec<bool>, traced: Option<u16>) -> Lab {
    let mut lab = Lab::new(lost);
    lab.stacks[0].trace(traced.map(path));
    let clients = [lab.connect(1000), lab.connect(2000)];
    lab.transfer(&clients, LEN);
    lab
}

/// The segments of a trace, in the form of what the wire saw.
fn segments(records: &[Record]) -> Vec<(u64, Seen)> {
    let segment = |record: &Record| match record.event {
        Event::Sent { header, .. } => Some((record.at, Seen::Out(record.path, header))),
        Event::Received(header) => Some((record.at, Seen::In(record.path, header))),
        _ => None,
    };
    records.iter().filter_map(segment).collect()
}

fn count(records: &[Record], is: impl Fn(&Event) -> bool) -> u64 {
    records.iter().filter(|record| is(&record.event)).count() as u64
}

fn losses() -> impl Strategy<Value = Vec<bool>> {
    proptest::collection::vec(proptest::bool::weighted(0.1), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_trace_has_every_segment_that_the_wire_saw_in_order(lost in losses()) {
        let lab = run(lost, Some(1000));
        let mut seen = lab.seen;
        seen.retain(|(_, seen)| {
            matches!(seen, Seen::Out(at, _) | Seen::In(at, _) if *at == path(1000))
        });
        prop_assert!(seen.len() > 20);
        prop_assert_eq!(segments(&lab.records), seen);
        prop_assert!(lab.records.iter().all(|record| record.dropped == 0));
    }

    #[test]
    fn a_traced_connection_sends_the_same_segments(lost in losses()) {
        let (with, without) = (run(lost.clone(), Some(1000)), run(lost, None));
        prop_assert_eq!(with.seen, without.seen);
        prop_assert_eq!(without.records, Vec::new());
        prop_assert_eq!(with.stacks[0].counters(), without.stacks[0].counters());
    }

    /// With one connection the stack's counters are those of the trace.
    #[test]
    fn timers_losses_and_retransmissions_are_those_that_were_counted(lost in losses()) {
        let mut lab = Lab::new(lost);
        lab.stacks[0].trace(Some(path(1000)));
        let client = lab.connect(1000);
        lab.transfer(&[client], LEN);
        let (records, counters) = (&lab.records, *lab.stacks[0].counters());
        let timer = |timer| count(records, |event| *event == Event::Timer(timer));
        prop_assert_eq!(timer(Timer::TailProbe), counters.tail_probes);
        prop_assert_eq!(timer(Timer::DelayedAck), counters.delayed_acks);
        let recovery = |event: &Event| {
            matches!(event, Event::Recovery { to: RecoveryState::Recovery, .. })
        };
        prop_assert_eq!(count(records, recovery), counters.recoveries);
        let bytes: u64 = records.iter().map(|record| match record.event {
            Event::Lost { bytes } => u64::from(bytes),
            _ => 0,
        }).sum();
        let again = |event: &Event| matches!(event, Event::Sent { retransmission: true, .. });
        prop_assert!(counters.retransmitted_bytes == 0 || bytes > 0 || timer(Timer::TailProbe) > 0);
        prop_assert!(count(records, again) >= counters.retransmissions);
    }

    /// Each record has what the connection was like afterwards, and states follow one another.
    #[test]
    fn states_follow_one_another_from_closed_to_closed(lost in losses()) {
        let lab = run(lost, Some(1000));
        let mut state = State::Closed;
        for record in &lab.records {
            if let Event::State { from, to, .. } = record.event {
                prop_assert_eq!(from, state);
                state = to;
            }
            if let Some(after) = record.after {
                let (pipe, out) = (after.in_flight, after.unacked);
                prop_assert!(pipe <= out, "{} of {} are in flight", pipe, out);
                prop_assert!(after.state == State::Closed || after.rto > 0);
            }
        }
        prop_assert_eq!(state, State::Closed);
        let ended = |event: &Event| matches!(event, Event::State { end: Some(_), .. });
        prop_assert_eq!(count(&lab.records, ended), 1);
    }
}

#[test]
fn a_loss_shows_how_it_was_found_and_what_came_of_it() {
    let mut lost = vec![false; 200];
    lost[30] = true;
    let mut lab = Lab::new(lost);
    lab.stacks[0].trace(Some(path(1000)));
    let client = lab.connect(1000);
    lab.transfer(&[client], 400_000);
    let at = |is: &dyn Fn(&Event) -> bool| {
        lab.records.iter().position(|record| is(&record.event)).unwrap()
    };
    let found = at(&|event| matches!(event, Event::Lost { .. }));
    let cause = lab.records[..found].last().unwrap();
    let Event::Received(header) = cause.event else { panic!("{cause:?}") };
    assert!(!header.options.sack.is_empty());
    let recovery = Event::Recovery { from: RecoveryState::Open, to: RecoveryState::Recovery };
    let entered = lab.records[at(&|event| *event == recovery)];
    let before = lab.records[found - 2].after.unwrap();
    let after = entered.after.unwrap();
    assert!(after.snd_ssthresh < before.snd_cwnd && after.recovery == RecoveryState::Recovery);
    assert!(at(&|event| matches!(event, Event::Sent { retransmission: true, .. })) > found);
    let end = Event::State { from: State::TimeWait, to: State::Closed, end: Some(Reason::Closed) };
    assert_eq!(lab.records.last().map(|record| record.event), Some(end));
}

#[test]
fn a_trace_can_begin_and_end_while_the_connection_lives() {
    let mut lab = Lab::new(Vec::new());
    let clients = [lab.connect(1000), lab.connect(2000)];
    lab.fetch();
    assert_eq!(lab.records, []);
    lab.stacks[0].trace(Some(path(1000)));
    let _ = lab.stacks[0].poll_transmit(0);
    assert!(lab.stacks[0].next_trace().is_some());
    // Another one takes its place, and what was not fetched is gone.
    lab.stacks[0].socket(clients[0], 0).unwrap().abort();
    lab.stacks[0].trace(Some(path(2000)));
    assert_eq!(lab.stacks[0].next_trace(), None);
    lab.stacks[0].socket(clients[1], 0).unwrap().abort();
    assert!(matches!(lab.stacks[0].next_trace().unwrap().event, Event::State { .. }));
    lab.stacks[0].trace(None);
    while lab.stacks[0].poll_transmit(0).is_some() {}
    assert_eq!(lab.stacks[0].next_trace(), None);
}

/// Of either side, the first connection that fits is traced from its SYN to its end, and no other.
#[test]
fn port_0_and_the_unspecified_address_stand_for_any() {
    use std::net::{Ipv4Addr, SocketAddr};
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    for side in [0, 1] {
        let whole = if side == 0 { path(1000) } else { reversed(path(1000)) };
        let anyones = [
            FourTuple { local: SocketAddr::new(whole.local.ip(), 0), ..whole },
            FourTuple { remote: any, ..whole },
            FourTuple { local: any, remote: any },
        ];
        for wanted in anyones.into_iter().chain([whole]) {
            let mut lab = Lab::new(vec![false; 100]);
            lab.traced = side;
            lab.stacks[side].trace(Some(wanted));
            let clients = [lab.connect(1000), lab.connect(2000)];
            lab.transfer(&clients, LEN);
            let header = |record: &Record| match record.event {
                Event::Sent { header, .. } | Event::Received(header) => Some(header),
                _ => None,
            };
            let headers: Vec<_> = lab.records.iter().filter_map(header).collect();
            let syns = headers.iter().filter(|header| header.flags.any(Flags::SYN)).count();
            assert_eq!(syns, 2, "{wanted:?}");
            let bytes: u32 = headers.iter().map(|header| header.len).sum();
            assert_eq!(bytes as usize, LEN, "{wanted:?}");
            let last = lab.records.last().map(|record| record.event);
            assert!(matches!(last, Some(Event::State { to: State::Closed, .. })), "{last:?}");
        }
    }
}

#[test]
fn a_connection_that_is_frozen_ends_here_and_goes_on_where_it_is_thawed() {
    let mut lab = Lab::new(Vec::new());
    lab.stacks[0].trace(Some(path(1000)));
    let client = lab.connect(1000);
    let snapshot = lab.stacks[0].freeze(client, 0).unwrap();
    lab.fetch();
    let end = Event::State { from: State::SynSent, to: State::Closed, end: Some(Reason::Frozen) };
    assert_eq!(lab.records.last().map(|record| record.event), Some(end));
    lab.records.clear();
    lab.stacks[0].thaw(&snapshot, super::lab::config(), 0).unwrap();
    lab.fetch();
    let begin = Event::State { from: State::Closed, to: State::SynSent, end: None };
    assert_eq!(lab.records.first().map(|record| record.event), Some(begin));
}
