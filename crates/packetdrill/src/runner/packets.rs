//! Packets that are injected, and packets that are expected.

use std::net::SocketAddr;

use tcp::Nanos;
use wire::{Flags, TCP_MIN_LEN, protocol};

use super::check::{self, Difference};
use super::peer::{Peer, Phase, shift_sack, stream_byte};
use super::seen::{self, Seen};
use super::{Runner, When};
use crate::script::{Body, Ecn, IcmpSpec, Packet, Sequence, TcpOption, TcpSpec, encode_options};
use crate::sockets::packet::{fill_tcp_checksum, ip_header};

/// The port that scripts bind and connect to.
pub(super) const PORT: u16 = 8080;

impl Runner {
    /// `<`: a packet arrives.
    pub(super) fn inject(&mut self, packet: &Packet) -> Result<(), String> {
        let tos = match packet.ecn {
            Some(Ecn::Is(bits) | Ecn::Tos(bits)) => bits,
            Some(Ecn::Ect01) => return Err("[ect01] is for packets that leave".to_owned()),
            None => 0,
        };
        let bytes = match &packet.body {
            Body::Tcp(spec) => self.segment(spec, tos)?,
            Body::Icmp(spec) => self.icmp(spec)?,
        };
        self.host.deliver(&bytes).map_err(|why| format!("the packet was dropped: {why:?}"))
    }

    fn segment(&mut self, spec: &TcpSpec, tos: u8) -> Result<Vec<u8>, String> {
        if self.peer.as_ref().is_none_or(|peer| peer.phase == Phase::Listening) {
            self.new_passive(spec);
        }
        let scaled = self.options.scaled_echo;
        let pattern = self.checks_payload;
        let local_default = SocketAddr::new(self.local, PORT);
        let Some(peer) = &mut self.peer else { return Err("no connection".to_owned()) };
        answer(peer, spec);
        let local = peer.local.unwrap_or(local_default);
        let mut options = spec.options.clone().unwrap_or_default();
        shift_sack(&mut options, peer.local_offset(spec.flags));
        for option in &mut options {
            if let TcpOption::Timestamps { echo, .. } = option
                && spec.flags.any(Flags::ACK)
            {
                *echo = peer.echo(*echo, scaled)?;
            }
        }
        let seq = spec.sequence.start.wrapping_add(peer.remote_offset(spec.flags));
        let ack = if spec.flags.any(Flags::ACK) {
            spec.ack.wrapping_add(peer.local_offset(spec.flags))
        } else {
            spec.ack
        };
        let (source, destination) = spec.ports.unwrap_or((peer.remote.port(), local.port()));
        let options = encode_options(&options);
        let len = TCP_MIN_LEN + options.len() + usize::from(spec.sequence.len);
        let mut out = ip_header(peer.remote.ip(), local.ip(), tos, protocol::TCP, len);
        let at = out.len();
        out.extend(source.to_be_bytes());
        out.extend(destination.to_be_bytes());
        out.extend(seq.to_be_bytes());
        out.extend(ack.to_be_bytes());
        out.push((((TCP_MIN_LEN + options.len()) / 4) << 4) as u8);
        out.push(spec.flags.0);
        out.extend(spec.window.unwrap_or(0).to_be_bytes());
        out.extend([0, 0]);
        out.extend(spec.urgent.to_be_bytes());
        out.extend(options);
        out.extend(stream(spec.sequence, pattern));
        let (from, to) = (peer.remote.ip(), local.ip());
        fill_tcp_checksum(&mut out, at, from, to);
        Ok(out)
    }

    /// A first packet makes a connection of a listener, or of nothing at all.
    fn new_passive(&mut self, spec: &TcpSpec) {
        let remote = SocketAddr::new(self.remote, self.next_remote_port);
        self.next_remote_port += 1;
        let mut peer = Peer::new(Phase::Received, remote, None);
        peer.local = Some(SocketAddr::new(self.local, PORT));
        peer.remote_isn = spec.sequence.start;
        self.peer = Some(peer);
    }

