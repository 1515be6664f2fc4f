//! Random sequences: connections that mostly do what merges, and a few kinds of trouble at a time.

use testkit::packet::PacketBuilder;
use wire::{Flags, protocol};

use super::flow::{Damage, Flow, Ids, Options, Rng, damage};

/// Most packets of a sequence.
const MOST: usize = 24;

/// Something that may be odd about a segment.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    // In its headers: for one segment, or from then on.
    Ack,
    Window,
    UrgentPointer,
    NoAck,
    Ece,
    Cwr,
    Reserved,
    Clock,
    Options,
    Malformed,
    Id,
    DontFragment,
    ReservedBit,
    Ce,
    Tos,
    Ttl,
    Label,
    Mac,
    Vlan,
    Extension,
    LongHeader,
    // For one segment only.
    Size,
    Flag,
    NoData,
    Back,
    Gap,
    Padding,
    Fragment,
    IpOptions,
    TcpChecksum,
    IpChecksum,
    ZeroChecksum,
    Cut,
    LengthLie,
    DataOffset,
    Version,
    Alien,
    // Of the whole sequence.
    Reorder,
}

const TROUBLES: [Trouble; 38] = [
    Trouble::Ack,
    Trouble::Window,
    Trouble::UrgentPointer,
    Trouble::NoAck,
    Trouble::Ece,
    Trouble::Cwr,
    Trouble::Reserved,
    Trouble::Clock,
    Trouble::Options,
    Trouble::Malformed,
    Trouble::Id,
    Trouble::DontFragment,
    Trouble::ReservedBit,
    Trouble::Ce,
    Trouble::Tos,
    Trouble::Ttl,
    Trouble::Label,
    Trouble::Mac,
    Trouble::Vlan,
    Trouble::Extension,
    Trouble::LongHeader,
    Trouble::Size,
    Trouble::Flag,
    Trouble::NoData,
    Trouble::Back,
    Trouble::Gap,
    Trouble::Padding,
    Trouble::Fragment,
    Trouble::IpOptions,
    Trouble::TcpChecksum,
    Trouble::IpChecksum,
    Trouble::ZeroChecksum,
    Trouble::Cut,
    Trouble::LengthLie,
    Trouble::DataOffset,
    Trouble::Version,
    Trouble::Alien,
    Trouble::Reorder,
];

/// The sequence of this number under this seed.
pub(crate) fn sequence(seed: u64, number: u64) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(Rng::new(seed).next() ^ number.wrapping_mul(0xd129_0d3d_3c8f_9b61));
    let mut flows: Vec<(Flow, usize)> = Vec::new();
    for n in 0..1 + rng.below(3) {
        flows.push((flow(n, &mut rng), payload(&mut rng)));
    }
    let troubles: Vec<Trouble> = (0..rng.below(5)).map(|_| rng.pick(&TROUBLES)).collect();
    let rarity = rng.pick(&[2, 3, 5, 9]);
    let mut frames = Vec::new();
    for _ in 0..1 + rng.below(MOST) {
        let at = rng.below(flows.len());
        let trouble = (!troubles.is_empty() && rng.once_in(rarity)).then(|| rng.pick(&troubles));
        let (flow, mss) = &mut flows[at];
        frames.push(next_frame(flow, *mss, trouble, &mut rng));
    }
    if troubles.iter().any(|trouble| matches!(trouble, Trouble::Reorder)) {
        reorder(&mut frames, &mut rng);
    }
    frames
}

/// A connection that has been going on for a while. The first three differ in version, address or
/// port, or are the same: two senders then share its name.
fn flow(n: usize, rng: &mut Rng) -> Flow {
    let mut flow = Flow::plain(rng.once_in(2));
    flow.host = 1 + rng.below(2) as u8;
    flow.ports[1] = 5201 + if rng.once_in(8) { 0 } else { n as u16 };
    flow.seq = rng.pick(&[1, 0x7fff_f000, 0xffff_f000, 0xffff_ffff, rng.clone().next() as u32]);
    flow.id = rng.pick(&[0, 1, 0xfffd, 0xffff, 0x1234]);
    flow.ids = rng.pick(&[Ids::Up, Ids::Up, Ids::Up, Ids::Fixed, Ids::Fixed, Ids::Random]);
    flow.df = !rng.once_in(4);
    flow.tos = rng.pick(&[0, 0, 2, 3, 0xb8]);
    flow.options = rng.pick(&[
        Options::None,
        Options::None,
        Options::Timestamps,
        Options::Timestamps,
        Options::OddTimestamps,
        Options::Sack,
        Options::Unknown,
    ]);
    flow.clock = rng.pick(&[1000, 0xffff_ffff]);
    if rng.once_in(12) {
        flow.extensions.push((protocol::DESTINATION, 8));
    }
    if rng.once_in(16) {
        flow.tags.push(100);
    }
    flow
}

