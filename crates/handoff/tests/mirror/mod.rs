//! Mirror records: whatever is left of a commit when the NIC dies reads as the record before it or as the
//! new one, and what is read is the connection that was there.

#[path = "../../../tcp/tests/snapshot/given.rs"]
#[allow(dead_code)] // the tests of tcp use the rest
mod given;

use std::sync::atomic::{AtomicU64, Ordering};

use handoff::mirror::{
    AGREED_WORDS, Agreed, Area, MIRROR_WORDS, MOVING_WORDS, MirrorError, Moving, ReadError, Record,
    Writer, read, read_words,
};
use handoff::{Cid, Epoch};
use proptest::prelude::*;
use tcp::{Snapshot, State};
use wire::Seq;

fn area() -> Area {
    [const { AtomicU64::new(0) }; MIRROR_WORDS]
}

fn words(area: &Area) -> [u64; MIRROR_WORDS] {
    core::array::from_fn(|index| area[index].load(Ordering::Relaxed))
}

/// Whether the kernel takes a connection in this state.
fn is_served(state: State) -> bool {
    use State::*;
    !matches!(state, Closed | SynSent | SynReceived | TimeWait)
}

/// A snapshot whose connection can be put back.
fn snapshot(seed: u64) -> Snapshot {
    let mut all = (0..).map(|more| given::snapshot(seed.wrapping_add(more)));
    all.find(|snapshot| is_served(snapshot.state)).expect("there is one")
}

const EPOCH: Epoch = Epoch(0x1_0003);

fn agreed(snapshot: &Snapshot) -> Agreed {
    Agreed::of(snapshot, Cid(7), EPOCH, 5_000_000_000)
}

/// The `step`th of some records that follow each other.
fn moving(snapshot: &Snapshot, step: u32) -> Moving {
    let mut moving = Moving::of(snapshot);
    for seq in [&mut moving.snd_una, &mut moving.snd_nxt, &mut moving.rcv_nxt] {
        *seq += step * 100;
    }
    for seq in [&mut moving.rcv_wup, &mut moving.rcv_edge] {
        *seq += step * 50;
    }
    moving.snd_wnd = moving.snd_wnd.wrapping_add(step % 3);
    moving.ts_ahead += step / 2;
    moving
}

