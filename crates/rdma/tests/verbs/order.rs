//! What the RFCs say about order, as laws of what is stored and told (RFC 5041 section 5.3, RFC 5040 section 5.5).

use rdma::Status;
use rdma::rdmap::Opcode;
use rdma::rdmap::atomic::Operation;
use rdma::verbs::{Flags, Payload, Work};

use super::raw::{alone, parse, tagged, untagged};
use crate::world::{BASE, Pair, Setup};

/// Segments of a message one behind the other, messages as they were posted; offsets go up.
#[test]
fn messages_leave_in_the_order_of_posts() {
    let mut pair = Pair::ready_with(&Setup { emss: 200, ..Setup::default() });
    let sge = pair.a.sge(0, 1000);
    for id in 0..6 {
        let work = match id % 3 {
            0 => Work::Write { stag: 10 + id as u32, offset: 1 << 32 },
            1 => Work::Send { invalidate: None },
            _ => Work::WriteImmediate { stag: 10 + id as u32, offset: 5, immediate: [1; 4] },
        };
        pair.a.post(id, work, &[sge]);
    }
    let mut open: Option<(Opcode, u64)> = None;
    let mut order = Vec::new();
    let mut msn = 0;
    for (header, payload) in parse(&pair.a.transmit(1 << 16)) {
        let opcode = Opcode::parse(header.ulp()).unwrap();
        let at = match header {
            rdma::ddp::Header::Tagged(header) => header.offset,
            rdma::ddp::Header::Untagged(header) => {
                // RFC 5041 section 4.3: numbers begin with 1 and go up by 1.
                assert_eq!(header.msn, msn + 1);
                msn += u32::from(header.last);
                u64::from(header.offset)
            }
        };
        if let Some((of, next)) = open {
            assert_eq!((opcode, at), (of, next));
        } else {
            order.push(opcode);
        }
        open = (!header.is_last()).then_some((opcode, at + payload.len() as u64));
    }
    use Opcode::{Immediate, Send, Write};
    assert_eq!(order, [Write, Send, Write, Immediate, Write, Send, Write, Immediate]);
}

