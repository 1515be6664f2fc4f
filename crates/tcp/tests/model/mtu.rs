//! Paths change: what did not pass ten minutes ago is tried again.

use tcp::Config;
use tcp::config::SECOND;
use wire::{Flags, icmp};

use super::peer::{Offer, Peer};

/// The largest payload of one segment.
const FULL: usize = 1000;

/// The sizes of the packets that a sender's next write makes, each by itself; the peer acknowledges them.
fn sizes(peer: &mut Peer) -> Vec<usize> {
    peer.socket().send(&[3; 20_000]).unwrap();
    let (mut sizes, mut end) = (Vec::new(), peer.acked);
    loop {
        let out = peer.transmit();
        if out.is_empty() {
            break sizes;
        }
        for out in out {
            let len = out.payload.len();
            let size = if out.gso_size > 0 { usize::from(out.gso_size) } else { len };
            sizes.push(size);
            end += len as u32;
        }
        peer.now += SECOND / 100;
        peer.acked = end;
        peer.send(peer.first, end, Flags::ACK, &[]);
    }
}

/// A connection for which a router has reported an MTU of 700 bytes.
fn with_reported_mtu(probe_mtu: bool) -> Peer {
    let config = Config { probe_mtu, ..Config::default() };
    let offer = Offer { sack: true, timestamps: false, window_scale: None };
    let mut peer = Peer::new(config, offer, 7, SECOND / 100);
    assert!(sizes(&mut peer).contains(&FULL));
    peer.socket().send(&[3; 5_000]).unwrap();
    peer.transmit();
    peer.unreachable(icmp::Error::TooBig { mtu: 700 });
    let first = peer.acked;
    peer.transmit();
    peer.acked = first + 5_000;
    peer.now += SECOND / 100;
    peer.send(peer.first, peer.acked, Flags::ACK, &[]);
    assert!(sizes(&mut peer).iter().all(|size| *size <= 660));
    peer
}

/// RFC 8201 section 4: not before ten minutes are over, and then.
#[test]
fn the_first_links_mtu_is_tried_again_after_ten_minutes() {
    let mut peer = with_reported_mtu(false);
    peer.now += 590 * SECOND;
    assert!(sizes(&mut peer).iter().all(|size| *size <= 660));
    peer.now += 20 * SECOND;
    assert!(sizes(&mut peer).contains(&FULL));
    // The router still reports the same.
    peer.socket().send(&[3; 5_000]).unwrap();
    peer.transmit();
    peer.unreachable(icmp::Error::TooBig { mtu: 700 });
    peer.transmit();
    peer.acked += 5_000;
    peer.send(peer.first, peer.acked, Flags::ACK, &[]);
    peer.now += 590 * SECOND;
    assert!(sizes(&mut peer).iter().all(|size| *size <= 660));
}

/// RFC 8899 section 5.1.1, PMTU_RAISE_TIMER: one probe finds whether a larger MTU passes, and then all use
/// it.
#[test]
fn probes_begin_again_after_ten_minutes() {
    let mut peer = with_reported_mtu(true);
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
    peer.transmit();
    peer.unreachable(icmp::Error::TooBig { mtu: 0x1_0000 + 700 });
    let first = peer.acked;
    peer.transmit();
    peer.acked = first + 5_000;
    peer.send(peer.first, peer.acked, Flags::ACK, &[]);
    assert!(sizes(&mut peer).contains(&FULL));
}
