//! Packets as text, to find out what went wrong.

use tcp::{Nanos, Options};
use wire::{Seq, icmp};

use super::frame::Arrival;
use super::plan::Freeze;

/// Prints what happens, or does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trace {
    on: bool,
    /// Initial sequence numbers: what is printed counts from them.
    iss: [Option<Seq>; 2],
}

impl Trace {
    pub(crate) fn on() -> Self {
        Trace { on: true, iss: [None; 2] }
    }

    pub(crate) fn leaves(&mut self, now: Nanos, side: usize, packet: &Arrival) {
        if self.on {
            let tcp = packet.tcp();
            if tcp.flags().any(wire::Flags::SYN) && self.iss[side].is_none() {
                self.iss[side] = Some(tcp.seq());
            }
            self.print(now, side, if side == 0 { "->  " } else { "  <-" }, side, packet);
        }
    }

    pub(crate) fn comes(&self, now: Nanos, side: usize, packet: &Arrival) {
        if self.on {
            self.print(now, side, if side == 0 { "=<  " } else { "  >=" }, 1 - side, packet);
        }
    }

    fn print(&self, now: Nanos, side: usize, arrow: &str, from: usize, packet: &Arrival) {
        let iss = |side: usize| self.iss[side].unwrap_or_default();
        let words = words(packet, iss(from), iss(1 - from));
        println!("{:>14} {side} {arrow} {words}", milliseconds(now));
    }

    pub(crate) fn broken(&self, now: Nanos, side: usize) {
        self.print_line(now, side, "drops what is damaged");
    }

    pub(crate) fn drops(&self, now: Nanos, side: usize, mtu: u16) {
        self.print_line(now, side, &format!("was too big for {mtu}"));
    }

    pub(crate) fn message(&self, now: Nanos, side: usize, icmp: &icmp::Error, seq: Seq) {
        let seq = seq - self.iss[side].unwrap_or_default();
        self.print_line(now, side, &format!("receives {icmp:?} about {seq}"));
    }

    pub(crate) fn froze(&self, now: Nanos, side: usize, freeze: &Freeze) {
        self.print_line(
            now,
            side,
            &format!("freezes for {} ns, moves {:?}", freeze.gap, freeze.moves),
        );
    }

    pub(crate) fn gives_up(&self, now: Nanos, side: usize) {
        self.print_line(now, side, "waits no longer");
    }

    fn print_line(&self, now: Nanos, side: usize, words: &str) {
        if self.on {
            println!("{:>14} {side} {words}", milliseconds(now));
        }
    }
}

/// A packet, its numbers counted from `iss` and `irs`.
pub(crate) fn words(packet: &Arrival, iss: Seq, irs: Seq) -> String {
    let tcp = packet.tcp();
    let (seq, len, ack) = (tcp.seq() - iss, packet.payload().len(), tcp.ack() - irs);
    let mut words = format!("{:?} {seq}+{len} ack {ack} win {}", tcp.flags(), tcp.window());
    if tcp.urgent() > 0 {
        words += &format!(" urg {}", tcp.urgent());
    }
    let options = Options::parse(tcp.option_bytes());
    for block in options.sack.as_slice() {
        words += &format!(" sack {}-{}", block.start - irs, block.end - irs);
    }
    if let Some(timestamps) = options.timestamps {
        words += &format!(" ts {:?} {:?}", timestamps.value, timestamps.echo);
    }
    if let Some(mss) = options.mss {
        let (scale, sack) = (options.window_scale, options.sack_permitted);
        words += &format!(" mss {mss} scale {scale:?} sack {sack}");
    }
    words + if packet.ce { " CE" } else { "" }
}

fn milliseconds(now: Nanos) -> String {
    format!("{}.{:06}", now / 1_000_000, now % 1_000_000)
}
