//! One bound for the memory of all connections: it is kept whatever peers send, and data within an offered
//! window is taken all the same.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use sys::allocator::Counting;
use tcp::config::SECOND;
use tcp::{Config, Events, FourTuple, Id, Memory, Options, Segment, Stack, StackConfig, State};
use wire::{Flags, Seq};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that a connection has beside its buffers, with its part of all tables, which double.
const CONNECTION: u64 = 1_200;
const SHIFT: u8 = 7;

fn stack(connections: u32, memory: u64) -> Stack {
    let config = StackConfig { secret: [3; 16], half_open: 1_000, connections };
    Stack::new(config).with_memory(memory)
}

fn spent(memory: &Memory) -> u64 {
    assert!(memory.received <= memory.promised, "{memory:?}");
    memory.sending + memory.promised + memory.tables + memory.kept
}

/// A peer whose segments the test makes one by one.
struct Peer {
    path: FourTuple,
    seq: Seq,
    ack: Seq,
    /// The right edge of the window that it was offered.
    edge: Seq,
    /// What it offers itself.
    window: u16,
    /// The stack's window shift.
    shift: u8,
}

impl Peer {
    fn new(number: u32) -> Self {
        let [_, a, b, c] = (number / 50_000).to_be_bytes();
        let remote =
            SocketAddr::from((Ipv4Addr::new(11, a, b, c), 1_000 + (number % 50_000) as u16));
        let path = FourTuple { local: SocketAddr::from(([10, 0, 0, 1], 80)), remote };
        Peer { path, seq: Seq(number), ack: Seq(0), edge: Seq(number), window: 0, shift: SHIFT }
    }

    /// Sends a segment of this peer, and takes what the stack answers.
    fn give(&mut self, stack: &mut Stack, seq: Seq, flags: Flags, payload: &[u8], now: u64) {
        let syn = flags.any(Flags::SYN);
        let options = Options {
            mss: syn.then_some(1460),
            window_scale: syn.then_some(SHIFT),
            sack_permitted: syn,
            ..Options::default()
        };
        let segment = Segment {
            seq,
            ack: self.ack,
            flags,
            window: self.window,
            urgent: 0,
            options,
            payload: &[payload],
            gso_size: 0,
            ce: false,
        };
        stack.receive(&self.path, &segment, now);
        self.take_output(stack, now);
    }

    fn take_output(&mut self, stack: &mut Stack, now: u64) {
        while let Some(sent) = stack.poll_transmit(now) {
            if sent.path != self.path {
                continue;
            }
            let syn = sent.flags.any(Flags::SYN);
            let end = sent.seq + sent.payload_len() as u32 + u32::from(syn);
            if end.after(self.ack) || syn {
                self.ack = end;
            }
            let shift = if syn { 0 } else { self.shift };
            let edge = sent.ack + (u32::from(sent.window) << shift);
            assert!(!edge.before(self.edge), "the window shrinks by {}", self.edge - edge);
            self.edge = edge;
        }
    }

    /// Opens a connection, if there is memory for one.
    fn open(&mut self, stack: &mut Stack, now: u64) -> bool {
        let iss = self.seq;
        self.give(stack, iss, Flags::SYN, &[], now);
        if self.ack == Seq(0) {
            return false;
        }
        self.seq = iss + 1;
        self.give(stack, self.seq, Flags::ACK, &[], now);
        true
    }

    fn room(&self) -> u32 {
        self.edge - self.seq
    }
}

fn accepted(stack: &mut Stack) -> Vec<Id> {
    let events = std::iter::from_fn(|| stack.next_event());
    events.filter(|(_, events)| events.any(Events::ACCEPTED)).map(|(id, _)| id).collect()
}

