//! Messages and status words are read as they were written, and all parts of the memory are apart.
#![cfg(not(loom))]

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use handoff::session::status::{Place, Status, Why};
use handoff::session::{
    ASKS, Ends, Layout, MESSAGE_LEN, Message, POLICY_MAX, Request, Shared, VERSION, Welcome,
};
use handoff::{Cid, Epoch, Named, Refusal, RestoreReason, ring};
use proptest::prelude::*;

fn layouts() -> impl Strategy<Value = Layout> {
    (1_u32..4, 1_u32..6, 1_u32..9, 12_u32..15, 12_u32..15).prop_map(
        |(workers, commands, connections, send, receive)| Layout {
            workers,
            commands: 1 << commands,
            connections,
            send: 1 << send,
            receive: 1 << receive,
        },
    )
}

fn reasons() -> impl Strategy<Value = RestoreReason> {
    proptest::sample::select(RestoreReason::ALL)
}

fn messages() -> impl Strategy<Value = Message> {
    prop_oneof![
        Just(Message::Hello),
        (layouts(), any::<u32>())
            .prop_map(|(layout, interface)| Message::Welcome(Welcome { layout, interface })),
        (any::<u32>(), any::<u16>(), any::<bool>())
            .prop_map(|(cid, count, has_io_uring)| Message::Offer(Cid(cid), count, has_io_uring)),
        reasons().prop_map(Message::RestoreAll),
        (any::<u32>(), reasons()).prop_map(|(cid, reason)| Message::Restore(Cid(cid), reason)),
        any::<u32>().prop_map(|cid| Message::Close(Cid(cid))),
    ]
}

/// Those of a connection of this number, some of IPv4 and some of IPv6.
fn ends(number: u16) -> Ends {
    let ip = |last: u8| match number.is_multiple_of(2) {
        true => IpAddr::from([10, 0, 0, last]),
        false => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last.into()]),
    };
    (SocketAddr::new(ip(1), number), SocketAddr::new(ip(2), !number))
}

proptest! {
    #[test]
    fn any_bytes_are_borne(bytes: Vec<u8>) {
        crate::given::session(&bytes);
    }

    #[test]
    fn messages_are_read_as_they_were_written(message in messages()) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    #[test]
    fn what_reads_as_a_message_is_what_it_writes(
        mut bytes in proptest::collection::vec(any::<u8>(), MESSAGE_LEN),
        begins: bool,
    ) {
        if begins {
            bytes[..2].copy_from_slice(&VERSION.to_le_bytes());
            bytes[2] %= 8;
        }
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(message.encode().to_vec(), bytes);
        }
    }

    #[test]
    fn a_status_is_read_as_it_was_written(
        place in proptest::sample::select(
            vec![Place::Free, Place::Offered, Place::Moving, Place::Nic, Place::Os, Place::Ended]),
        peer_closed: bool,
        error: u16,
        why in prop_oneof![
            Just(None),
            reasons().prop_map(|reason| Some(Why::Restored(reason))),
            proptest::sample::select(Refusal::ALL).prop_map(|reason| Some(Why::Refused(reason))),
        ],
        word: u64,
    ) {
        let status = Status { place, peer_closed, error, why };
        prop_assert_eq!(Status::decode(status.encode()), status);
        Status::decode(word);
    }

    /// Each word of each part is written with a number of its own, and all are there in the end.
    #[test]
    fn the_parts_of_the_memory_are_apart(layout in layouts()) {
        let words: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
        let shared = Shared::new(layout, &words).unwrap();
        let mut seen = HashSet::new();
        let mut own = |word: &AtomicU64| assert!(seen.insert(std::ptr::from_ref(word)));
        let policy = "p".repeat(POLICY_MAX);
        shared.said().set_policy(&policy);
        (0..ASKS as u16).for_each(|number| shared.ask(Some(ends(number))));
        for worker in 0..layout.workers {
            own(shared.nic_doorbell(worker).unwrap());
            if worker == 0 {
                own(shared.app_sleepers());
                own(shared.unheard());
                own(shared.wants_all_back());
                own(shared.picks());
                own(shared.answered());
            }
            let mut nic = ring::command::Producer::new(shared.to_app(worker).unwrap());
            let mut app = ring::command::Producer::new(shared.to_nic(worker).unwrap());
            for number in 0..layout.commands {
                nic.push([worker as u8 * 2 + 1; 16]).unwrap();
                app.push([worker as u8 * 2 + 2; 16]).unwrap();
                prop_assert_eq!(nic.pushed(), number + 1);
            }
        }
        for cid in 0..layout.connections {
            let area = shared.area(Cid(cid)).unwrap();
            let notes = area.notes();
            let of_wharf = [area.status(), area.worker(), area.sent(), notes.moving, area.wake()];
            let of_app = [area.readers(), area.unsent_most(), notes.lent_to, area.waiters()];
            for word in of_wharf.into_iter().chain(of_app) {
                own(word);
                word.store(u64::MAX, Ordering::Relaxed);
            }
            let byte = 100 + cid as u8;
            ring::send::Nic::open(area.send().unwrap(), Epoch(1), 7, &vec![byte; layout.send as usize])
                .unwrap();
            let read = vec![byte; layout.receive as usize];
            ring::receive::Nic::open(area.receive().unwrap(), Epoch(1), 9, &read, 0).unwrap();
        }
        for worker in 0..layout.workers {
            for (ring, byte) in [
                (shared.to_app(worker), worker as u8 * 2 + 1),
                (shared.to_nic(worker), worker as u8 * 2 + 2),
            ] {
                let mut consumer = ring::command::Consumer::new(ring.unwrap());
                for _ in 0..layout.commands {
                    prop_assert_eq!(consumer.pop(), Ok(Some([byte; 16])));
                }
                prop_assert_eq!(consumer.pop(), Ok(None));
            }
        }
        for cid in 0..layout.connections {
            let area = shared.area(Cid(cid)).unwrap();
            let app = ring::receive::App::new(area.receive().unwrap());
            let mut into = vec![0; layout.receive as usize];
            prop_assert_eq!(app.recv(&mut into), Ok(layout.receive));
            prop_assert!(into.iter().all(|byte| *byte == 100 + cid as u8));
            let (at, len) = layout.data_of(Cid(cid));
            prop_assert!(at % 4096 == 0 && len % 4096 == 0 && at + len <= layout.bytes());
        }
        let said = shared.said().policy();
        let said = said.as_ref().map(|(change, text)| (*change, text.as_str()));
        prop_assert_eq!(said, Some((2, Some(&*policy))));
        let is_asked = |number| shared.is_asked_for((0, ASKS as u64), || Some(ends(number)));
        prop_assert!((1..ASKS as u16).all(is_asked) && !is_asked(0));
        prop_assert!(shared.area(Cid(layout.connections)).is_none());
        prop_assert!(shared.nic_doorbell(layout.workers).is_none());
        prop_assert!(Shared::new(layout, &words[1..]).is_err());
    }
}