/// The size of a connection's segments: now and then so large that few fill an aggregate.
fn payload(rng: &mut Rng) -> usize {
    match rng.below(24) {
        0 => 9000,
        1 => 16_000 + rng.below(200),
        2 => 32_700,
        3 => 4000,
        4 => 2,
        _ => rng.pick(&[7, 8, 100, 100, 101, 536, 1000, 1448, 1448, 1460]),
    }
}

/// The flow's next segment, with a trouble or without.
fn next_frame(flow: &mut Flow, mss: usize, trouble: Option<Trouble>, rng: &mut Rng) -> Vec<u8> {
    let mut now = flow.clone();
    let mut len = mss;
    let mut padding = 0;
    if let Some(trouble) = trouble {
        headers(&mut now, trouble, rng);
        if rng.once_in(2) {
            *flow = now.clone();
        }
        match trouble {
            Trouble::Size => len = sized(mss, rng),
            Trouble::Flag => now.flags = now.flags.with(flag(rng)),
            Trouble::NoData => len = 0,
            Trouble::Padding => padding = 1 + rng.below(8),
            Trouble::Back => {
                let back = rng.pick(&[1, mss, mss, 2 * mss, mss / 2]);
                now.seq = now.seq.wrapping_sub(back as u32);
            }
            Trouble::Gap => now.seq = now.seq.wrapping_add(rng.pick(&[1, mss, mss / 2]) as u32),
            Trouble::Alien => return alien(&now, len, rng),
            _ => {}
        }
    }
    let mut builder = now.builder(len).padding(padding);
    builder = match trouble {
        Some(Trouble::Fragment) => builder.fragment(rng.pick(&[0, 8, 1480]), !rng.once_in(4)),
        Some(Trouble::IpOptions) => builder.ip_options(&[1, 1, 1, 0]),
        Some(Trouble::TcpChecksum) => builder.wrong_checksum(),
        Some(Trouble::IpChecksum) => builder.wrong_ip_checksum(),
        _ => builder,
    };
    let mut frame = builder.build();
    if now.reserved_bit {
        damage(&mut frame, now.tags.len(), Damage::ReservedBit);
    }
    if let Some(harm) = trouble.and_then(|trouble| harm(trouble, len, rng)) {
        damage(&mut frame, now.tags.len(), harm);
    }
    // A segment that is sent again leaves the sender where it was.
    if !matches!(trouble, Some(Trouble::Back)) || rng.once_in(2) {
        flow.seq = now.seq;
        flow.advance(len, rng);
    }
    frame
}

