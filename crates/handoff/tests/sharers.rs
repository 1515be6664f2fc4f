//! Which processes have a connection, after forks.

use handoff::sharers::{Entry, PROCESSES};

const PARENT: u32 = 100;
const CHILD: u32 = 101;

fn nobody(_: u32) -> bool {
    false
}

#[test]
fn who_has_it_alone_is_known_when_the_other_closes_it() {
    for (closes, has) in [(PARENT, CHILD), (CHILD, PARENT)] {
        let entry = Entry::new();
        assert!(entry.take(PARENT, nobody) && !entry.take(PARENT, nobody));
        assert!(!entry.is_alone(PARENT, nobody), "a child is about to have it");
        entry.join(CHILD, nobody);
        assert!(!entry.is_alone(PARENT, nobody) && !entry.is_alone(CHILD, nobody));
        assert!(entry.leave(closes) && !entry.leave(closes));
        assert!(entry.is_alone(has, nobody));
        assert!(entry.leave(has) && entry.is_free());
    }
}

#[test]
fn a_process_that_has_ended_has_it_no_more() {
    let entry = Entry::new();
    assert!(entry.take(PARENT, nobody));
    entry.join(CHILD, nobody);
    assert!(entry.is_alone(PARENT, |process| process == CHILD));
    assert!(entry.is_alone(PARENT, nobody), "it was taken out");
}

#[test]
fn a_fork_that_has_failed_leaves_it_to_the_parent() {
    let entry = Entry::new();
    assert!(entry.take(PARENT, nobody) && !entry.is_alone(PARENT, nobody));
    entry.give_up();
    assert!(entry.is_alone(PARENT, nobody));
}

#[test]
fn the_parent_may_have_closed_it_before_the_child_is_there() {
    let entry = Entry::new();
    assert!(entry.take(PARENT, nobody));
    assert!(entry.leave(PARENT) && !entry.is_free());
    entry.join(CHILD, nobody);
    assert!(entry.is_alone(CHILD, nobody));
    entry.expect();
    assert!(!entry.is_alone(CHILD, nobody), "it forks, too");
}

#[test]
fn a_child_without_a_place_keeps_it_with_the_kernel() {
    let entry = Entry::new();
    assert!(entry.take(PARENT, nobody));
    for other in 1..PROCESSES as u32 {
        assert!(entry.add(CHILD + other, nobody));
    }
    entry.join(CHILD, nobody);
    assert!(!entry.is_alone(PARENT, |process| process != PARENT));
}
