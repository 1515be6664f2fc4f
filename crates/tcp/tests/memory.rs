//! What idle connections cost: under 1,000 bytes each, and no time.
//!
//! `WHARF_IDLE_CONNECTIONS=1000000 cargo test -p tcp --test memory -- --nocapture` counts a million.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tcp::{Config, Events, FourTuple, Nanos, Options, Segment, Stack, StackConfig, State};
use wire::{Flags, Seq, Timestamps};

/// Enough that what a process takes by itself does not count.
const CONNECTIONS: u32 = 50_000;
const BYTES_MAX: f64 = 1_000.0;

/// Bytes of memory that this process has, not counting what it maps of files.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<u64> =
        statm.split(' ').filter_map(|number| number.trim().parse().ok()).collect();
    (pages[1] - pages[2]) * 4096
}

/// A peer whose segments the test makes one by one.
struct Peer {
    path: FourTuple,
    seq: Seq,
    ack: Seq,
    timestamp: Seq,
}

impl Peer {
    fn new(number: u32) -> Self {
        let [_, a, b, c] = (number / 50_000).to_be_bytes();
        let remote =
            SocketAddr::from((Ipv4Addr::new(11, a, b, c), 1_000 + (number % 50_000) as u16));
        let path = FourTuple { local: SocketAddr::from(([10, 0, 0, 1], 80)), remote };
        Peer { path, seq: Seq(number), ack: Seq(0), timestamp: Seq(0) }
    }

    fn send(&mut self, stack: &mut Stack, flags: Flags, payload: &[u8], now: Nanos) {
        let syn = flags.any(Flags::SYN);
        let timestamps = Timestamps { value: Seq((now / 1_000_000) as u32), echo: self.timestamp };
        let options = Options {
            mss: syn.then_some(1460),
            window_scale: syn.then_some(7),
            sack_permitted: syn,
            timestamps: Some(timestamps),
            ..Options::default()
        };
        let segment = Segment {
            seq: self.seq,
            ack: self.ack,
            flags,
            window: 30_000,
            urgent: 0,
            options,
            payload: &[payload],
            gso_size: 0,
            ce: false,
        };
        stack.receive(&self.path, &segment, now);
        self.seq += segment.len();
        while let Some(transmit) = stack.poll_transmit(now) {
            assert_eq!(transmit.path, self.path);
            let syn = u32::from(transmit.flags.any(Flags::SYN));
            self.ack = transmit.seq + transmit.payload_len() as u32 + syn;
            let options = Options::parse(transmit.options.as_slice());
            self.timestamp = options.timestamps.unwrap().value;
        }
    }
}

/// A connection that has asked for something and has got it, and is idle since.
fn serve(stack: &mut Stack, number: u32, now: Nanos) {
    let mut peer = Peer::new(number);
    peer.send(stack, Flags::SYN, &[], now);
    peer.send(stack, Flags::ACK, &[], now);
    peer.send(stack, Flags::ACK.with(Flags::PSH), &[1; 300], now);
    let mut answered = false;
    while let Some((id, events)) = stack.next_event() {
        assert!(events.any(Events::ACCEPTED) || events.any(Events::READABLE));
        let mut socket = stack.socket(id, now).unwrap();
        assert_eq!(socket.state(), State::Established);
        if socket.receive(&mut [0; 1_000]) == Ok(300) {
            answered = true;
            assert_eq!(socket.send(&[2; 3_000]), Ok(3_000));
        }
    }
    assert!(answered);
    peer.send(stack, Flags::ACK, &[], now);
    // What it sent is there by now, and is acknowledged.
    peer.send(stack, Flags::ACK, &[], now);
}

#[test]
fn an_idle_connection_costs_less_than_a_thousand_bytes_and_no_time() {
    let count = std::env::var("WHARF_IDLE_CONNECTIONS");
    let count = count.map_or(CONNECTIONS, |count| count.parse().unwrap());
    let mut stack =
        Stack::new(StackConfig { secret: [3; 16], half_open: 1_000, connections: count });
    stack.listen(None, 80, Arc::new(Config::default())).unwrap();
    let before = resident();
    let mut now = 0;
    for number in 0..count {
        serve(&mut stack, number, now);
        now += 1_000;
    }
    // What is held back for a moment goes, and the timers of what was in flight end.
    while let Some(at) = stack.next_deadline() {
        assert!(at < now + 10_000_000_000, "an idle connection has something to do");
        now = now.max(at);
        stack.on_time(now);
        while stack.poll_transmit(now).is_some() {}
    }
    assert_eq!(stack.len(), count as usize);
    let bytes = (resident() - before) as f64 / f64::from(count);
    println!("{count} idle connections: {bytes:.0} bytes each");
    assert!(bytes < BYTES_MAX, "{bytes:.0} bytes an idle connection");
}