/// Where two versions of the area differ, every choice of old and new words.
fn each_mix(
    old: &[u64; MIRROR_WORDS],
    new: &[u64; MIRROR_WORDS],
    mut look: impl FnMut(&[u64; MIRROR_WORDS]),
) {
    let places: Vec<_> = (0..MIRROR_WORDS).filter(|at| old[*at] != new[*at]).collect();
    assert!(places.len() <= 12, "{places:?}");
    for choice in 0..1_u32 << places.len() {
        let mut mixed = *old;
        for (bit, at) in places.iter().enumerate() {
            if choice >> bit & 1 == 1 {
                mixed[*at] = new[*at];
            }
        }
        look(&mixed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Not only a prefix of the stores, but any of them.
    #[test]
    fn any_part_of_a_commit_reads_as_the_record_before_or_after(seed: u64, commits in 1_u32..6) {
        let (area, snapshot) = (area(), snapshot(seed));
        let agreed = agreed(&snapshot);
        let mut writer = Writer::begin(&area, &agreed);
        prop_assert_eq!(read(&area), Err(ReadError::NotBegun));
        let mut before = Err(ReadError::NotBegun);
        let mut old = words(&area);
        for step in 0..commits {
            writer.commit(&moving(&snapshot, step));
            let new = words(&area);
            let after = Ok(Record { agreed, moving: moving(&snapshot, step) });
            prop_assert_eq!(read(&area), after);
            each_mix(&old, &new, |mixed| {
                let is = read_words(mixed);
                assert!(is == before || is == after, "{is:?} is neither {before:?} nor {after:?}");
            });
            (old, before) = (new, after);
        }
    }

    /// What stands there from an earlier stay of the connection at the NIC, or of another connection, is not
    /// taken for one of this.
    #[test]
    fn a_record_that_begins_over_an_old_one_is_nothing_or_not_begun(seed: u64, commits in 1_u32..4) {
        let (area, snapshot) = (area(), snapshot(seed));
        let mut writer = Writer::begin(&area, &agreed(&snapshot));
        (0..commits).for_each(|step| writer.commit(&moving(&snapshot, step)));
        let next = Agreed { epoch: EPOCH.next().next(), cid: Cid(8), ..agreed(&snapshot) };
        let mut writer = Writer::begin(&area, &next);
        prop_assert_eq!(read(&area), Err(ReadError::NotBegun));
        writer.commit(&moving(&snapshot, 9));
        prop_assert_eq!(read(&area), Ok(Record { agreed: next, moving: moving(&snapshot, 9) }));
        writer.end();
        prop_assert_eq!(read(&area), Err(ReadError::Nothing));
    }

    /// The kernel gets what it would have got of the connection itself, but for what no record has.
    #[test]
    fn a_record_is_put_back_as_the_snapshot_would_be(seed: u64, later in 0_u64..1_000_000) {
        let snapshot = snapshot(seed);
        let (mut expected, _) = snapshot.to_repair().expect("the kernel takes it");
        let record = Record { agreed: agreed(&snapshot), moving: Moving::of(&snapshot) };
        let (send, receive) = (snapshot.send.queue.clone(), snapshot.receive.queue.clone());
        let now = 5_000_000_000 + later * 1_000_000;
        let repair = record.to_repair(send, receive, now).expect("it can be put back");
        let ahead = repair.timestamp.wrapping_sub(snapshot.ts_now.wrapping_add(later as u32));
        prop_assert!((1..=2).contains(&ahead) && repair.timestamp.is_multiple_of(2), "{}", ahead);
        expected.timestamp = repair.timestamp;
        expected.path = repair.path;
        expected.socket_options = repair.socket_options;
        // What came behind holes, the peer sends again (RFC 2018 section 8).
        (expected.behind_hole, expected.sacked) = (Vec::new(), Vec::new());
        prop_assert_eq!(&repair, &expected);
        let again = Snapshot::from_repair(&repair).expect("it is a connection");
        prop_assert_eq!(Moving::of(&again), record.moving);
    }

    #[test]
    fn any_words_are_no_record_or_one_that_is_written_the_same(bytes in proptest::collection::vec(any::<u8>(), 256)) {
        crate::given::mirror(&bytes);
    }

    /// Words with a right sum, which random ones do not have.
    #[test]
    fn any_values_are_no_record_or_one_that_is_written_the_same(seed: u64, at in 0_usize..17, flip: u64) {
        let snapshot = snapshot(seed);
        let mut all = [0; MIRROR_WORDS];
        all[..AGREED_WORDS].copy_from_slice(&agreed(&snapshot).words());
        all[24..].copy_from_slice(&Moving::of(&snapshot).words(1, EPOCH));
        let at = if at < AGREED_WORDS - 1 { at } else { at + 13 };
        all[at.min(MIRROR_WORDS - 2)] ^= flip;
        crate::given::with_right_sums(&mut all);
        crate::given::mirror_words(&all);
    }
}

/// Else the sum would be that of a record of zeros.
#[test]
fn memory_of_zeros_is_no_record() {
    assert_eq!(read(&area()), Err(ReadError::Nothing));
    const { assert!(MOVING_WORDS * 8 == 64, "a commit is one cache line") };
}

#[test]
fn numbers_of_commits_go_round() {
    let snapshot = snapshot(1);
    let agreed = agreed(&snapshot);
    let mut all = [0; MIRROR_WORDS];
    all[..AGREED_WORDS].copy_from_slice(&agreed.words());
    all[16..24].copy_from_slice(&moving(&snapshot, 2).words(0, EPOCH));
    all[24..].copy_from_slice(&moving(&snapshot, 1).words(u32::MAX, EPOCH));
    assert_eq!(read_words(&all), Ok(Record { agreed, moving: moving(&snapshot, 2) }));
}

#[test]
fn a_ring_that_lacks_bytes_that_were_sent_is_refused() {
    let snapshot = snapshot(3);
    let mut moving = Moving::of(&snapshot);
    moving.state = State::Established;
    moving.snd_nxt = moving.snd_una + 10;
    let record = Record { agreed: agreed(&snapshot), moving };
    assert_eq!(record.to_repair(vec![0; 9], Vec::new(), 0), Err(MirrorError::Sent));
    assert!(record.to_repair(vec![0; 10], Vec::new(), 0).is_ok());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "follows")]
fn a_mirror_that_takes_back_a_promise_is_a_bug() {
    let (area, snapshot) = (area(), snapshot(4));
    let mut writer = Writer::begin(&area, &agreed(&snapshot));
    let mut moving = moving(&snapshot, 1);
    writer.commit(&moving);
    moving.rcv_nxt += u32::MAX;
    writer.commit(&moving);
}

/// The kernel that takes a connection back goes on behind the timestamps that its engine has sent.
#[test]
fn a_clock_that_was_put_ahead_stays_ahead() {
    let snapshot = snapshot(6);
    let record = Record { agreed: agreed(&snapshot), moving: Moving::of(&snapshot) };
    let stamp = |ts_ahead, monotonic| {
        let record = Record { moving: Moving { ts_ahead, ..record.moving }, ..record };
        let queues = (snapshot.send.queue.clone(), snapshot.receive.queue.clone());
        record.to_repair(queues.0, queues.1, monotonic).expect("it can be put back").timestamp
    };
    let now = 7_000_000_000;
    for ahead in [1, 12_455, 1 << 31, u32::MAX] {
        let more = stamp(ahead, now).wrapping_sub(stamp(0, now)).wrapping_sub(ahead);
        assert!(more == 0 || more == 1 || more == u32::MAX, "{more} more than {ahead} ahead");
    }
}

#[test]
fn the_edge_of_the_window_and_fins_are_kept() {
    let mut snapshot = snapshot(5);
    snapshot.receive.acked = Seq(100);
    snapshot.receive.edge = Seq(70_000);
    let record = Record { agreed: agreed(&snapshot), moving: Moving::of(&snapshot) };
    let send = snapshot.send.queue.clone();
    let repair = record.to_repair(send, Vec::new(), 0).expect("it can be put back");
    assert_eq!(repair.window.rcv_wup + repair.window.rcv_wnd, Seq(70_000));
    let closing =
        Moving { state: State::LastAck, snd_nxt: Seq(11), snd_una: Seq(10), ..record.moving };
    let record = Record { moving: closing, ..record };
    let repair = record.to_repair(Vec::new(), Vec::new(), 0).expect("it can be put back");
    assert_eq!((repair.write_seq, repair.unacknowledged, repair.unsent), (Seq(11), 1, 0));
}
