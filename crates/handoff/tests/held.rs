//! What a connection that moves holds is bounded, and what is dropped is counted.

use handoff::command::OsControl;
use handoff::machine::{HELD_MAX, NicEvent, NicOutput, NicSide, SideCounts, ToNic, ToOs, Where};
use handoff::machine::{OsEvent, OsOutput, OsSide};
use handoff::{Epoch, Refusal, RestoreReason};

#[test]
fn what_a_side_holds_is_bounded_and_the_rest_is_counted() {
    let (mut nic, mut counts, mut out) = (NicSide::default(), SideCounts::default(), Vec::new());
    nic.handle::<()>(NicEvent::Offer(Epoch(1), Ok(())), &mut counts, &mut out);
    for packet in 0..HELD_MAX + 10 {
        nic.handle(NicEvent::Packet(packet), &mut counts, &mut out);
    }
    assert_eq!((counts.held, counts.held_full), (HELD_MAX as u64, 10));
    out.clear();
    let restore = ToNic::Restore(RestoreReason::CalledOff);
    nic.handle(NicEvent::Told(1, restore), &mut counts, &mut out);
    let expected = [NicOutput::Tell(1, ToOs::Restore(RestoreReason::CalledOff, None))];
    let passed = (0..HELD_MAX).map(NicOutput::Pass);
    assert_eq!(out, expected.into_iter().chain(passed).collect::<Vec<_>>());
    assert!(nic.is_free());
}

/// The state goes back into the kernel as it was taken, and the refusal is remembered.
#[test]
fn a_nic_that_refuses_what_it_has_seen_leaves_the_connection_as_it_was() {
    let (mut os, mut counts) = (OsSide::<(), &str>::default(), SideCounts::default());
    let mut handle = |os: &mut OsSide<(), &'static str>, event| {
        let mut out = Vec::new();
        os.handle(event, &mut counts, &mut out);
        out
    };
    let told = |control| OsEvent::Told(1, ToOs::Control(control));
    assert_eq!(handle(&mut os, OsEvent::Pick), [OsOutput::Tell(1, ToNic::Offer(Epoch(1)))]);
    assert_eq!(handle(&mut os, told(OsControl::Allocated)), [OsOutput::Freeze]);
    let sent = [ToNic::Handoff("state"), ToNic::ForwardEnd].map(|told| OsOutput::Tell(1, told));
    assert_eq!(handle(&mut os, OsEvent::Frozen("state")), sent);
    let refused = told(OsControl::Refused(Refusal::Memory));
    assert_eq!(handle(&mut os, refused), [OsOutput::Thaw("state")]);
    assert_eq!(os.place(), Where::Restoring);
    handle(&mut os, OsEvent::Thawed);
    assert_eq!(
        (os.place(), os.refused(), os.epoch()),
        (Where::Os, Some(Refusal::Memory), Epoch(2))
    );
    assert_eq!((counts.handoffs, counts.refused.get(Refusal::Memory)), (0, 1));
}
