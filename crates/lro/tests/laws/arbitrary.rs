//! Bytes that were not sent on purpose.

use lro::{Config, RxChecksum};
use proptest::prelude::*;
use testkit::packet::PacketBuilder;

use super::conservation::check;
use super::naive::Tcp;
use super::run::{Frame, Step, run};
use super::trace::{checksums, configs, traces};

/// Writes right checksums over whatever the bytes are, if they can be walked.
fn repair(bytes: &mut [u8]) {
    let Some(packet) = Tcp::read(bytes) else { return };
    let (ip, tcp) = (packet.link.len(), packet.link.len() + packet.ip.len());
    if !packet.is_v6() {
        bytes[ip + 10..ip + 12].fill(0);
        let sum = !testkit::verify::ones_complement_sum(&bytes[ip..tcp]);
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes[tcp + 16..tcp + 18].fill(0);
    let end = tcp + packet.tcp.len() + packet.payload.len();
    let sum = testkit::verify::ones_complement_sum(&bytes[tcp..end]);
    let pseudo = packet.pseudo_sum();
    let both = [sum.to_be_bytes(), pseudo.to_be_bytes()].concat();
    let sum = !testkit::verify::ones_complement_sum(&both);
    bytes[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    #[test]
    fn any_bytes_come_out_once(
        config in configs(),
        frames in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..200), checksums()), 1..20),
    ) {
        let steps: Vec<Step> = frames
            .into_iter()
            .map(|(bytes, checksum)| Step::Frame(Frame { bytes, checksum }))
            .collect();
        check(&run(&config, &steps), &steps);
    }

    /// A trace with bytes of its headers changed, checksums right again for half of them.
    #[test]
    fn damaged_headers_come_out_once(
        config in configs(),
        mut steps in traces(2, 60),
        damages in proptest::collection::vec(
            (any::<prop::sample::Index>(), 0usize..100, any::<u8>(), any::<bool>()), 1..20),
        known in proptest::option::of(checksums()),
    ) {
        for (which, at, byte, repaired) in damages {
            let which = which.index(steps.len());
            let Step::Frame(frame) = &mut steps[which] else { continue };
            if let Some(target) = frame.bytes.get_mut(at) {
                *target = byte;
            }
            if repaired {
                repair(&mut frame.bytes);
            }
            frame.checksum = known.unwrap_or(frame.checksum);
        }
        check(&run(&config, &steps), &steps);
    }
}

/// Every prefix of a packet with every kind of header.
#[test]
fn cut_short_at_every_byte() {
    let whole = [
        PacketBuilder::tcp4().vlan(1).vlan(2).ip_options(&[1; 8]).timestamps(1, 2),
        PacketBuilder::tcp6().vlan(3).extension(0, 8).extension(43, 16).timestamps(1, 2),
    ]
    .map(|p| p.payload_pattern(9).build());
    for bytes in whole {
        for checksum in [RxChecksum::Unverified, RxChecksum::MaybePartial, RxChecksum::Verified] {
            let cut = |len: usize| Step::Frame(Frame { bytes: bytes[..len].to_vec(), checksum });
            let steps: Vec<Step> = (0..=bytes.len()).map(cut).collect();
            check(&run(&Config::default(), &steps), &steps);
        }
    }
}