/// What is odd about headers.
fn headers(flow: &mut Flow, trouble: Trouble, rng: &mut Rng) {
    match trouble {
        Trouble::Ack => flow.ack = flow.ack.wrapping_add(rng.pick(&[1, 1448, 0xffff_ff00])),
        Trouble::Window => flow.window = flow.window.wrapping_add(rng.pick(&[1, 100, 0xfff0])),
        Trouble::UrgentPointer => flow.urgent = rng.pick(&[0, 1, 7]),
        Trouble::NoAck => flow.flags = flow.flags.without(Flags::ACK),
        Trouble::Ece => flow.flags = Flags(flow.flags.0 ^ Flags::ECE.0),
        Trouble::Cwr => flow.flags = Flags(flow.flags.0 ^ Flags::CWR.0),
        Trouble::Reserved => flow.reserved ^= rng.pick(&[1, 2, 8]),
        Trouble::Clock => flow.clock = flow.clock.wrapping_add(rng.pick(&[1, 5, 0xffff_fff0])),
        Trouble::Options => {
            let kinds = [Options::None, Options::Timestamps, Options::OddTimestamps, Options::Sack];
            flow.options = rng.pick(&kinds);
        }
        Trouble::Malformed => flow.options = Options::Malformed,
        Trouble::Id => {
            flow.id = flow.id.wrapping_add(rng.pick(&[0xffff, 1, 2, 0x100]));
            flow.ids = rng.pick(&[Ids::Up, Ids::Fixed, Ids::Random]);
        }
        Trouble::DontFragment => flow.df = !flow.df,
        Trouble::ReservedBit => flow.reserved_bit = !flow.reserved_bit,
        Trouble::Ce => flow.tos |= 3,
        Trouble::Tos => flow.tos ^= rng.pick(&[1, 2, 4, 0x20, 0x80]),
        Trouble::Ttl => flow.ttl ^= rng.pick(&[1, 0x40]),
        Trouble::Label => flow.label ^= rng.pick(&[1, 0x1_0000]),
        Trouble::Mac => flow.mac ^= 1,
        Trouble::Vlan => {
            flow.tags = rng.pick(&[&[][..], &[100], &[101], &[0x2064], &[7, 100]]).to_vec();
        }
        Trouble::Extension => {
            let kinds = [protocol::HOP_BY_HOP, protocol::ROUTING, protocol::DESTINATION];
            flow.extensions = vec![(rng.pick(&kinds), rng.pick(&[8, 16]))];
            if rng.once_in(3) {
                flow.extensions.push((protocol::DESTINATION, 8));
            }
        }
        Trouble::LongHeader => flow.extensions = vec![(protocol::DESTINATION, 64)],
        _ => {}
    }
}

fn sized(mss: usize, rng: &mut Rng) -> usize {
    let small = 1 + rng.below(mss);
    rng.pick(&[1, 2, 3, small, small, mss - 1, mss + 1, 2 * mss]).clamp(1, 60_000)
}

fn flag(rng: &mut Rng) -> Flags {
    let often = [Flags::PSH, Flags::PSH, Flags::PSH, Flags::FIN];
    let odd = [Flags::SYN, Flags::RST, Flags::URG, Flags::FIN.with(Flags::PSH)];
    if rng.once_in(2) { rng.pick(&often) } else { rng.pick(&odd) }
}

/// What is to be done to the finished frame.
fn harm(trouble: Trouble, len: usize, rng: &mut Rng) -> Option<Damage> {
    let within = 1 + rng.below(len.max(1));
    Some(match trouble {
        Trouble::ZeroChecksum if rng.once_in(2) => Damage::TcpZero(!rng.once_in(3)),
        Trouble::ZeroChecksum => Damage::IpZero(!rng.once_in(3)),
        Trouble::Cut => Damage::Cut(rng.pick(&[1, within, len + 1, len + 24])),
        Trouble::LengthLie => {
            let by = within.min(30_000) as i16;
            Damage::Length(rng.pick(&[1, 4, -1, -4, -by, by, -25, 1000]))
        }
        Trouble::DataOffset => Damage::DataOffset(rng.below(16) as u8),
        Trouble::Extension if rng.once_in(2) => Damage::ExtensionByte(rng.pick(&[0, 1])),
        Trouble::Version => Damage::VersionAndLength(rng.pick(&[0x65, 0x44, 0x46, 0x4f, 0x05])),
        _ => return None,
    })
}

/// A frame of another kind, by the same names.
fn alien(flow: &Flow, len: usize, rng: &mut Rng) -> Vec<u8> {
    let len = len.min(9000);
    let mut frame = match (rng.below(3), flow.v6) {
        (0, false) => PacketBuilder::udp4().addresses4([10, 0, 0, flow.host], [10, 0, 1, 1]),
        (0, true) => PacketBuilder::udp6(),
        (_, false) => PacketBuilder::ip4(1),
        (_, true) => PacketBuilder::ip6(protocol::ICMPV6),
    }
    .ports(flow.ports[0], flow.ports[1])
    .payload_pattern(len)
    .build();
    if rng.once_in(3) {
        // ARP, as far as its type goes.
        frame[12..14].copy_from_slice(&[0x08, 0x06]);
    }
    frame
}

/// Swaps neighbours, or moves frames back by a few places.
fn reorder(frames: &mut [Vec<u8>], rng: &mut Rng) {
    for at in 1..frames.len() {
        if rng.once_in(4) {
            let by = rng.pick(&[1, 1, 2, 5]);
            frames[at.saturating_sub(by)..=at].rotate_right(1);
        }
    }
}
