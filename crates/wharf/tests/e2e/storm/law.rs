//! What holds of the packets of a connection, whoever runs it: seen on the wire, from outside.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use wire::{Flags, Headers, Network, Seq, Tcp, TcpOption, Transport};

/// Kind of the window scale option (RFC 7323 section 2.2).
const WINDOW_SCALE: u8 = 3;
/// Violations that are told in words.
const TOLD: usize = 10;
/// Ticks of its clock by which a segment that another one has overtaken is older at most.
const OVERTAKEN: u32 = 10;
/// The same where it was sent by another queue, whose CPU may not run for a while on a busy machine.
const BY_ANOTHER_QUEUE: u32 = 100;
/// Segments before one that is told of.
const RECENT: usize = 24;

/// Sees all packets between clients and a server.
#[derive(Debug, Default)]
pub(crate) struct Law {
    flows: HashMap<(SocketAddr, SocketAddr), Flow>,
    /// Connections may be taken up from what was written down of them: what was sent last may be sent again.
    pub(crate) starts_anew: bool,
    /// The server sends by several queues: a segment may pass one that was sent by another queue just before.
    overtakes: bool,
    /// Segments that were seen of servers.
    pub(crate) segments: u64,
    pub(crate) violations: u64,
    /// The first of them.
    pub(crate) told: Vec<String>,
}

/// A connection, by what each end has said.
#[derive(Debug, Default)]
struct Flow {
    client: End,
    server: End,
    /// The last segments, and whether they were the server's.
    recent: VecDeque<(Instant, bool, Segment)>,
}

/// What an end has said at most.
#[derive(Debug, Default)]
struct End {
    shift: u8,
    /// The end of what it has sent.
    sent: Option<Seq>,
    acked: Option<Seq>,
    /// The right edge of the window that it offers.
    edge: Option<Seq>,
    clock: Option<Seq>,
}

/// One segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    seq: Seq,
    /// Of its text, SYN and FIN.
    end: Seq,
    ack: Option<Seq>,
    window: u16,
    flags: Flags,
    clock: Option<Seq>,
    shift: Option<u8>,
    /// The flow label or ID of the IP header, by which kernel and engine differ. It is told with the rest.
    #[expect(dead_code, reason = "for those who look for a cause")]
    label: u32,
}

impl Law {
    /// Of a server that sends by so many queues.
    pub(crate) fn of_queues(queues: u32) -> Self {
        Law { overtakes: queues > 1, ..Law::default() }
    }

    /// A frame that a client has sent, or the server.
    pub(crate) fn see(&mut self, from_server: bool, frame: &[u8]) {
        let Some((from, to, segment)) = parse(frame) else { return };
        let ends = if from_server { (to, from) } else { (from, to) };
        if segment.flags.any(Flags::SYN) && !segment.flags.any(Flags::ACK) {
            self.flows.insert(ends, Flow::default());
        }
        let Some(flow) = self.flows.get_mut(&ends) else { return };
        let mut broken = Vec::new();
        if segment.flags.any(Flags::RST) {
            broken.push(format!("a RST of the {}", if from_server { "server" } else { "client" }));
        }
        let (me, peer) = match from_server {
            true => (&mut flow.server, &flow.client),
            false => (&mut flow.client, &flow.server),
        };
        if from_server {
            self.segments += 1;
            if !self.overtakes || !me.is_overtaken(&segment, BY_ANOTHER_QUEUE) {
                me.judge(&segment, peer, self.starts_anew, &mut broken);
            }
        }
        me.take(&segment);
        flow.recent.truncate(RECENT - 1);
        flow.recent.push_front((Instant::now(), from_server, segment));
        for what in broken {
            self.violations += 1;
            if self.told.len() < TOLD {
                self.told.push(format!("{from} to {to}: {what}{}", flow.told()));
            }
        }
    }

    /// The last segments of a client's connection, for those who look for a cause.
    pub(crate) fn recent(&self, client: SocketAddr) -> String {
        let found = self.flows.iter().find(|((this, _), _)| *this == client);
        found.map_or_else(String::new, |(_, flow)| flow.told())
    }
}

impl Flow {
    fn told(&self) -> String {
        let line = |(at, from_server, segment): &(Instant, bool, Segment)| {
            let from = if *from_server { "server" } else { "client" };
            format!("\n  {:?} before, {from}: {segment:?}", at.elapsed())
        };
        self.recent.iter().rev().map(line).collect()
    }
}

