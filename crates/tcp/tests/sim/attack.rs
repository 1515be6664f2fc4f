//! What an attacker sends who knows the two ends of a connection and guesses its numbers nearly, but not
//! quite (RFC 5961).

use tcp::{FourTuple, Options, Transmit};
use wire::{Flags, Seq};

use super::frame::{self, Arrival};
use super::plan::Dice;

/// A segment to the side that has just sent `packet`, as if from its peer; it must change nothing.
/// `packet` has the numbers that the side expects next.
pub(crate) fn segment(packet: &Arrival, dice: &mut Dice) -> Option<Arrival> {
    let tcp = packet.tcp();
    let (expected, sent) = (tcp.ack(), packet.end());
    // Beyond all windows.
    let near = expected + dice.between(1, 60_000) as u32;
    let far = expected + (1 << 30) + dice.below(1 << 20) as u32;
    let beyond = sent + dice.between(10_000_000, 100_000_000) as u32;
    let long_ago = Seq(sent.0.wrapping_sub(dice.between(1 << 30, (1 << 30) + 1_000) as u32));
    let (seq, ack, flags, payload): (Seq, Seq, Flags, &[u8]) = match dice.below(6) {
        0 => (near, sent, Flags::RST, &[]),
        1 => (far, sent, Flags::RST.with(Flags::ACK), &[]),
        2 => (near, Seq(0), Flags::SYN, &[]),
        3 => (expected, beyond, Flags::ACK, b"an answer to what was not asked"),
        4 => (expected, long_ago, Flags::ACK, b"an answer to what was never asked"),
        _ => (far, sent, Flags::ACK, b"what was heard long ago, or will be"),
    };
    let forged = Transmit {
        path: FourTuple { local: packet.path.local, remote: packet.path.remote },
        seq,
        ack,
        flags,
        window: dice.below(65_536) as u16,
        urgent: 0,
        options: Options::default().encode(),
        payload: [payload, &[]],
        lent: 0,
        gso_size: 0,
        ect: false,
    };
    let mut arrival = None;
    frame::write(&forged, |frame| arrival = Arrival::parse(frame));
    arrival
}
