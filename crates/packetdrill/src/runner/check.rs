//! Comparison of a packet with what the script expects.

use wire::Flags;

use super::When;
use super::peer::stream_byte;
use super::seen::{self, Seen};
use crate::script::{Ecn, Packet, TcpOption, TcpSpec};
use tcp::Nanos;

/// What differs, in words.
pub(super) type Difference = String;

/// All differences between the packet that the script expects and the one that was sent. `tick` is the length
/// in nanoseconds of a tick of the timestamp clock, or 0 if timestamps are not compared.
pub(super) fn compare(
    packet: &Packet,
    spec: &TcpSpec,
    seen: &Seen,
    tick: Nanos,
    when: When,
) -> Vec<Difference> {
    let mut out = Vec::new();
    let mut field = |name: &str, expected: String, actual: String| {
        if expected != actual {
            out.push(format!("{name}: expected {expected}, actual {actual}"));
        }
    };
    field("flags", seen::flags(spec.flags), seen::flags(seen.flags));
    field("sequence number", spec.sequence.start.to_string(), seen.seq.to_string());
    field("length", spec.sequence.len.to_string(), seen.payload.len().to_string());
    if spec.flags.any(Flags::ACK) && seen.flags.any(Flags::ACK) {
        field("acknowledgment", spec.ack.to_string(), seen.ack.to_string());
    }
    if let Some(window) = spec.window {
        field("window", window.to_string(), seen.window.to_string());
    }
    field("urgent pointer", spec.urgent.to_string(), seen.urgent.to_string());
    if let Some(ttl) = packet.ttl {
        field("time to live", ttl.to_string(), seen.ttl.to_string());
    }
    match packet.ecn {
        None => {}
        Some(Ecn::Is(bits)) => field("ECN", bits.to_string(), (seen.tos & 3).to_string()),
        Some(Ecn::Tos(tos)) => field("TOS", tos.to_string(), seen.tos.to_string()),
        Some(Ecn::Ect01) => {
            let capable = matches!(seen.tos & 3, 1 | 2);
            field("ECN-capable", "true".to_owned(), capable.to_string());
        }
    }
    if let Some(options) = &spec.options {
        out.extend(compare_options(options, &seen.options, tick, when));
    }
    if !when.any
        && (seen.at + when.tolerance < when.from
            || seen.at > when.to.saturating_add(when.tolerance))
    {
        let tolerance = when.tolerance as f64 / 1e6;
        let (from, to) = (seen::seconds(when.from), seen::seconds(when.to));
        let at = seen::seconds(seen.at);
        out.push(format!("time: expected {from} to {to} (tolerance {tolerance} ms), actual {at}"));
    }
    out
}

fn compare_options(
    expected: &[TcpOption],
    actual: &[TcpOption],
    tick: Nanos,
    when: When,
) -> Option<Difference> {
    let same = |(expected, actual): (&TcpOption, &TcpOption)| match (expected, actual) {
        (
            TcpOption::Timestamps { value, echo },
            TcpOption::Timestamps { value: actual, echo: actual_echo },
        ) => {
            let off = u64::from((actual.wrapping_sub(*value) as i32).unsigned_abs());
            echo == actual_echo && off * tick <= when.tolerance.max(when.from / 8)
        }
        (expected, actual) => expected == actual,
    };
    // A header is a multiple of four octets: both are compared with their padding.
    let padded = |options: &[TcpOption]| {
        let mut options = options.to_vec();
        while options.last() == Some(&TcpOption::End) {
            options.pop();
        }
        options
    };
    let (expected, actual) = (padded(expected), padded(actual));
    if expected.len() == actual.len() && expected.iter().zip(&actual).all(same) {
        return None;
    }
    let words = |options: &[TcpOption]| {
        let words: Vec<String> = options.iter().map(ToString::to_string).collect();
        format!("<{}>", words.join(","))
    };
    Some(format!("options: expected {}, actual {}", words(&expected), words(&actual)))
}

/// Whether `next` is the part of a super-packet that comes after `seen`.
pub(super) fn continues(seen: &Seen, next: &Seen) -> bool {
    next.seq == seen.seq.wrapping_add(seen.payload.len() as u32)
        && next.ack == seen.ack
        && !next.payload.is_empty()
}

/// Two parts of a super-packet.
pub(super) fn joined(mut seen: Seen, next: Seen) -> Seen {
    seen.payload.extend(&next.payload);
    Seen { flags: seen.flags.with(next.flags), ..seen }
}

/// Whether the bytes are those of this place in the stream: the first that is not.
pub(super) fn payload(seen: &Seen) -> Option<Difference> {
    let first = seen.seq.wrapping_sub(1);
    let wrong = seen
        .payload
        .iter()
        .enumerate()
        .find(|(at, byte)| **byte != stream_byte(first.wrapping_add(*at as u32)))?;
    Some(format!("payload: byte {} is not what was written", seen.seq.wrapping_add(wrong.0 as u32)))
}
