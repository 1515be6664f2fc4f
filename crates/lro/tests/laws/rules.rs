//! What may be held, and what may join what, of whole packets: written anew from the rules of Linux
//! GRO and of the papers, slowly and without looking at the crate.

use lro::{Config, Profile, RxChecksum};

use super::naive::{ACK, CWR, FIN, PSH, RST, SYN, Tcp, URG};
use super::run::Frame;

/// What becomes of a frame.
pub(crate) enum Verdict {
    Discard,
    /// Goes on at once; of no known connection.
    Pass,
    /// Goes on after what is held of its connection.
    PassAfter(Tcp, Order),
    Hold(Tcp),
}

/// Behind what a packet goes that goes on as it came, and what it tells of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// What it says is not to be trusted.
    Unread,
    /// It begins.
    Syn,
    /// It ends.
    End,
    /// No data: it may overtake what waits for a hole.
    Ack,
    /// Data.
    Data,
}

pub(crate) fn verdict(config: &Config, frame: &Frame) -> Verdict {
    let Some(packet) = Tcp::read(&frame.bytes) else { return Verdict::Pass };
    let extensions = packet.is_v6() && packet.ip.len() > 40;
    if !packet.is_v6() && packet.ip.len() > 20 {
        return Verdict::PassAfter(packet, Order::Unread);
    }
    if !packet.ip_checksum_ok() {
        return Verdict::Discard;
    }
    if extensions && !packet.tcp_checksum_ok() {
        return Verdict::PassAfter(packet, Order::Unread);
    }
    let partial = packet.checksum() == usize::from(packet.pseudo_sum());
    let right = match frame.checksum {
        RxChecksum::Unverified => packet.tcp_checksum_ok(),
        RxChecksum::MaybePartial => packet.tcp_checksum_ok() || partial,
        RxChecksum::Verified => true,
    };
    if !right {
        return Verdict::Discard;
    }
    let alone = match packet.payload.is_empty() {
        _ if packet.has(SYN) => Some(Order::Syn),
        _ if packet.has(RST) => Some(Order::End),
        _ if packet.has(URG) => Some(Order::Data),
        true if packet.has(FIN) => Some(Order::End),
        true => Some(Order::Ack),
        false if !packet.has(ACK) || packet.header_len() > 128 => Some(Order::Data),
        false => None,
    };
    match (kinds(packet.options()), alone) {
        (None, _) => Verdict::PassAfter(packet, Order::Unread),
        (_, Some(order)) => Verdict::PassAfter(packet, order),
        (Some(kinds), _)
            if config.profile == Profile::Endpoint
                && !kinds.is_empty()
                && packet.timestamps().is_none() =>
        {
            Verdict::PassAfter(packet, Order::Data)
        }
        _ => Verdict::Hold(packet),
    }
}

/// The kinds of all options but padding; `None` if they cannot be walked.
pub(crate) fn kinds(mut options: &[u8]) -> Option<Vec<u8>> {
    let mut kinds = Vec::new();
    while let Some(&kind) = options.first() {
        match kind {
            0 => break,
            1 => options = &options[1..],
            _ => {
                let len = usize::from(*options.get(1)?);
                if len < 2 {
                    return None;
                }
                options = options.get(len..)?;
                kinds.push(kind);
            }
        }
    }
    Some(kinds)
}

/// Everything but lengths, IDs, checksums, numbers, window, options, FIN and PSH is equal.
pub(crate) fn same_headers(first: &Tcp, new: &Tcp) -> bool {
    new.link == first.link
        && blank_ip(new) == blank_ip(first)
        && new.tcp.len() == first.tcp.len()
        && new.tcp[12] == first.tcp[12]
        && (new.flags() ^ first.flags()) & !(FIN | PSH | CWR) == 0
        && !new.has(CWR)
}

/// The IP header without lengths, ID and checksum.
fn blank_ip(packet: &Tcp) -> Vec<u8> {
    let mut ip = packet.ip.clone();
    let blank: &[usize] = if packet.is_v6() { &[4, 5] } else { &[2, 3, 4, 5, 10, 11] };
    blank.iter().for_each(|at| ip[*at] = 0);
    ip
}

/// Options of the same kinds: both timestamps, or the same padding as far as LRO looks.
pub(crate) fn same_kinds(first: &Tcp, new: &Tcp) -> bool {
    let kinds = |packet: &Tcp| packet.options().get(..4).map(<[u8]>::to_vec);
    kinds(first) == kinds(new)
}

/// Half the circle counts as before, from both sides, as a signed difference has it.
pub(crate) fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) >= 0x8000_0000
}

/// Lossless: cutting gives the packet back.
pub(crate) fn restorable(held: &[&Tcp], new: &Tcp) -> bool {
    let (first, last) = (held[0], held[held.len() - 1]);
    let id_step = |a: &Tcp, b: &Tcp| Some(b.id()?.wrapping_sub(a.id()?));
    let step = id_step(last, new);
    let same_step = held.get(1).is_none_or(|second| id_step(first, second) == step);
    new.ack() == first.ack()
        && new.window() == first.window()
        && new.urgent() == first.urgent()
        && new.options() == first.options()
        && new.payload.len() <= first.payload.len()
        && last.payload.len() == first.payload.len()
        && matches!(step, None | Some(0 | 1))
        && same_step
        // Linux since 6.18 takes CWR for a part of AccECN's counter.
        && !first.has(CWR)
        // 0xFFFF verifies where 0 does, but is never written.
        && [first, new].iter().all(|p| p.checksum() != 0xffff && p.ip_checksum() != Some(0xffff))
}