impl End {
    /// Whether an end may say this, after what it has said and its peer has allowed.
    fn judge(&self, segment: &Segment, peer: &End, anew: bool, broken: &mut Vec<String>) {
        let Segment { seq, end, ack, window, .. } = *segment;
        let is_empty = seq == end;
        if let Some(edge) = peer.edge
            && !is_empty
            && end.after(edge + 1)
        {
            broken.push(format!("{} bytes beyond the window", end - edge));
        }
        // A keepalive or a probe, as Linux sends it, is one before what is not acknowledged.
        if let Some(sent) = self.sent
            && is_empty
            && !anew
            && seq.before(sent)
            && peer.acked.is_none_or(|acked| seq + 1 != acked)
        {
            broken.push(format!("SND.NXT goes back by {}", sent - seq));
        }
        let Some(ack) = ack else { return };
        if anew && self.is_overtaken(segment, OVERTAKEN) {
            return;
        }
        if let Some(sent) = peer.sent
            && ack.after(sent)
        {
            broken.push(format!("acknowledges {} bytes that were not sent", ack - sent));
        }
        if let Some(acked) = self.acked
            && ack.before(acked)
        {
            broken.push(format!("ACK goes back by {}", acked - ack));
        }
        let edge = ack + (u32::from(window) << self.shift);
        if let Some(before) = self.edge
            && edge.before(before)
            // What the scale cuts off.
            && before - edge >= 1 << self.shift
        {
            broken.push(format!("the right edge goes back by {}", before - edge));
        }
        if let (Some(before), Some(clock)) = (self.clock, segment.clock)
            && clock.before(before)
        {
            broken.push(format!("TSval goes back by {}", before - clock));
        }
    }

    /// What one CPU sends may pass what another has sent just before: while the guard has the kernel send, what arrives has
    /// it send as well.
    fn is_overtaken(&self, segment: &Segment, by: u32) -> bool {
        let (Some(before), Some(clock)) = (self.clock, segment.clock) else { return false };
        !clock.after(before) && before - clock <= by
    }

    fn take(&mut self, segment: &Segment) {
        let most = |old: Option<Seq>, new: Seq| Some(old.map_or(new, |old| old.max(new)));
        if let Some(shift) = segment.shift {
            self.shift = shift;
        }
        // Of a SYN, the window is not scaled (RFC 7323 section 2.2).
        let shift = if segment.flags.any(Flags::SYN) { 0 } else { self.shift };
        self.sent = most(self.sent, segment.end);
        if let Some(ack) = segment.ack {
            self.acked = most(self.acked, ack);
            self.edge = most(self.edge, ack + (u32::from(segment.window) << shift));
        }
        if let Some(clock) = segment.clock {
            self.clock = most(self.clock, clock);
        }
    }
}

/// A TCP segment and its ends.
fn parse(frame: &[u8]) -> Option<(SocketAddr, SocketAddr, Segment)> {
    let headers = Headers::parse(frame).ok()?;
    let network = frame.get(headers.network_at..)?;
    let word = |at: usize| Some(u32::from_be_bytes(*network.get(at..)?.first_chunk::<4>()?));
    let label = match headers.network {
        Network::Ipv6 { .. } => word(0)? & 0xf_ffff,
        _ => word(4)? >> 16,
    };
    let (from, to): (IpAddr, IpAddr) = match headers.network {
        Network::Ipv4 { .. } => {
            let ip = |at: usize| Some(Ipv4Addr::from(*network.get(at..)?.first_chunk::<4>()?));
            (ip(12)?.into(), ip(16)?.into())
        }
        Network::Ipv6 { .. } => {
            let ip = |at: usize| Some(Ipv6Addr::from(*network.get(at..)?.first_chunk::<16>()?));
            (ip(8)?.into(), ip(24)?.into())
        }
        Network::Other(_) => return None,
    };
    let Transport::Tcp = headers.transport else { return None };
    let tcp = Tcp::new(frame.get(headers.transport_at..headers.end)?).ok()?;
    let flags = tcp.flags();
    let (mut clock, mut shift) = (None, None);
    for option in tcp.options().filter_map(Result::ok) {
        match option {
            TcpOption::Timestamps(stamps) => clock = Some(stamps.value),
            TcpOption::Other { kind: WINDOW_SCALE, data } => shift = data.first().copied(),
            _ => {}
        }
    }
    let text = (headers.end - headers.payload_at) as u32;
    let controls = u32::from(flags.any(Flags::SYN)) + u32::from(flags.any(Flags::FIN));
    let segment = Segment {
        seq: tcp.seq(),
        end: tcp.seq() + (text + controls),
        ack: flags.any(Flags::ACK).then(|| tcp.ack()),
        window: tcp.window(),
        flags,
        clock,
        shift,
        label,
    };
    let end = |ip, port| SocketAddr::new(ip, port);
    Some((end(from, tcp.source()), end(to, tcp.destination()), segment))
}