/// The law: peers that put one byte at the far end of each window do not get more memory than the bound; and
/// when they then send everything that they were allowed to, it is taken.
fn far_ends(count: u32, limit: u64) {
    let mut stack = stack(count, limit);
    stack.listen(None, 80, Arc::new(Config::default())).unwrap();
    let before = Counting::held();
    let within = |stack: &Stack, what: &str| {
        assert!(spent(&stack.memory()) <= limit, "{what}: {:?}", stack.memory());
        let held = Counting::held() - before;
        let most = limit + stack.len() as u64 * CONNECTION;
        assert!(held <= most, "{what}: {held} bytes, not {most}: {:?}", stack.memory());
    };
    let mut peers = Vec::new();
    let mut ids = Vec::new();
    for number in 0..count {
        let mut peer = Peer::new(number);
        if peer.open(&mut stack, 0) {
            peers.push(peer);
        }
        ids.extend(accepted(&mut stack));
        let peer = peers.last_mut().unwrap();
        let last = Seq(peer.edge.0.wrapping_sub(1));
        peer.give(&mut stack, last, Flags::ACK, &[7], 0);
    }
    within(&stack, "far ends");
    let refused = u64::from(count) - peers.len() as u64;
    assert_eq!(stack.counters().syns_refused, refused);
    assert_eq!(stack.len(), peers.len());
    if refused > 0 {
        assert!(stack.counters().windows_short > 0, "windows were as large as ever");
    }
    println!("{} of {count} connections, {:?}", peers.len(), stack.memory());
    let payload = vec![7; 1 << 16];
    for (peer, id) in peers.iter_mut().zip(&ids) {
        let room = peer.room() as usize;
        assert!(room >= 2_000, "a window of {room}");
        // Nothing is read: the edge stays about where it is.
        peer.give(&mut stack, peer.seq, Flags::ACK, &payload[..room], 0);
        assert_eq!(stack.connection(*id).unwrap().readable_len(), room);
    }
    within(&stack, "all that was promised");
    // When all are closed the memory is given back.
    for id in ids {
        stack.socket(id, 0).unwrap().abort();
        while stack.poll_transmit(0).is_some() {}
    }
    assert_eq!(stack.len(), 0);
    while let Some(at) = stack.next_deadline() {
        assert!(at < 10 * SECOND, "it waits for nothing");
        stack.on_time(at);
    }
    assert_eq!(spent(&stack.memory()), 0, "{:?}", stack.memory());
    let held = Counting::held() - before;
    assert!(held <= u64::from(count) * CONNECTION + (1 << 20), "{held} bytes are kept");
}

/// All in one test: memory is counted for the whole process.
#[test]
fn a_byte_at_the_far_end_of_each_window_does_not_exceed_the_bound() {
    far_ends(100_000, 256 << 20);
    far_ends(2_000, 256 << 20);
    far_ends(100, 1 << 20);
    pruned();
    cut_short();
    starved();
    far_away();
    forged();
    coarse();
    late_cookies();
}

/// Blocks out of order take more memory than their bytes. Where it is short the later half of them goes, and what the
/// peer sends again is taken.
fn pruned() {
    const LIMIT: u64 = 8 << 20;
    let mut stack = stack(10_000, LIMIT);
    stack.listen(None, 80, Arc::new(Config::default())).unwrap();
    let mut peers: Vec<Peer> = (0..400).map(Peer::new).collect();
    peers.retain_mut(|peer| peer.open(&mut stack, 0));
    let ids = accepted(&mut stack);
    let all = peers.len();
    for (at, peer) in peers.iter_mut().enumerate() {
        let room = peer.room();
        for offset in (1..room).step_by(2) {
            peer.give(&mut stack, peer.seq + offset, Flags::ACK, &[7], 0);
        }
        assert!(spent(&stack.memory()) <= LIMIT, "after {at}: {:?}", stack.memory());
    }
    let counters = *stack.counters();
    println!("{all} connections with holes: {:?}", stack.memory());
    assert!(counters.pruned > 1_000, "{counters:?}");
    for (peer, id) in peers.iter_mut().zip(ids) {
        let room = peer.room() as usize;
        peer.give(&mut stack, peer.seq, Flags::ACK, &vec![7; room], 0);
        assert!(stack.connection(id).unwrap().readable_len() >= room);
    }
    assert_eq!(stack.memory().tables, 0);
}

