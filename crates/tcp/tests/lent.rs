//! Connections whose queues lie with the application: what has no room there is not taken, and comes again.

use std::net::SocketAddr;
use std::sync::Arc;

use tcp::{Config, FourTuple, Id, Nanos, Placement, Queue, Segment, Snapshot, Stack, StackConfig};
use wire::{Flags, Seq};

const MSS: usize = 1_000;
/// Of the window.
const UNIT: u32 = 1 << 7;
const SECOND: Nanos = 1_000_000_000;

fn stack() -> Stack {
    Stack::new(StackConfig { secret: [7; 16], half_open: 4, connections: 4 })
}

fn path() -> FourTuple {
    let end = |host: u8, port: u16| SocketAddr::from(([10, 0, 0, host], port));
    FourTuple { local: end(1, 7), remote: end(2, 4_000) }
}

/// An established connection, as another stack has frozen it: nothing is queued.
fn established() -> Snapshot {
    let (mut client, mut server) = (stack(), stack());
    let config = Arc::new(Config::default());
    server.listen(None, path().remote.port(), Arc::clone(&config)).unwrap();
    let id = client.connect(path(), config, SECOND).unwrap();
    let back = FourTuple { local: path().remote, remote: path().local };
    for _ in 0..3 {
        exchange(&mut client, &mut server, &back);
        exchange(&mut server, &mut client, &path());
    }
    client.freeze(id, SECOND).unwrap()
}

/// Gives what one stack has to send to the other.
fn exchange(from: &mut Stack, to: &mut Stack, path: &FourTuple) {
    while let Some(sent) = from.poll_transmit(SECOND) {
        let mut header = vec![0; sent.header_len()];
        sent.write_header(&mut header);
        let tcp = wire::Tcp::new(&header[..]).unwrap();
        to.receive(path, &Segment::new(&tcp, &[]), SECOND);
    }
}

struct Lent {
    stack: Stack,
    id: Id,
    /// The next sequence number of the peer's, and what it acknowledges.
    next: Seq,
    ack: Seq,
}

impl Lent {
    fn with_room(room: u32) -> Self {
        let snapshot = established();
        let mut stack = stack();
        let id = stack.thaw_lent(&snapshot, Arc::new(Config::default()), room, SECOND).unwrap();
        Lent { stack, id, next: snapshot.receive.nxt, ack: snapshot.send.nxt }
    }

    /// The peer sends a segment, so far behind the next one that is expected.
    fn receive(&mut self, ahead: usize, len: usize) -> Option<Placement> {
        let bytes = vec![9; len];
        let segment = Segment {
            seq: self.next + ahead as u32,
            ack: self.ack,
            flags: Flags::ACK,
            window: 1_000,
            urgent: 0,
            options: tcp::Options::default(),
            payload: &[&bytes],
            gso_size: 0,
            ce: false,
        };
        self.stack.receive(&path(), &segment, SECOND)
    }

    fn window_edge(&mut self) -> Seq {
        let (_, shift) = established().agreed.window_scale.unwrap();
        let mut edge = None;
        while let Some(sent) = self.stack.poll_transmit(SECOND) {
            // Rounded down, by less than its unit (RFC 7323 section 2.4).
            edge = Some(sent.ack + ((u32::from(sent.window) + 1) << shift));
        }
        edge.expect("an acknowledgment")
    }
}

#[test]
fn what_has_no_room_is_not_taken_and_the_window_does_not_shrink() {
    let mut lent = Lent::with_room(2 * MSS as u32);
    let first = lent.receive(0, MSS);
    assert_eq!(first, Some(Placement { id: lent.id, seq: lent.next, skip: 0, len: MSS as u32 }));
    let edge = lent.window_edge() + 0_u32.wrapping_sub(UNIT);
    assert!(edge.after(lent.next + 10 * MSS as u32), "more was offered than there is room for");
    // Behind a hole, and half of it beyond the room.
    let second = lent.receive(MSS + MSS / 2, MSS);
    let at = lent.next + (MSS + MSS / 2) as u32;
    assert_eq!(second, Some(Placement { id: lent.id, seq: at, skip: 0, len: MSS as u32 / 2 }));
    assert_eq!(lent.receive(3 * MSS, MSS), None, "all of it is beyond");
    assert!(!lent.window_edge().before(edge));
    // The hole is filled by more than its bytes.
    let third = lent.receive(MSS - 10, MSS);
    assert_eq!(
        third,
        Some(Placement {
            id: lent.id,
            seq: lent.next + MSS as u32,
            skip: 10,
            len: MSS as u32 - 10
        })
    );
    assert_eq!(lent.stack.connection(lent.id).unwrap().readable_len(), 2 * MSS);
    assert_eq!(lent.receive(2 * MSS, MSS), None);
    // What the application has read makes room.
    lent.stack.socket(lent.id, SECOND).unwrap().consume(MSS);
    let fourth = lent.receive(2 * MSS, 2 * MSS);
    assert_eq!(
        fourth,
        Some(Placement { id: lent.id, seq: lent.next + 2 * MSS as u32, skip: 0, len: MSS as u32 })
    );
    // So does more memory.
    lent.stack.socket(lent.id, SECOND).unwrap().set_room(3 * MSS as u32);
    assert_eq!(lent.receive(3 * MSS, MSS).map(|placement| placement.len), Some(MSS as u32));
    assert!(!lent.window_edge().before(edge));
}

#[test]
fn what_is_lent_is_sent_by_its_numbers_and_given_back_with_the_connection() {
    let mut lent = Lent::with_room(1 << 20);
    let start = lent.ack;
    lent.stack.socket(lent.id, SECOND).unwrap().lend(5_000).unwrap();
    let mut sent = 0;
    while let Some(segment) = lent.stack.poll_transmit(SECOND) {
        assert_eq!((segment.seq, segment.payload), (start + sent, [&[][..], &[]]));
        assert_eq!(segment.payload_len(), segment.lent as usize);
        sent += segment.lent;
    }
    assert_eq!(sent, 5_000);
    lent.ack = start + 2_000;
    lent.receive(0, 0);
    assert_eq!(lent.stack.connection(lent.id).unwrap().standing().queued, 3_000);
    let mut asked = Vec::new();
    let mut lend = |queue, offset, len| {
        asked.push((queue, offset, len));
        vec![5; len as usize]
    };
    let snapshot = lent.stack.freeze_lent(lent.id, &mut lend, SECOND).unwrap();
    assert_eq!(snapshot.send.queue, [5; 3_000]);
    assert_eq!(asked, [(Queue::Send, 0, 3_000), (Queue::Receive, 0, 0)]);
    assert!(snapshot.validate().is_ok());
}