    fn icmp(&mut self, spec: &IcmpSpec) -> Result<Vec<u8>, String> {
        let Some(peer) = &self.peer else { return Err("no connection to speak of".to_owned()) };
        let Some(local) = peer.local else { return Err("nothing was sent yet".to_owned()) };
        let v6 = self.local.is_ipv6();
        let (kind, code) = icmp_numbers(spec, v6)
            .ok_or_else(|| format!("ICMP {} {:?} is not known", spec.kind, spec.code))?;
        let seq = spec.quoted.start.wrapping_add(peer.local_isn.0);
        let inner_len = TCP_MIN_LEN + usize::from(spec.quoted.len);
        let mut quoted = ip_header(local.ip(), peer.remote.ip(), 0, protocol::TCP, inner_len);
        quoted.extend(local.port().to_be_bytes());
        quoted.extend(peer.remote.port().to_be_bytes());
        quoted.extend(seq.to_be_bytes());
        let upper = if v6 { protocol::ICMPV6 } else { 1 };
        let mut out = ip_header(self.remote, self.local, 0, upper, 8 + quoted.len());
        let mtu = u32::from(spec.mtu.unwrap_or(0));
        out.extend([kind, code, 0, 0]);
        out.extend(mtu.to_be_bytes());
        out.extend(quoted);
        Ok(out)
    }

    /// `>`: a packet must be sent.
    pub(super) fn expect(&mut self, packet: &Packet, when: When) -> Result<(), String> {
        let Body::Tcp(spec) = &packet.body else {
            return Err("only TCP packets can be expected".to_owned());
        };
        self.before_expecting(spec)?;
        let mut seen = self.next_for(spec, when)?;
        self.learn(&seen, spec);
        let Some(peer) = &mut self.peer else { return Err("no connection".to_owned()) };
        seen = peer.to_script(seen);
        let mut gathered = vec![seen.clone()];
        while seen.payload.len() < usize::from(spec.sequence.len) && !self.options.strict_segments {
            let Some(more) = self.next_ours(when)? else { break };
            let more = self.peer.as_ref().map_or(more.clone(), |peer| peer.to_script(more));
            gathered.push(more.clone());
            if !check::continues(&seen, &more) {
                break;
            }
            seen = check::joined(seen, more);
        }
        self.map_timestamp(&mut seen, spec);
        let mut differences = check::compare(packet, spec, &seen, self.options.tick, when);
        if differences.is_empty() && self.checks_payload {
            differences.extend(check::payload(&seen));
        }
        if differences.is_empty() {
            Ok(())
        } else {
            Err(self.report(spec, when, &seen, &gathered, &differences))
        }
    }

    /// A SYN that is expected belongs to the connect() before it.
    fn before_expecting(&mut self, spec: &TcpSpec) -> Result<(), String> {
        let Some(peer) = &mut self.peer else {
            return Err("no connection could send this".to_owned());
        };
        let syn = spec.flags.any(Flags::SYN);
        let ack = spec.flags.any(Flags::ACK);
        if peer.phase == Phase::Connecting && syn && !ack {
            peer.phase = Phase::SynSent;
            peer.local_isn.1 = spec.sequence.start;
        }
        if peer.phase == Phase::Received && syn && ack {
            peer.local_isn.1 = spec.sequence.start;
        }
        Ok(())
    }

    /// Learns our port and our initial sequence number from a first packet.
    fn learn(&mut self, seen: &Seen, spec: &TcpSpec) {
        let Some(peer) = &mut self.peer else { return };
        if !(spec.flags.any(Flags::SYN) && seen.flags.any(Flags::SYN)) {
            return;
        }
        match (peer.phase, spec.flags.any(Flags::ACK)) {
            (Phase::SynSent, false) if peer.local.is_none() => {
                peer.local = Some(seen.source);
                peer.local_isn.0 = seen.seq;
            }
            (Phase::Received, true) => {
                peer.phase = Phase::SynAckSent;
                peer.local_isn.0 = seen.seq;
            }
            _ => {}
        }
    }

    fn map_timestamp(&mut self, seen: &mut Seen, spec: &TcpSpec) {
        let script = spec.options.as_deref().and_then(seen::timestamps);
        if let (Some((script, _)), Some((wire, _)), Some(peer)) =
            (script, seen.timestamps(), &mut self.peer)
        {
            let mapped = peer.timestamp(script, wire);
            for option in &mut seen.options {
                if let TcpOption::Timestamps { value, .. } = option {
                    *value = mapped;
                }
            }
        }
    }

    /// The next packet of the connection; there must be one.
    fn next_for(&mut self, spec: &TcpSpec, when: When) -> Result<Seen, String> {
        match self.next_ours(when)? {
            Some(seen) => Ok(seen),
            None => Err(format!(
                "no packet was sent by {}\n  expected: {} > {}",
                seen::seconds(self.host.now()),
                seen::seconds(when.from),
                seen::expected(spec),
            )),
        }
    }

