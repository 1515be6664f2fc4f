//! Packets that the stack has sent, parsed, and packets as text.

use std::fmt::Write;
use std::net::SocketAddr;

use tcp::Nanos;
use wire::{Flags, Headers, Ipv4, Ipv6, Network, Tcp, Transport};

use crate::script::{TcpOption, TcpSpec};
use crate::sockets::Sent;

/// A TCP segment that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) at: Nanos,
    pub(super) tos: u8,
    pub(super) ttl: u8,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) flags: Flags,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    pub(super) urgent: u16,
    pub(super) options: Vec<TcpOption>,
    pub(super) payload: Vec<u8>,
}

impl Seen {
    /// The segment of a packet; `None` if it is not TCP.
    pub(super) fn of(sent: &Sent) -> Option<Seen> {
        let packet = &sent.packet;
        let headers = Headers::parse_ip(packet).ok()?;
        if headers.transport != Transport::Tcp {
            return None;
        }
        let (tos, ttl, source, destination) = match headers.network {
            Network::Ipv4 { .. } => {
                let ip = Ipv4::new(&packet[..]).ok()?;
                let four = |bytes: &[u8]| <[u8; 4]>::try_from(bytes).ok().map(Into::into);
                (ip.tos(), ip.ttl(), four(ip.source())?, four(ip.destination())?)
            }
            Network::Ipv6 { .. } => {
                let ip = Ipv6::new(&packet[..]).ok()?;
                let sixteen = |bytes: &[u8]| <[u8; 16]>::try_from(bytes).ok().map(Into::into);
                let tos = (packet[0] << 4) | (packet[1] >> 4);
                (tos, packet[7], sixteen(ip.source())?, sixteen(ip.destination())?)
            }
            Network::Other(_) => return None,
        };
        let tcp = Tcp::new(&packet[headers.transport_at..headers.end]).ok()?;
        Some(Seen {
            at: sent.at,
            tos,
            ttl,
            source: SocketAddr::new(source, tcp.source()),
            destination: SocketAddr::new(destination, tcp.destination()),
            flags: tcp.flags(),
            seq: tcp.seq().0,
            ack: tcp.ack().0,
            window: tcp.window(),
            urgent: tcp.urgent(),
            options: options(tcp.option_bytes()),
            payload: packet[headers.payload_at..headers.end].to_vec(),
        })
    }

    pub(super) fn timestamps(&self) -> Option<(u32, u32)> {
        timestamps(&self.options)
    }
}

/// TSval and TSecr.
pub(super) fn timestamps(options: &[TcpOption]) -> Option<(u32, u32)> {
    options.iter().find_map(|option| match option {
        TcpOption::Timestamps { value, echo } => Some((*value, *echo)),
        _ => None,
    })
}

/// Every option, padding included.
fn options(mut bytes: &[u8]) -> Vec<TcpOption> {
    let mut out = Vec::new();
    while let Some((&kind, rest)) = bytes.split_first() {
        if kind <= 1 {
            out.push(if kind == 0 { TcpOption::End } else { TcpOption::Nop });
            bytes = rest;
            continue;
        }
        let len = rest.first().map_or(0, |len| usize::from(*len));
        let Some(data) = bytes.get(2..len) else { break };
        out.push(option(kind, data));
        bytes = &bytes[len..];
    }
    out
}

fn option(kind: u8, data: &[u8]) -> TcpOption {
    let word = |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
    match (kind, data.len()) {
        (2, 2) => TcpOption::Mss(u16::from_be_bytes([data[0], data[1]])),
        (3, 1) => TcpOption::WindowScale(data[0]),
        (4, 0) => TcpOption::SackPermitted,
        (5, len) if len % 8 == 0 => {
            TcpOption::Sack((0..len).step_by(8).map(|at| (word(at), word(at + 4))).collect())
        }
        (8, 8) => TcpOption::Timestamps { value: word(0), echo: word(4) },
        _ => TcpOption::Other { kind, data: data.to_vec() },
    }
}

/// Control bits as scripts write them.
pub(super) fn flags(flags: Flags) -> String {
    let letters = [
        (Flags::FIN, 'F'),
        (Flags::SYN, 'S'),
        (Flags::RST, 'R'),
        (Flags::PSH, 'P'),
        (Flags::URG, 'U'),
        (Flags::ECE, 'E'),
        (Flags::CWR, 'W'),
        (Flags::ACK, '.'),
    ];
    let out: String =
        letters.iter().filter(|(flag, _)| flags.any(*flag)).map(|(_, letter)| *letter).collect();
    if out.is_empty() { "-".to_owned() } else { out }
}

fn option_words(options: &[TcpOption]) -> String {
    let words: Vec<String> = options.iter().map(ToString::to_string).collect();
    format!("<{}>", words.join(","))
}

/// A time, in seconds.
pub(super) fn seconds(at: Nanos) -> String {
    format!("{:.6}", at as f64 / 1e9)
}

/// The packet that a script expects, as text.
pub(super) fn expected(spec: &TcpSpec) -> String {
    let start = spec.sequence.start;
    let end = start.wrapping_add(u32::from(spec.sequence.len));
    let mut out = format!("{} {start}:{end}({})", flags(spec.flags), spec.sequence.len);
    if spec.flags.any(Flags::ACK) {
        let _ = write!(out, " ack {}", spec.ack);
    }
    if let Some(window) = spec.window {
        let _ = write!(out, " win {window}");
    }
    if spec.urgent != 0 {
        let _ = write!(out, " urg {}", spec.urgent);
    }
    match &spec.options {
        None => out.push_str(" <...>"),
        Some(options) if options.is_empty() => {}
        Some(options) => {
            let _ = write!(out, " {}", option_words(options));
        }
    }
    out
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.tos & 3 != 0 {
            f.write_str(["", "[ect1] ", "[ect0] ", "[ce] "][usize::from(self.tos & 3)])?;
        }
        let end = self.seq.wrapping_add(self.payload.len() as u32);
        write!(f, "{} {}:{end}({})", flags(self.flags), self.seq, self.payload.len())?;
        if self.flags.any(Flags::ACK) {
            write!(f, " ack {}", self.ack)?;
        }
        write!(f, " win {}", self.window)?;
        if self.urgent != 0 {
            write!(f, " urg {}", self.urgent)?;
        }
        if !self.options.is_empty() {
            write!(f, " {}", option_words(&self.options))?;
        }
        Ok(())
    }
}