/// Applications that write as much as they may to peers that read nothing keep within the bound too, and
/// go on as it is acknowledged.
fn cut_short() {
    const LIMIT: u64 = 16 << 20;
    let mut stack = stack(10_000, LIMIT);
    stack.listen(None, 80, Arc::new(Config::default())).unwrap();
    let mut peers: Vec<Peer> = (0..80).map(Peer::new).collect();
    peers.retain_mut(|peer| peer.open(&mut stack, 0));
    let ids = accepted(&mut stack);
    assert_eq!(ids.len(), 80);
    let write = |stack: &mut Stack, id: Id| {
        let mut all = 0;
        loop {
            let taken = stack.socket(id, 0).unwrap().send(&[7; 10_000]).unwrap();
            assert!(spent(&stack.memory()) <= LIMIT, "{:?}", stack.memory());
            if taken == 0 {
                return all;
            }
            all += taken;
        }
    };
    let written: Vec<usize> = ids.iter().map(|id| write(&mut stack, *id)).collect();
    assert!(written.iter().all(|&bytes| bytes >= 4_096), "one gets nothing: {written:?}");
    assert!(stack.counters().writes_short > 0);
    // What is acknowledged makes room again.
    let (peer, id) = (&mut peers[40], ids[40]);
    peer.window = 50_000;
    peer.give(&mut stack, peer.seq, Flags::ACK, &[], 0);
    peer.give(&mut stack, peer.seq, Flags::ACK, &[], 0);
    while let Some((writable, events)) = stack.next_event() {
        assert!(writable == id && events.any(Events::WRITABLE));
        assert!(write(&mut stack, id) > 0);
    }
}

/// A connection whose application could queue nothing, with nothing to be acknowledged, becomes writable when
/// others have ended.
fn starved() {
    const LIMIT: u64 = 1 << 20;
    let mut stack = stack(10_000, LIMIT);
    stack.listen(None, 80, Arc::new(Config::default())).unwrap();
    let mut peers: Vec<Peer> = (0..400).map(Peer::new).collect();
    peers.retain_mut(|peer| peer.open(&mut stack, 0));
    let ids = accepted(&mut stack);
    let mut hungry = Vec::new();
    for &id in &ids {
        match stack.socket(id, 0).unwrap().send(&[7; 3_000]).unwrap() {
            0 => hungry.push(id),
            taken => assert!(taken >= 2_048),
        }
    }
    assert!(hungry.len() > 10, "{} of {} get nothing", hungry.len(), ids.len());
    assert!(stack.next_event().is_none(), "there is no event");
    assert!(stack.counters().writes_short >= hungry.len() as u64);
    for id in ids.iter().filter(|id| !hungry.contains(id)) {
        stack.socket(*id, 0).unwrap().abort();
        while stack.poll_transmit(0).is_some() {}
    }
    while let Some((id, events)) = stack.next_event() {
        assert!(events.any(Events::WRITABLE));
        assert_eq!(stack.socket(id, 0).unwrap().send(&[7; 3_000]), Ok(3_000));
        hungry.retain(|one| *one != id);
    }
    assert!(hungry.is_empty(), "{} did not become writable", hungry.len());
}