    fn next_ours(&mut self, when: When) -> Result<Option<Seen>, String> {
        const PATIENCE: Nanos = 2_000_000_000;
        const LONG_PATIENCE: Nanos = 1_000_000_000_000;
        let until = if when.any { self.host.now() + LONG_PATIENCE } else { when.to + PATIENCE };
        loop {
            while let Some(sent) = self.host.next_packet() {
                let seen = Seen::of(&sent).ok_or("the stack sent what is no TCP")?;
                if self.peer.as_ref().is_some_and(|peer| peer.sent(&seen)) {
                    return Ok(Some(seen));
                }
            }
            if self.host.now() >= until {
                return Ok(None);
            }
            self.step(until)?;
        }
    }

    /// Describes both packets, their differences, and the packets sent after.
    fn report(
        &mut self,
        spec: &TcpSpec,
        when: When,
        seen: &Seen,
        gathered: &[Seen],
        differences: &[Difference],
    ) -> String {
        let at = if when.any { "*".to_owned() } else { seen::seconds(when.from) };
        let mut out = format!(
            "another packet was sent than expected\n  expected: {at} > {}",
            seen::expected(spec)
        );
        out += &format!("\n  actual:   {} > {seen}", seen::seconds(seen.at));
        if gathered.len() > 1 {
            for part in gathered {
                out += &format!("\n      part: {} > {part}", seen::seconds(part.at));
            }
        }
        for difference in differences {
            out += &format!("\n  {difference}");
        }
        while let Some(sent) = self.host.next_packet() {
            if let (Some(seen), Some(peer)) = (Seen::of(&sent), &self.peer) {
                out +=
                    &format!("\n  and then: {} > {}", seen::seconds(seen.at), peer.to_script(seen));
            }
        }
        out
    }

    /// Checks that at the end no packet is left that was sent before it.
    pub(super) fn nothing_left(&mut self, end: Nanos) -> Result<(), String> {
        while let Some(sent) = self.host.next_packet() {
            if let (Some(seen), Some(peer)) = (Seen::of(&sent), &self.peer)
                && peer.sent(&seen)
                && seen.at <= end
            {
                let at = seen::seconds(seen.at);
                return Err(format!("not expected: {at} > {}", peer.to_script(seen)));
            }
        }
        Ok(())
    }
}

/// Updates the connection by a packet of the peer.
fn answer(peer: &mut Peer, spec: &TcpSpec) {
    let ack = spec.flags.any(Flags::ACK);
    if peer.phase == Phase::SynAckSent && ack {
        peer.phase = Phase::Known;
    } else if peer.phase == Phase::SynSent && ack && spec.flags.any(Flags::SYN) {
        peer.phase = Phase::Known;
        peer.remote_isn = spec.sequence.start;
    }
}

/// Payload for these places of the stream, whose first byte has number 1.
fn stream(sequence: Sequence, pattern: bool) -> impl Iterator<Item = u8> {
    let first = sequence.start.wrapping_sub(1);
    (0..u32::from(sequence.len))
        .map(move |at| if pattern { stream_byte(first.wrapping_add(at)) } else { 0 })
}

fn icmp_numbers(spec: &IcmpSpec, v6: bool) -> Option<(u8, u8)> {
    let code = spec.code.as_deref();
    if v6 {
        return match (spec.kind.as_str(), code) {
            ("packet_too_big", None) => Some((2, 0)),
            ("unreachable", Some("net_unreachable")) => Some((1, 0)),
            ("unreachable", Some("admin_prohibited")) => Some((1, 1)),
            ("unreachable", Some("address_unreachable" | "host_unreachable")) => Some((1, 3)),
            ("unreachable", Some("port_unreachable")) => Some((1, 4)),
            _ => None,
        };
    }
    match (spec.kind.as_str(), code) {
        ("unreachable", Some("net_unreachable")) => Some((3, 0)),
        ("unreachable", Some("host_unreachable")) => Some((3, 1)),
        ("unreachable", Some("protocol_unreachable")) => Some((3, 2)),
        ("unreachable", Some("port_unreachable")) => Some((3, 3)),
        ("unreachable", Some("frag_needed")) => Some((3, 4)),
        ("unreachable", Some("source_route_failed")) => Some((3, 5)),
        ("unreachable", Some("communication_prohibited")) => Some((3, 13)),
        ("unreachable", Some("host_unknown")) => Some((3, 7)),
        ("source_quench", None) => Some((4, 0)),
        ("time_exceeded", Some("exc_ttl") | None) => Some((11, 0)),
        _ => None,
    }
}
