//! What is asked for is what is done, counted frame by frame.

use std::collections::BTreeSet;

use testkit::lab::wait_until;

use super::{Counters, Degen, Frames, Middle, forward, numbered};

/// Many enough that chance shows, and twice as many fit the queue of a veth.
const COUNT: u32 = 100;

/// Sends the frames, and gives what arrived and what was counted when all had come through.
fn through(middle: &Middle, degen: &Degen<'_>, frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, Counters) {
    let mut wire = Frames::of(middle);
    wire.send(frames);
    let counters = degen.settled(frames.len() as u64);
    let [departed] = forward(&counters, ["departed"]);
    (wire.received(departed), counters)
}

/// Every packet that arrived, and every copy, is accounted for; what left is what was received.
#[track_caller]
fn adds_up(received: &[Vec<u8>], counters: &Counters) {
    let [arrived, copies, departed, held] =
        forward(counters, ["arrived", "duplicated", "departed", "held"]);
    let dropped: u64 = forward(counters, ["lost", "queue_full", "codel_dropped"]).iter().sum();
    assert_eq!(arrived + copies, departed + dropped + held, "{counters:#?}");
    assert_eq!(received.len() as u64, departed, "{counters:#?}");
    let [arrived_bytes, departed_bytes] = forward(counters, ["arrived_bytes", "departed_bytes"]);
    assert_eq!((arrived * 100, departed * 100), (arrived_bytes, departed_bytes));
}

#[test]
fn a_seed_loses_the_same_frames_again_and_another_does_not() {
    let Some(middle) = Middle::silent() else { return };
    let frames = numbered(COUNT);
    let run = |words: &[&str]| {
        let degen = middle.degen(words);
        let (received, counters) = through(&middle, &degen, &frames);
        adds_up(&received, &counters);
        let [lost] = forward(&counters, ["lost"]);
        // 10 are to be expected; so far off is one seed of a million, and not these.
        assert!((1..30).contains(&lost), "{lost} of {COUNT} lost");
        received
    };
    let seven = ["--loss", "10%", "--seed", "7"];
    let first = run(&seven);
    for mode in Middle::modes() {
        assert_eq!(run(&[&seven[..], mode].concat()), first, "the same seed, {mode:?}");
    }
    // Whatever else is done to them: each element has chance of its own.
    let jitter = [&seven[..], &["--delay", "1ms", "--jitter", "1ms"]].concat();
    let jittered: BTreeSet<_> = run(&jitter).into_iter().collect();
    assert_eq!(jittered, first.iter().cloned().collect(), "the same seed, with jitter");
    assert_ne!(run(&["--loss", "10%", "--seed", "8"]), first, "another seed");
}

#[test]
fn every_frame_comes_twice() {
    let Some(middle) = Middle::silent() else { return };
    for mode in Middle::modes() {
        let degen = middle.degen(&[&["--duplicate", "100%"], &mode[..]].concat());
        let frames = numbered(COUNT);
        let (received, counters) = through(&middle, &degen, &frames);
        adds_up(&received, &counters);
        let twice: Vec<_> =
            frames.iter().flat_map(|frame| [frame.clone(), frame.clone()]).collect();
        assert_eq!(received, twice);
        assert_eq!(forward(&counters, ["duplicated", "not_duplicated"]), [u64::from(COUNT), 0]);
    }
}

#[test]
fn every_frame_has_one_bit_turned() {
    let Some(middle) = Middle::silent() else { return };
    let degen = middle.degen(&["--corrupt", "100%", "--seed", "3"]);
    let frames = numbered(COUNT);
    let (received, counters) = through(&middle, &degen, &frames);
    adds_up(&received, &counters);
    assert_eq!(forward(&counters, ["corrupted"]), [u64::from(COUNT)]);
    assert_eq!(received.len(), frames.len());
    let mut bytes = BTreeSet::new();
    for (received, sent) in received.iter().zip(&frames) {
        let turned = |(a, b): (&u8, &u8)| (a ^ b).count_ones();
        let count: u32 = received.iter().zip(sent).map(turned).sum();
        assert_eq!((received.len(), count), (sent.len(), 1));
        bytes.extend(received.iter().zip(sent).position(|(a, b)| a != b));
    }
    // Anywhere in the frame, its header too.
    assert!(bytes.len() > 40 && bytes.iter().any(|at| *at < 14), "{bytes:?}");
}

/// And only from the left to the right, as it was asked for.
#[test]
fn one_direction_loses_all_and_the_other_nothing() {
    let Some(middle) = Middle::silent() else { return };
    let degen = middle.degen(&["--forward", "loss=100%"]);
    let mut wire = Frames::of(&middle);
    let frames = numbered(COUNT);
    wire.send(&frames);
    frames.iter().for_each(|frame| wire.server.send(frame));
    assert_eq!(wire.client.receive(frames.len(), |_| true), frames);
    let counters = degen.settled(frames.len() as u64);
    assert_eq!(wire.received(0), [[0; 0]; 0]);
    assert_eq!(forward(&counters, ["lost", "departed"]), [u64::from(COUNT), 0]);
    assert_eq!(degen.counter("reverse", "lost"), 0);
}

/// What is held back comes behind the three that pass it; what none passes comes all the same.
#[test]
fn held_frames_come_behind_others() {
    let Some(middle) = Middle::silent() else { return };
    let degen = middle.degen(&["--reorder", "20%", "--reorder-distance", "3", "--seed", "5"]);
    let frames = numbered(COUNT);
    let (received, counters) = through(&middle, &degen, &frames);
    adds_up(&received, &counters);
    assert_ne!(received, frames);
    let sorted = received.iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(sorted, frames.iter().cloned().collect(), "all of them, once");
    let [reordered] = forward(&counters, ["reordered"]);
    assert!((3..50).contains(&reordered), "{reordered} of {COUNT} stepped aside");
    degen.set("reorder", "100%");
    degen.set("reorder_wait", "0");
    let (received, counters) = through_again(&middle, &degen, &frames, 2);
    assert_eq!(received, frames, "none passes, so none is passed");
    assert_eq!(forward(&counters, ["reordered"]), [reordered + u64::from(COUNT)]);
}

