//! What an application is told while a stream ends, whatever it posts meanwhile.

use rdma::verbs::{Sge, Work};

use crate::world::BASE;
use crate::{FLUSHED, sides};

const LOCAL_PROTECTION: u8 = 4;

/// Entries have their places until all before them are over: another thread may post as soon as it has read a completion.
#[test]
fn a_failure_that_is_told_first_gives_no_places_away() {
    let (mut a, b) = sides();
    // A read that is not answered, what waits behind it, and what has no region.
    assert!(a.send(10, Work::Read { stag: b.stag, offset: BASE }, &[a.sge(0, 8)]));
    a.transmit().unwrap();
    let write = Work::Write { stag: b.stag, offset: BASE };
    assert!(a.send(11, write, &[a.sge(0, 8)]));
    assert!(a.send(12, write, &[Sge { addr: BASE, len: 8, lkey: 1 }]));
    assert!(a.send(13, write, &[a.sge(0, 8)]));
    a.transmit().unwrap();
    let told: Vec<_> =
        a.poll().iter().map(|of| (of.wr_id, of.status, of.index.wrapping_add(1))).collect();
    let expected = [(12, LOCAL_PROTECTION, 0), (10, FLUSHED, 1)];
    assert_eq!(told[..2], expected, "by the first nothing is over");
    assert_eq!(told[2..].iter().map(|of| of.0).collect::<Vec<_>>(), [11, 13]);
    assert_eq!(a.sends.retired(), 4);
}
