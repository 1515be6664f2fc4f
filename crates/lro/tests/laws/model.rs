//! What may merge, written anew from the rules of Linux GRO and of the paper, slowly and without
//! looking at the crate: a list of packets per connection, and questions asked of whole packets.

use lro::{Config, Nanos, Profile, RxChecksum};

use crate::naive::{ACK, CWR, FIN, Key, PSH, RST, SYN, Tcp, URG};
use crate::run::{Frame, Step};

/// What becomes of a frame.
enum Verdict {
    Discard,
    /// Goes on at once, after what is held of the connection, if it is known.
    Pass(Option<Key>),
    Hold(Tcp),
}

/// Predicts [`Run::groups`](crate::run::Run::groups), given room for all flows and frames.
pub(crate) fn groups(config: &Config, steps: &[Step]) -> Vec<Vec<usize>> {
    let mut model = Model { config: config.clone(), now: 0, held: Vec::new(), out: Vec::new() };
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Frame(frame) => model.receive(number, frame),
            Step::Wait(time) => {
                model.now += time;
                let now = model.now;
                model.release(|held| held.deadline <= now);
            }
            Step::BurstEnds => model.burst_ends(),
            Step::FlushAll => model.release(|_| true),
            Step::Reconfigure(config) => {
                model.release(|_| true);
                model.config = config.clone();
            }
        }
    }
    model.release(|_| true);
    model.out
}

/// One connection's packets, at least one.
struct Held {
    deadline: Nanos,
    /// When a PSH first asked to let go at the end of the burst, as the number of its packet.
    pushed: Option<usize>,
    packets: Vec<(usize, Tcp)>,
}

struct Model {
    config: Config,
    now: Nanos,
    /// In the order in which they began.
    held: Vec<Held>,
    out: Vec<Vec<usize>>,
}

impl Model {
    fn receive(&mut self, number: usize, frame: &Frame) {
        match verdict(&self.config, frame) {
            Verdict::Discard => {}
            Verdict::Pass(key) => {
                self.release(|held| Some(held.packets[0].1.key()) == key);
                self.out.push(vec![number]);
            }
            Verdict::Hold(packet) => self.hold(number, packet),
        }
    }

    fn hold(&mut self, number: usize, packet: Tcp) {
        let key = packet.key();
        let own = |held: &Held| held.packets[0].1.key() == key;
        let deadline = self.now + self.config.max_timeout;
        match self.held.iter_mut().find(|held| own(held)) {
            Some(held) if joins(&self.config, held, &packet) => held.packets.push((number, packet)),
            _ => {
                self.release(own);
                self.held.push(Held { deadline, pushed: None, packets: vec![(number, packet)] });
            }
        }
        let config = self.config.clone();
        self.release(|held| own(held) && is_complete(&config, held));
        if let Some(held) = self.held.iter_mut().find(|held| own(held))
            && config.flush_on_psh
            && held.packets[held.packets.len() - 1].1.has(PSH)
        {
            held.pushed.get_or_insert(number);
        }
    }

    /// Connections go in the order in which a PSH completed them.
    fn burst_ends(&mut self) {
        while let Some(first) = self.held.iter().filter_map(|held| held.pushed).min() {
            self.release(|held| held.pushed == Some(first));
        }
    }

    fn release(&mut self, which: impl Fn(&Held) -> bool) {
        for held in self.held.extract_if(.., |held| which(held)) {
            self.out.push(held.packets.iter().map(|(number, _)| *number).collect());
        }
    }
}