/// The same frames once more, through a degen that has seen them before.
fn through_again(
    middle: &Middle,
    degen: &Degen<'_>,
    frames: &[Vec<u8>],
    times: u64,
) -> (Vec<Vec<u8>>, Counters) {
    let mut wire = Frames::of(middle);
    wire.send(frames);
    let counters = degen.settled(frames.len() as u64 * times);
    (wire.received(frames.len() as u64), counters)
}

/// At a bit a second the first frame takes 800 seconds, and so long nothing else leaves.
#[test]
fn a_queue_holds_what_fits_and_loses_the_rest() {
    let Some(middle) = Middle::silent() else { return };
    for (words, waiting) in [
        (&["--queue-packets", "5"][..], 5),
        (&["--queue-packets", "0"], 0),
        (&["--queue-bytes", "799"], 7),
        (&["--queue-packets", "9", "--queue-bytes", "800"], 8),
        (&["--queue", "codel", "--queue-packets", "5"], 5),
    ] {
        let degen = middle.degen(&[&["--rate", "1bit"], words].concat());
        let mut wire = Frames::of(&middle);
        wire.send(&numbered(100));
        let held = || forward(&degen.counters(), ["arrived", "held", "queue_full", "departed"]);
        // One is on the link.
        let expected = [100, waiting + 1, 99 - waiting, 0];
        assert!(wait_until(|| held() == expected), "{words:?}: {:?}", held());
        assert_eq!(wire.received(0), [[0; 0]; 0]);
    }
}

/// Frames wait longer than all memory lasts. No copy is made then, and what there is no memory to
/// receive waits with the kernel. The number of buffers is odd: however the frames are batched, the
/// last of them has no copy.
#[test]
fn what_there_is_no_memory_for_waits_in_front() {
    let Some(middle) = Middle::silent() else { return };
    let degen = middle.degen(&["--delay", "3600s", "--frames", "1025", "--duplicate", "100%"]);
    let mut wire = Frames::of(&middle);
    let names = ["arrived", "held", "duplicated", "not_duplicated", "no_memory"];
    // No more at once than a veth holds; the last are not received.
    for sent in [100, 200, 300, 400, 600] {
        assert!(wait_until(|| forward(&degen.counters(), ["arrived"])[0] >= sent.min(400) - 100));
        wire.send(&numbered(if sent == 600 { 200 } else { 100 }));
    }
    let mut counted = [0; 5];
    let full = wait_until(|| {
        counted = forward(&degen.counters(), names);
        counted[1] >= 900 && counted[3] > 0
    });
    let [arrived, held, copies, no_copies, no_memory] = counted;
    assert!(full && arrived < 600, "{counted:?}");
    assert_eq!((held, copies + no_copies, no_memory), (arrived + copies, arrived, 0));
    assert_eq!(degen.counter("first", "rx_dropped"), 0);
    sleeps(&degen);
}

/// CPU time so far, in ticks of 10 ms: utime and stime (proc_pid_stat(5)).
fn ticks(degen: &Degen<'_>) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", degen.program.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// While it can do nothing, it leaves the CPU to others. A slow machine gives it less, not more.
#[track_caller]
fn sleeps(degen: &Degen<'_>) {
    let (before, since) = (ticks(degen), std::time::Instant::now());
    std::thread::sleep(std::time::Duration::from_millis(300));
    let (ticks, time) = (ticks(degen) - before, since.elapsed());
    assert!(u128::from(ticks) * 10 < time.as_millis() / 2, "{ticks} ticks in {time:?}");
}

#[test]
fn it_sleeps_while_there_is_nothing_to_do() {
    let Some(middle) = Middle::silent() else { return };
    for mode in Middle::modes() {
        let degen = middle.degen(&[&["--delay", "3600s"], &mode[..]].concat());
        sleeps(&degen);
        Frames::of(&middle).send(&numbered(10));
        assert!(wait_until(|| forward(&degen.counters(), ["held"]) == [10]));
        sleeps(&degen);
    }
}

#[test]
fn it_stays_awake_if_it_is_to_and_passes_what_comes() {
    let Some(middle) = Middle::silent() else { return };
    for mode in Middle::modes() {
        let degen = middle.degen(&[&["--awake", "--delay", "1ms"], &mode[..]].concat());
        let before = ticks(&degen);
        assert!(wait_until(|| ticks(&degen) >= before + 30), "it sleeps: {mode:?}");
        Frames::of(&middle).send(&numbered(10));
        assert!(wait_until(|| forward(&degen.counters(), ["departed"]) == [10]));
    }
}

/// Frames that are due wait for an interface that is down (AF_XDP), or are lost (AF_PACKET).
#[test]
fn it_sleeps_while_a_wire_takes_nothing() {
    let Some(middle) = Middle::silent() else { return };
    for mode in Middle::modes() {
        let degen = middle.degen(&[&["--frames", "1024"], &mode[..]].concat());
        middle.ip("link set right1 down");
        let mut wire = Frames::of(&middle);
        for round in 1..=10 {
            wire.send(&numbered(100));
            if round < 5 {
                let arrived = || forward(&degen.counters(), ["arrived"])[0];
                assert!(wait_until(|| arrived() >= round * 100), "{mode:?}");
            }
        }
        sleeps(&degen);
        middle.ip("link set right1 up");
    }
}