/// The window of one that reads grows to 6 MB. A byte at its far end takes a block.
fn far_away() {
    let mut stack = stack(10, 1 << 30);
    stack.listen(None, 80, Arc::new(Config::default())).unwrap();
    let mut peer = Peer::new(1);
    assert!(peer.open(&mut stack, 0));
    let id = accepted(&mut stack)[0];
    let mut now = 0;
    for _ in 0..5_000 {
        let len = peer.room().min(60_000);
        peer.give(&mut stack, peer.seq, Flags::ACK, &vec![7; len as usize], now);
        peer.seq += len;
        stack.socket(id, now).unwrap().receive(&mut [0; 60_000]).unwrap();
        peer.take_output(&mut stack, now);
        now += 1_000;
    }
    let room = peer.room();
    assert!(room > 4 << 20, "a window of {room}");
    let last = Seq(peer.edge.0.wrapping_sub(1));
    peer.give(&mut stack, last, Flags::ACK, &[7], now);
    let memory = stack.memory();
    assert!((1..64 << 10).contains(&memory.received), "{memory:?}");
    assert!(memory.promised > u64::from(room), "{memory:?}");
}

/// Forged SYNs take an eighth at most; others get in by cookies.
fn forged() {
    const LIMIT: u64 = 8 << 20;
    let mut stack = stack(10_000, LIMIT);
    stack.listen(None, 80, Arc::new(Config::default())).unwrap();
    for number in 100..5_000 {
        let mut peer = Peer::new(number);
        peer.give(&mut stack, peer.seq, Flags::SYN, &[], 0);
    }
    assert!(stack.memory().promised <= LIMIT / 4, "{:?}", stack.memory());
    let mut honest = Peer::new(1);
    assert!(honest.open(&mut stack, 0));
    let id = accepted(&mut stack)[0];
    assert_eq!(stack.connection(id).unwrap().state(), State::Established);
    assert!(stack.counters().cookies_accepted == 1 && stack.counters().syns_refused == 0);
}

/// A buffer smaller than the unit of the window field: a window that was filled and read opens again.
fn coarse() {
    const LIMIT: u64 = 16 << 20;
    let mut stack = stack(10_000, LIMIT);
    let config = Config { receive_buffer_max: 1 << 30, ..Config::default() };
    stack.listen(None, 80, Arc::new(config)).unwrap();
    let mut peers: Vec<Peer> = (0..400).map(|n| Peer { shift: 14, ..Peer::new(n) }).collect();
    peers.retain_mut(|peer| peer.open(&mut stack, 0));
    let ids = accepted(&mut stack);
    let mut now = 0;
    for (peer, id) in peers.iter_mut().zip(&ids) {
        for round in 0..5 {
            now += 1_000_000;
            let room = peer.room();
            assert!(room > 0, "round {round}: the window stays closed: {:?}", stack.memory());
            peer.give(&mut stack, peer.seq, Flags::ACK, &vec![7; room as usize], now);
            assert!(spent(&stack.memory()) <= LIMIT, "{:?}", stack.memory());
            peer.seq += room;
            let read = stack.socket(*id, now).unwrap().receive(&mut vec![0; 1 << 20]);
            assert_eq!(read, Ok(room as usize));
            peer.take_output(&mut stack, now);
        }
    }
    let windows = stack.counters().windows_short;
    assert!(windows > 10, "{windows} of {} windows are small", ids.len());
}

/// A SYN-ACK is sent only where its answer would be taken: where memory is too short for the window that
/// a cookie offers, the SYN is refused, and the peer tries again.
fn late_cookies() {
    const LIMIT: u64 = 8 << 20;
    let mut stack = stack(10_000, LIMIT);
    stack.listen(None, 80, Arc::new(Config::default())).unwrap();
    let mut peers: Vec<Peer> = (0..150).map(Peer::new).collect();
    peers.retain_mut(|peer| peer.open(&mut stack, 0));
    for number in 1_000..5_000 {
        let mut forged = Peer::new(number);
        forged.give(&mut stack, forged.seq, Flags::SYN, &[], 0);
    }
    let before = *stack.counters();
    let mut honest = Peer::new(6_000);
    let answered = honest.open(&mut stack, 0);
    let after = stack.counters();
    assert!(!answered && after.syns_refused > before.syns_refused, "{after:?}");
    assert_eq!(after.resets, before.resets, "it was answered, and then reset");
}
