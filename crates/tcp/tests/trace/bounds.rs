//! How much a peer can make a trace record, and what a trace costs while it is off.

use proptest::prelude::*;
use tcp::trace::{Event, QUEUE_MAX, Record};
use tcp::{FourTuple, Options, Segment, Stack};
use wire::{Flags, Seq};

use super::lab::{PORT, config, path, reversed, stack};

fn listening() -> Stack {
    let mut stack = stack(3);
    stack.listen(None, PORT, config()).unwrap();
    stack
}

/// The server's view of the connection that is traced.
fn served(port: u16) -> FourTuple {
    reversed(path(port))
}

fn fetch(stack: &mut Stack) -> Vec<Record> {
    std::iter::from_fn(|| stack.next_trace()).collect()
}

fn flood(stack: &mut Stack, number: usize) {
    for number in 0..number as u32 {
        let flags = [Flags::SYN, Flags::ACK, Flags::RST, Flags::FIN.with(Flags::ACK)];
        let segment = Segment {
            seq: Seq(number.wrapping_mul(0x9e37_79b9)),
            ack: Seq(number),
            flags: flags[number as usize % flags.len()],
            window: 1000,
            urgent: 0,
            options: Options::default(),
            payload: &[&[1; 10]],
            gso_size: 0,
            ce: false,
        };
        stack.receive(&served(1000), &segment, u64::from(number));
    }
}

#[test]
fn a_flood_fills_the_queue_and_the_next_record_counts_those_dropped() {
    const FLOOD: usize = 10 * QUEUE_MAX;
    let mut stack = listening();
    stack.trace(Some(served(1000)));
    flood(&mut stack, FLOOD);
    let kept = fetch(&mut stack);
    assert_eq!(kept.len(), QUEUE_MAX);
    assert!(kept.iter().all(|record| record.dropped == 0));
    // There is room again.
    flood(&mut stack, 1);
    let next = stack.next_trace().unwrap();
    assert!(next.dropped as usize >= FLOOD - QUEUE_MAX, "{next:?}");
    assert!(fetch(&mut stack).iter().all(|record| record.dropped == 0));
}

#[test]
fn segments_without_a_connection_are_recorded_with_their_answers() {
    let mut stack = listening();
    stack.trace(Some(served(1000)));
    let segment = Segment {
        seq: Seq(1),
        ack: Seq(2),
        flags: Flags::ACK,
        window: 0,
        urgent: 0,
        options: Options::default(),
        payload: &[],
        gso_size: 0,
        ce: false,
    };
    stack.receive(&served(1000), &segment, 5);
    stack.receive(&served(2000), &segment, 5);
    while stack.poll_transmit(6).is_some() {}
    let records = fetch(&mut stack);
    let [came, went] = records[..] else { panic!("{records:?}") };
    assert!(matches!(came.event, Event::Received(header) if header.flags == Flags::ACK));
    assert!(matches!(went.event, Event::Sent { header, .. } if header.flags == Flags::RST));
    assert_eq!((came.at, went.at), (5, 6));
    assert_eq!((came.after, went.after), (None, None));
}

proptest! {
    #[test]
    fn a_trace_that_is_off_stays_empty(number in 0..200usize, was_on: bool) {
        let mut stack = listening();
        if was_on {
            stack.trace(Some(served(1000)));
            flood(&mut stack, number / 2);
            stack.trace(None);
        }
        flood(&mut stack, number);
        while stack.poll_transmit(0).is_some() {}
        prop_assert_eq!(stack.next_trace(), None);
    }
}