/// A command that was popped can be told from one that waits, also where the numbers begin again.
#[test]
fn it_is_known_whether_a_command_was_popped() {
    let layout = Layout { workers: 1, commands: 4, connections: 1, send: 4096, receive: 4096 };
    let words: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared::new(layout, &words).unwrap();
    let mut nic = ring::command::Producer::new(shared.to_app(0).unwrap());
    let mut app = ring::command::Consumer::new(shared.to_app(0).unwrap());
    for _ in 0..100 {
        let first = nic.pushed();
        nic.push([1; 16]).unwrap();
        let second = nic.pushed();
        nic.push([2; 16]).unwrap();
        assert_eq!((nic.was_popped(first), nic.was_popped(second)), (Ok(false), Ok(false)));
        app.pop().unwrap();
        assert_eq!((nic.was_popped(first), nic.was_popped(second)), (Ok(true), Ok(false)));
        app.pop().unwrap();
        assert_eq!((nic.was_popped(first), nic.was_popped(second)), (Ok(true), Ok(true)));
    }
}

/// With whatever a process has written there, what it reads is something or nothing.
#[test]
fn what_is_asked_for_is_known_by_its_time() {
    let layout = Layout { workers: 1, commands: 4, connections: 1, send: 4096, receive: 4096 };
    let words: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared::new(layout, &words).unwrap();
    let now = || shared.picks().load(Ordering::Relaxed);
    let is_asked = |before, which: u16| {
        let mut asked = 0;
        let is = shared.is_asked_for((before, now()), || {
            asked += 1;
            Some(ends(which))
        });
        assert!(asked <= 1);
        is
    };
    assert!(!is_asked(0, 1));
    shared.ask(Some(ends(1)));
    shared.ask(Some(ends(2)));
    assert_eq!([1, 2, 3].map(|which| is_asked(0, which)), [true, true, false]);
    assert_eq!([1, 2].map(|which| is_asked(1, which)), [false, true], "the first was before");
    shared.ask(None);
    assert!(is_asked(2, 9) && is_asked(0, 9) && !is_asked(3, 9), "all were asked for");
    (0..ASKS as u16).for_each(|which| shared.ask(Some(ends(1000 + which))));
    assert!(!is_asked(0, 9) && !is_asked(0, 1000), "that is long ago");
    assert!(is_asked(0, 1001) && is_asked(0, 1000 + ASKS as u16 - 1));
    let hostile: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(u64::MAX)).collect();
    let shared = Shared::new(layout, &hostile).unwrap();
    assert!(shared.said().policy().is_none());
    assert!(!shared.is_asked_for((0, u64::MAX), || None));
}

/// Whole texts are read while others are written.
#[test]
fn a_policy_is_read_as_a_whole() {
    let layout = Layout { workers: 1, commands: 4, connections: 1, send: 4096, receive: 4096 };
    let words: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared::new(layout, &words).unwrap();
    assert!(shared.said().policy().is_none() && shared.said().policy_changes() == 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000_usize {
                let letter = [b'a' + (round % 26) as u8];
                let letter = std::str::from_utf8(&letter).unwrap();
                shared.said().set_policy(&letter.repeat(round % POLICY_MAX + 1));
            }
        });
        let mut last = 0;
        while last < 40_000 {
            // It may be written faster than it is read.
            let Some((change, text)) = shared.said().policy() else { continue };
            let text = text.as_str().unwrap();
            assert!(change >= last);
            let round = change as usize / 2 - 1;
            assert_eq!(text.len(), round % POLICY_MAX + 1);
            assert!(text.bytes().all(|byte| byte == b'a' + (round % 26) as u8), "{text}");
            last = change;
        }
    });
}

/// What an application notes where it cannot send it is taken once, and the connection goes back before it is closed.
#[test]
fn requests_are_taken_once_and_in_order() {
    let layout = Layout { workers: 1, commands: 2, connections: 1, send: 4096, receive: 4096 };
    let words: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    let shared = Shared::new(layout, &words).unwrap();
    let requests = shared.area(Cid(0)).unwrap().requests();
    let taken = || requests.take().collect::<Vec<_>>();
    assert_eq!(taken(), []);
    requests.note(Request::Close);
    for reason in RestoreReason::ALL {
        requests.note(Request::Restore(*reason));
    }
    let last = *RestoreReason::ALL.last().unwrap();
    assert_eq!(taken(), [Request::Restore(last), Request::Close]);
    assert_eq!(taken(), []);
    requests.note(Request::Close);
    requests.clear();
    assert_eq!(taken(), []);
}