/// A completion is told when all that came before it is placed.
#[test]
fn placed_before_told() {
    let mut host = alone();
    let (stag, into) = (host.stag, host.sge(100, 50));
    host.receive(1, &[into]);
    let mut bytes = Vec::new();
    for index in 0..10u8 {
        bytes.extend(tagged(Opcode::Write, true, stag, BASE + u64::from(index), &[index]));
    }
    bytes.extend(untagged(Opcode::Send, true, 1, 0, b"told"));
    host.ram.log.clear();
    host.feed_all(&bytes);
    assert_eq!(host.received(), [(1, Status::Success)]);
    assert_eq!(host.ram.log.len(), 11);
    assert_eq!(host.bytes(0, 10), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

/// The last byte of a message is that of its last piece, and only that piece is marked.
#[test]
fn the_last_byte_is_marked() {
    for markers in [false, true] {
        let mut setup = Setup { emss: 300, ..Setup::default() };
        setup.peer.markers = markers;
        let mut pair = Pair::ready_with(&setup);
        let sge = pair.a.sge(0, 5000);
        let (one, two) = (pair.b.sge(0, 3000), pair.b.sge(10_000, 4000));
        pair.b.receive(1, &[one, two]);
        pair.a.post(1, Work::Write { stag: pair.b.stag, offset: BASE }, &[sge]);
        pair.a.send(2, &[sge]);
        pair.b.ram.log.clear();
        pair.pump();
        let marks: Vec<_> = pair.b.ram.log.iter().filter(|(.., ends)| *ends).collect();
        assert_eq!(marks.len(), 2);
        for ((_, offset, len, _), end) in marks.into_iter().zip([5000, 10_000 + 2000]) {
            assert_eq!(offset + *len as u64, end);
        }
        // Each byte was stored once.
        let stored: usize = pair.b.ram.log.iter().map(|(_, _, len, _)| len).sum();
        assert_eq!(stored, 10_000);
    }
}

/// A read behind a write sees what was written (RFC 5040 section 5.5, its table).
#[test]
fn a_read_sees_the_write_before_it() {
    let mut pair = Pair::ready();
    pair.a.bytes(0, 8).copy_from_slice(b"new data");
    let (from, into) = (pair.a.sge(0, 8), pair.a.sge(64, 8));
    let (stag, offset) = (pair.b.stag, BASE + 200);
    pair.a.post(1, Work::Write { stag, offset }, &[from]);
    pair.a.post(2, Work::Read { stag, offset }, &[into]);
    pair.pump();
    assert_eq!(pair.a.bytes(64, 8), b"new data");
}

/// A read shows nothing of an atomic operation behind it, though both requests come together and the response is gathered
/// later. The specifications leave this to a fence (see the table of the model); rxe and cards keep it.
#[test]
fn a_read_shows_nothing_of_the_atomics_behind_it() {
    for (markers, emss) in [(false, 1448), (true, 1448), (false, 200), (true, 200)] {
        let mut setup = Setup { emss, ..Setup::default() };
        setup.peer.markers = markers;
        setup.config.markers = markers;
        let mut pair = Pair::ready_with(&setup);
        let stag = pair.b.stag;
        let add = |at: u64, add| Work::Atomic {
            stag,
            offset: BASE + at,
            operation: Operation::fetch_add(add),
        };
        for at in 0..500 {
            pair.b.bytes(at * 8, 8).copy_from_slice(&(at as u64).to_ne_bytes());
        }
        let words = |pair: &mut Pair, at: usize, count: usize| -> Vec<u64> {
            let bytes = pair.a.bytes(at, count * 8).to_vec();
            bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
        };
        // Twice at one place, at the first word, and where a segment may end.
        let (into, of_atomic) = (pair.a.sge(0, 4000), pair.a.sge(9000, 8));
        pair.a.post(1, Work::Read { stag, offset: BASE }, &[into]);
        for (id, at) in [(2, 0), (3, 8), (4, 8), (5, 181 * 8)] {
            pair.a.post(id, add(at, 1 << 40), &[of_atomic]);
        }
        // A read that begins within a word, and one behind them all.
        let (part, after) = (pair.a.sge(8012, 4), pair.a.sge(4000, 4000));
        let bytes = pair.a.transmit(1 << 16);
        pair.b.feed_all(&bytes);
        pair.pump();
        assert_eq!(words(&mut pair, 0, 500), (0..500).collect::<Vec<u64>>(), "{markers} {emss}");
        pair.a.post(6, Work::Read { stag, offset: BASE + 12 }, &[part]);
        pair.a.post(7, add(8, 1 << 40), &[of_atomic]);
        pair.a.post(8, Work::Read { stag, offset: BASE }, &[after]);
        let bytes = pair.a.transmit(1 << 16);
        pair.b.feed_all(&bytes);
        pair.pump();
        // The upper half of a word on a machine with the lower half first.
        let upper = ((2_u64 << 40) + 1).to_ne_bytes();
        assert_eq!(pair.a.bytes(8012, 4).to_vec(), upper[4..], "{markers} {emss}");
        let mut expected: Vec<u64> = (0..500).collect();
        (expected[0], expected[1]) = (1 << 40, (3 << 40) + 1);
        expected[181] += 1 << 40;
        assert_eq!(words(&mut pair, 4000, 500), expected);
        let ids = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(pair.a.sent(), ids.map(|id| (id, Status::Success)));
    }
}

/// No segment ends within the word that a message ends with: its receiver would store that in two parts.
#[test]
fn no_segment_ends_within_the_last_word() {
    for len in 100..500 {
        for at in 0..8 {
            let mut pair = Pair::ready_with(&Setup { emss: 200, ..Setup::default() });
            let (sge, stag) = (pair.a.sge(at, len), pair.b.stag);
            pair.a.post(1, Work::Write { stag, offset: BASE + at as u64 }, &[sge]);
            pair.a.send(2, &[sge]);
            let sent = parse(&pair.a.transmit(1 << 16));
            for (of, begin) in [(Opcode::Write, at), (Opcode::Send, 0)] {
                let segments = sent.iter().filter(|of_all| Opcode::parse(of_all.0.ulp()) == Ok(of));
                let lens: Vec<usize> = segments.map(|(_, payload)| payload.len()).collect();
                let end = begin + len as usize;
                assert_eq!(lens.iter().sum::<usize>(), len as usize);
                let last = end - lens[lens.len() - 1];
                assert!(last <= (end - 1) & !7 || lens.len() == 1, "{of:?} {begin} {lens:?}");
            }
        }
    }
}

/// Pieces are handed over by the hundred: one call for a list of small writes, and none over 1,024.
#[test]
fn placement_comes_in_batches() {
    let setup = Setup { sends: 4096, cqe: 8192, ..Setup::default() };
    let mut pair = Pair::ready_with(&setup);
    let stag = pair.b.stag;
    let write = |pair: &mut Pair, count: u64| {
        for id in 0..count {
            let offset = BASE + id % 4000 * 8;
            let bytes = id.to_ne_bytes();
            let work = Work::Write { stag, offset };
            pair.a.post_with(id, work, Payload::Inline(&bytes), Flags::default());
        }
        let bytes = pair.a.transmit(1 << 18);
        let before = pair.b.rnic.counters().place_calls;
        pair.b.feed_all(&bytes);
        pair.b.rnic.counters().place_calls - before
    };
    assert_eq!(write(&mut pair, 32), 1);
    let calls = write(&mut pair, 4000);
    assert!((4..=6).contains(&calls), "{calls}");
    assert!(pair.b.ram.longest <= 1024 && pair.b.ram.longest > 700);
}