fn verdict(config: &Config, frame: &Frame) -> Verdict {
    let Some(packet) = Tcp::read(&frame.bytes) else { return Verdict::Pass(None) };
    let key = Some(packet.key());
    let extensions = packet.is_v6() && packet.ip.len() > 40;
    if !packet.is_v6() && packet.ip.len() > 20 {
        return Verdict::Pass(key);
    }
    if !packet.ip_checksum_ok() {
        return Verdict::Discard;
    }
    if extensions && !packet.tcp_checksum_ok() {
        return Verdict::Pass(key);
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
    let alone = packet.has(SYN | RST | URG)
        || !packet.has(ACK)
        || packet.payload.is_empty()
        || packet.header_len() > 128;
    match kinds(packet.options()) {
        _ if alone => Verdict::Pass(key),
        None => Verdict::Pass(key),
        Some(kinds)
            if config.profile == Profile::Endpoint
                && !kinds.is_empty()
                && packet.timestamps().is_none() =>
        {
            Verdict::Pass(key)
        }
        Some(_) => Verdict::Hold(packet),
    }
}

/// The kinds of all options but padding; `None` if they cannot be walked.
fn kinds(mut options: &[u8]) -> Option<Vec<u8>> {
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

fn limit(config: &Config) -> usize {
    (config.max_aggregate as usize).min(65_535)
}

/// Bytes of the IP packet that `held` would be.
fn ip_len(held: &Held) -> usize {
    let first = &held.packets[0].1;
    first.ip.len() + first.tcp.len() + held.packets.iter().map(|p| p.1.payload.len()).sum::<usize>()
}

fn joins(config: &Config, held: &Held, new: &Tcp) -> bool {
    let (first, last) = (&held.packets[0].1, &held.packets[held.packets.len() - 1].1);
    new.seq() == last.seq().wrapping_add(last.payload.len() as u32)
        && held.packets.len() < config.max_segments as usize
        && ip_len(held) + new.payload.len() <= limit(config)
        && new.link == first.link
        && blank_ip(new) == blank_ip(first)
        && new.tcp.len() == first.tcp.len()
        && new.tcp[12] == first.tcp[12]
        && (new.flags() ^ first.flags()) & !(FIN | PSH | CWR) == 0
        && !new.has(CWR)
        && match config.profile {
            Profile::Endpoint => forward(last, new),
            Profile::Lossless => restorable(held, new),
        }
}

/// The IP header without lengths, ID and checksum.
fn blank_ip(packet: &Tcp) -> Vec<u8> {
    let mut ip = packet.ip.clone();
    let blank: &[usize] = if packet.is_v6() { &[4, 5] } else { &[2, 3, 4, 5, 10, 11] };
    blank.iter().for_each(|at| ip[*at] = 0);
    ip
}

fn before(a: u32, b: u32) -> bool {
    b.wrapping_sub(a).wrapping_sub(1) < 0x7fff_ffff
}

/// Endpoint: ACK and TSval do not go back, and both have timestamps or neither.
fn forward(last: &Tcp, new: &Tcp) -> bool {
    !is_before(new.ack(), last.ack())
        && match (last.timestamps(), new.timestamps()) {
            (Some(last), Some(new)) => !is_before(new.0, last.0),
            (None, None) => true,
            _ => false,
        }
}

/// Half the circle counts as before, from both sides, as a signed difference has it.
fn is_before(a: u32, b: u32) -> bool {
    before(a, b) || a.wrapping_sub(b) == 0x8000_0000
}

/// Lossless: cutting gives the packet back.
fn restorable(held: &Held, new: &Tcp) -> bool {
    let (first, last) = (&held.packets[0].1, &held.packets[held.packets.len() - 1].1);
    let id_step = |a: &Tcp, b: &Tcp| Some(b.id()?.wrapping_sub(a.id()?));
    let step = id_step(last, new);
    let same_step = held.packets.get(1).is_none_or(|second| id_step(first, &second.1) == step);
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

fn is_complete(config: &Config, held: &Held) -> bool {
    let lossless = config.profile == Profile::Lossless;
    let last = &held.packets[held.packets.len() - 1].1;
    let largest = held.packets.iter().map(|p| p.1.payload.len()).max().unwrap();
    last.has(FIN)
        || lossless && last.has(PSH)
        || lossless && last.payload.len() < largest
        || held.packets.len() >= config.max_segments as usize
        || ip_len(held) + largest > limit(config)
}
