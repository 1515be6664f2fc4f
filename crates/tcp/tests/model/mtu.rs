//! Paths change: what did not pass ten minutes ago is tried again.

use tcp::Config;
use tcp::config::SECOND;
use wire::{Flags, icmp};

use crate::peer::{Offer, Peer};

/// The largest payload of one segment.
const FULL: usize = 1000;

/// The sizes of the packets that a sender's next write makes, each by itself; the peer acknowledges them.
fn sizes(peer: &mut Peer) -> Vec<usize> {
    peer.socket().send(&[3; 20_000]).unwrap();
    let (mut sizes, mut end) = (Vec::new(), peer.acked);
    loop {
        let heard = peer.listen();
        if heard.is_empty() {
            break sizes;
        }
        for heard in heard {
            let len = heard.payload.len();
            let size = if heard.gso_size > 0 { usize::from(heard.gso_size) } else { len };
            sizes.push(size);
            end += len as u32;
        }
        peer.now += SECOND / 100;
        peer.acked = end;
        peer.say(peer.first, end, Flags::ACK, &[]);
    }
}

/// A connection to which a router says that no more than 700 bytes pass.
fn told(probe_mtu: bool) -> Peer {
    let config = Config { probe_mtu, ..Config::default() };
    let offer = Offer { sack: true, timestamps: false, window_scale: None };
    let mut peer = Peer::new(config, offer, 7, SECOND / 100);
    assert!(sizes(&mut peer).contains(&FULL));
    peer.socket().send(&[3; 5_000]).unwrap();
    peer.listen();
    peer.unreachable(icmp::Error::TooBig { mtu: 700 });
    let first = peer.acked;
    peer.listen();
    peer.acked = first + 5_000;
    peer.now += SECOND / 100;
    peer.say(peer.first, peer.acked, Flags::ACK, &[]);
    assert!(sizes(&mut peer).iter().all(|size| *size <= 660));
    peer
}

/// RFC 8201 section 4: not before ten minutes are over, and then.
#[test]
fn the_first_links_mtu_is_tried_again_after_ten_minutes() {
    let mut peer = told(false);
    peer.now += 590 * SECOND;
    assert!(sizes(&mut peer).iter().all(|size| *size <= 660));
    peer.now += 20 * SECOND;
    assert!(sizes(&mut peer).contains(&FULL));
    // Here the router still says the same.
    peer.socket().send(&[3; 5_000]).unwrap();
    peer.listen();
    peer.unreachable(icmp::Error::TooBig { mtu: 700 });
    peer.listen();
    peer.acked += 5_000;
    peer.say(peer.first, peer.acked, Flags::ACK, &[]);
    peer.now += 590 * SECOND;
    assert!(sizes(&mut peer).iter().all(|size| *size <= 660));
}

/// RFC 8899 section 5.1.1, PMTU_RAISE_TIMER: one segment looks whether more passes, and then all have that.
#[test]
fn probes_begin_again_after_ten_minutes() {
    let mut peer = told(true);
    peer.now += 590 * SECOND;
    assert!(sizes(&mut peer).iter().all(|size| *size <= 660));
    peer.now += 20 * SECOND;
    let probing = sizes(&mut peer);
    let first = probing.iter().position(|size| *size == FULL);
    assert!(first.is_some_and(|at| probing[..at].iter().all(|size| *size <= 660)), "{probing:?}");
    assert!(sizes(&mut peer).contains(&FULL));
}

/// ICMPv6 has 32 bits for the MTU (RFC 4443 section 3.2): what 16 do not hold makes no segment smaller.
#[test]
fn an_mtu_beyond_16_bits_changes_nothing() {
    let offer = Offer { sack: true, timestamps: false, window_scale: None };
    let mut peer = Peer::new(Config::default(), offer, 7, SECOND / 100);
    peer.socket().send(&[3; 5_000]).unwrap();
    peer.listen();
    peer.unreachable(icmp::Error::TooBig { mtu: 0x1_0000 + 700 });
    let first = peer.acked;
    peer.listen();
    peer.acked = first + 5_000;
    peer.say(peer.first, peer.acked, Flags::ACK, &[]);
    assert!(sizes(&mut peer).contains(&FULL));
}
