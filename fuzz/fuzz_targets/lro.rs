//! Mutated senders in both profiles at once, in virtual time: every frame comes out exactly once and
//! no later than it may, every aggregate verifies, the host gets every byte that came and of those for
//! one place the one that came first, and what the lossless profile joins comes in the order of its
//! connection and is cut to the same bytes again. Acknowledgments that differ are joined only in
//! connections whose host was heard.
#![no_main]

use std::collections::HashMap;

use gso::{Segmenter, complete_checksum};
use libfuzzer_sys::fuzz_target;
use lro::{Aggregate, Config, Discard, Lro, Pass, Profile, RxChecksum, Sink};
use testkit::packet::{PacketBuilder, pattern};
use testkit::verify::{self, ones_complement_sum, pseudo_header};
use wire::{Flags, Headers, Network, Transport, VirtioNetHdr};

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let max_aggregate = [65_535, 3000, 200][usize::from(input.byte() % 3)];
    let max_segments = [512, 3, 1, 0][usize::from(input.byte() % 4)];
    let switches = input.byte();
    let base = Config {
        max_aggregate,
        max_segments,
        flush_on_psh: switches % 2 == 0,
        min_hole_timeout: if switches & 2 == 0 { u64::MAX } else { 0 },
        flows: 1 + usize::from(input.byte() % 4),
        held_frames: 1 + usize::from(input.byte() % 64),
        timeout_factor: u32::from(input.byte() % 32),
        min_timeout: u64::from(input.byte()) * 200,
        max_timeout: u64::from(input.byte()) * 500,
        ..Config::default()
    };
    let steps = steps(&mut input);
    for profile in [Profile::Endpoint, Profile::Lossless] {
        run(&Config { profile, ..base.clone() }, &steps);
    }
});

/// The rest of the input; zeros when there is no more.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}

enum Step {
    Frame(Vec<u8>, RxChecksum),
    /// The host sends it.
    Host(Vec<u8>),
    Wait(u64),
    BurstEnds,
    Idle,
    FlushAll,
    Interrupt,
    Reconfigure(Profile, u64),
}

fn steps(input: &mut Input<'_>) -> Vec<Step> {
    let mut senders: [Sender; 3] = std::array::from_fn(|n| Sender::new(n as u16, input.byte()));
    let mut steps = Vec::new();
    while !input.0.is_empty() {
        steps.push(match input.byte() {
            0..=229 => senders[usize::from(input.byte() % 3)].send(input),
            230..=236 => Step::Wait(u64::from(input.byte()) * 10),
            237..=240 => Step::Wait(u64::from(input.byte()) * 1000),
            241..=243 => Step::BurstEnds,
            244..=245 => Step::Idle,
            246 => Step::FlushAll,
            247 => Step::Interrupt,
            248 => Step::Reconfigure(Profile::Endpoint, u64::from(input.byte()) * 100),
            249 => Step::Reconfigure(Profile::Lossless, u64::from(input.byte()) * 100),
            250..=252 => senders[usize::from(input.byte() % 3)].host_sends(input),
            _ => {
                let len = usize::from(input.byte());
                let known = known(input.byte());
                Step::Frame(input.take(len), known)
            }
        });
    }
    steps
}

fn known(byte: u8) -> RxChecksum {
    [RxChecksum::Unverified, RxChecksum::MaybePartial, RxChecksum::Verified][usize::from(byte % 3)]
}

struct Sender {
    template: PacketBuilder,
    /// What its host's packets begin with, and what it sends next.
    of_host: PacketBuilder,
    host: u32,
    seq: u32,
    id: u16,
    id_step: u16,
    len: usize,
    clock: Option<u32>,
    ack: u32,
    window: u16,
}

impl Sender {
    fn new(number: u16, kind: u8) -> Sender {
        let mut template =
            if kind & 1 == 0 { PacketBuilder::tcp4() } else { PacketBuilder::tcp6() };
        if kind & 2 != 0 {
            template = template.vlan(7);
        }
        if kind & 12 == 12 {
            template = template.extension(60, 8);
        }
        let of_host = match kind & 1 {
            0 => PacketBuilder::tcp4().addresses4([10, 0, 0, 2], [10, 0, 0, 1]),
            _ => PacketBuilder::tcp6().addresses6(address6(2), address6(1)),
        };
        Sender {
            of_host: of_host.ports(80, number),
            host: 1,
            template: template.ports(number, 80),
            seq: if kind & 16 == 0 { u32::MAX - 100 } else { 5 },
            id: 0xfffd,
            id_step: u16::from(kind >> 5 & 1),
            len: [1, 32, 100, 1448][usize::from(kind >> 6)],
            clock: (kind & 4 != 0).then_some(u32::MAX - 2),
            ack: 1,
            window: 500,
        }
    }

    /// Data in order if the input is all zeros.
    fn host_sends(&mut self, input: &mut Input<'_>) -> Step {
        let (what, how) = (input.byte(), input.byte());
        let flags = match what % 32 {
            1 => Flags(how),
            _ => Flags::ACK,
        };
        let seq = self.host.wrapping_add_signed(i32::from(what as i8 >> 5) * 100);
        let len = if what % 32 == 2 { 0 } else { 1 + usize::from(how) };
        self.host = seq.wrapping_add(len as u32);
        Step::Host(self.of_host.clone().seq(seq).flags(flags).payload(&pattern(0, len)).build())
    }

    /// A segment, in order and plain if the input is all zeros.
    fn send(&mut self, input: &mut Input<'_>) -> Step {
        let (what, how) = (input.byte(), input.byte());
        let mut seq = self.seq;
        let mut shift = 0;
        let next = self.seq;
        let mut len = self.len;
        let mut flags = Flags::ACK;
        let mut padding = 0;
        match what % 32 {
            1 => len = usize::from(how),
            2 => seq = seq.wrapping_sub(u32::from(how)),
            3 => seq = seq.wrapping_add(u32::from(how)),
            4 => flags = Flags(how),
            5 => flags = flags.with(Flags::PSH),
            6 => flags = flags.with(Flags::FIN),
            7 => self.ack = self.ack.wrapping_add_signed(i32::from(how as i8)),
            8 => self.window = u16::from(how),
            9 => self.clock = self.clock.map(|c| c.wrapping_add_signed(i32::from(how as i8))),
            10 => padding = usize::from(how % 16),
            11 => self.id = u16::from(how),
            12 => len = 0,
            30 => self.ack = self.host,
            // Out of order: the sender stays where it was.
            22..=25 => seq = seq.wrapping_add(u32::from(how % 34) * self.len as u32),
            // Again, or others for the same place.
            26..=27 => seq = seq.wrapping_sub(u32::from(how % 34) * self.len as u32),
            28 => (seq, len, shift) = (seq.wrapping_sub(how.into()), usize::from(how) * 2, 1),
            29 => seq = seq.wrapping_add(u32::from(how) << 17),
            _ => {}
        }
        let mut p = self.template.clone().flags(flags).seq(seq).ack(self.ack).window(self.window);
        if let Some(clock) = self.clock {
            p = p.timestamps(clock, self.ack);
        }
        p = p.id(self.id).payload(&pattern(seq as usize + shift, len)).padding(padding);
        self.id = self.id.wrapping_add(self.id_step);
        self.seq = if what % 32 < 22 { seq.wrapping_add(len as u32) } else { next };
        let mut known = RxChecksum::Unverified;
        let mut bytes = p.build();
        match what % 32 {
            13 => bytes = p.wrong_checksum().build(),
            14 => bytes = p.wrong_ip_checksum().build(),
            15 => (bytes, known) = (p.partial_checksum().build(), self::known(how)),
            16..=20 => damage(&mut bytes, how, input.byte(), what & 32 != 0),
            21 => bytes.truncate(usize::from(how)),
            _ => {}
        }
        Step::Frame(bytes, known)
    }
}

fn address6(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[15]) = (0xfd, last);
    address
}

/// Changes one byte, and makes the checksums right again if `repair`.
fn damage(bytes: &mut [u8], at: u8, value: u8, repair: bool) {
    if let Some(byte) = bytes.get_mut(usize::from(at)) {
        *byte = value;
    }
    let Ok(at) = Headers::parse(bytes) else { return };
    if !repair || at.transport != Transport::Tcp {
        return;
    }
    let v4 = matches!(at.network, Network::Ipv4 { .. });
    let ip = at.network_at;
    if v4 {
        bytes[ip + 10..ip + 12].fill(0);
        let sum = !ones_complement_sum(&bytes[ip..at.transport_at]);
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let addresses = if v4 { ip + 12..ip + 20 } else { ip + 8..ip + 40 };
    let pseudo = pseudo_header(&bytes[addresses], 6, at.end - at.transport_at);
    bytes[at.transport_at + 16..at.transport_at + 18].fill(0);
    let sum = !ones_complement_sum(&[&pseudo, &bytes[at.transport_at..at.end]].concat());
    bytes[at.transport_at + 16..at.transport_at + 18].copy_from_slice(&sum.to_be_bytes());
}

fn run(config: &Config, steps: &[Step]) {
    let mut lro = Lro::new(config.clone());
    let mut out = Out::new(config, steps);
    for (n, step) in steps.iter().enumerate() {
        match step {
            Step::Frame(bytes, known) => {
                out.arrived[n] = out.now;
                lro.receive(n, bytes, *known, out.now, &mut out);
            }
            Step::Host(bytes) => {
                lro.observe(bytes);
                out.heard = true;
            }
            Step::Wait(time) => wait(&mut lro, *time, &mut out),
            Step::BurstEnds => lro.burst_ends(&mut out),
            Step::Idle => lro.idle(&mut out),
            Step::FlushAll => lro.flush_all(&mut out),
            Step::Interrupt => lro.interrupt(&mut out),
            Step::Reconfigure(profile, max_timeout) => {
                let config =
                    Config { profile: *profile, max_timeout: *max_timeout, ..config.clone() };
                lro.reconfigure(config, &mut out);
                (out.profile, out.max_timeout) = (*profile, *max_timeout);
            }
        }
        out.check_held(&lro, n);
    }
    lro.flush_all(&mut out);
    assert_eq!(lro.next_deadline(), None);
    for (n, step) in steps.iter().enumerate() {
        assert_eq!(out.seen[n], u8::from(matches!(step, Step::Frame(..))), "step {n}");
    }
    out.check_streams();
}

/// Time passes for a caller that wakes when it is told to.
fn wait(lro: &mut Lro<usize>, time: u64, out: &mut Out<'_>) {
    let end = out.now + time;
    while let Some(deadline) = lro.next_deadline().filter(|deadline| *deadline <= end) {
        out.now = out.now.max(deadline);
        lro.expire(out.now, out);
        assert!(lro.next_deadline().is_none_or(|next| next > out.now), "no progress");
    }
    out.now = end;
}

type Key = Vec<u8>;

/// Part of a frame's payload and its place.
#[derive(Clone, Copy)]
struct Piece {
    frame: usize,
    /// First byte within the frame.
    start: usize,
    seq: u32,
    len: usize,
}

struct Out<'a> {
    steps: &'a [Step],
    profile: Profile,
    max_timeout: u64,
    now: u64,
    arrived: Vec<u64>,
    seen: Vec<u8>,
    /// A host has sent something.
    heard: bool,
    discarded: Vec<bool>,
    /// The last frame of each connection.
    last: HashMap<Key, usize>,
    /// What each connection's host was given, in this order.
    given: HashMap<Key, Vec<Piece>>,
}

impl<'a> Out<'a> {
    fn new(config: &Config, steps: &'a [Step]) -> Out<'a> {
        Out {
            steps,
            profile: config.profile,
            max_timeout: config.max_timeout,
            now: 0,
            arrived: vec![0; steps.len()],
            seen: vec![0; steps.len()],
            heard: false,
            discarded: vec![false; steps.len()],
            last: HashMap::new(),
            given: HashMap::new(),
        }
    }

    fn frame(&self, n: usize) -> (&'a [u8], RxChecksum) {
        let Step::Frame(bytes, known) = &self.steps[n] else { panic!("step {n} is no frame") };
        (bytes, *known)
    }

    /// A frame's connection and all of its payload, if it is TCP.
    fn whole(&self, n: usize) -> Option<(Key, Piece)> {
        let (bytes, _) = self.frame(n);
        let at = Headers::parse(bytes).ok().filter(|at| at.transport == Transport::Tcp)?;
        let v4 = matches!(at.network, Network::Ipv4 { .. });
        let addresses = at.network_at + if v4 { 12 } else { 8 };
        let key = [
            &bytes[addresses..addresses + if v4 { 8 } else { 32 }],
            &bytes[at.transport_at..at.transport_at + 4],
        ];
        let seq = bytes[at.transport_at + 4..].first_chunk().expect("a TCP header");
        let (start, len) = (at.payload_at, at.payload_len());
        Some((key.concat(), Piece { frame: n, start, seq: u32::from_be_bytes(*seq), len }))
    }

    /// What a frame that was joined acknowledges.
    fn ack(&self, n: usize) -> &'a [u8] {
        let (bytes, _) = self.frame(n);
        let at = Headers::parse(bytes).expect("a merged frame").transport_at;
        &bytes[at + 8..at + 12]
    }

    fn leaves(&mut self, n: usize) {
        self.seen[n] += 1;
        assert!(self.now - self.arrived[n] <= self.max_timeout, "held for too long");
        if self.profile == Profile::Lossless
            && let Some((key, _)) = self.whole(n)
        {
            let before = self.last.insert(key, n);
            assert!(before.is_none_or(|before| before < n), "{n} after {before:?}");
        }
    }

    /// What has not come out is held, and counted, and has a deadline.
    fn check_held(&self, lro: &Lro<usize>, until: usize) {
        let is_held = |n: &usize| matches!(self.steps[*n], Step::Frame(..)) && self.seen[*n] == 0;
        let held: Vec<usize> = (0..=until).filter(is_held).collect();
        let counters = lro.counters();
        let gone: u64 = counters.passed.iter().chain(&counters.discarded).sum();
        assert_eq!(counters.received, gone + counters.merged + held.len() as u64);
        assert!(held.len() <= lro.config().held_frames);
        let latest = held.iter().map(|n| self.arrived[*n] + self.max_timeout).min();
        assert_eq!(lro.next_deadline().is_some(), latest.is_some());
        assert!(lro.next_deadline() <= latest);
    }

    /// The host gets all that came, and of the bytes for one place the one that came first.
    fn check_streams(&self) {
        let mut came: HashMap<Key, Vec<Piece>> = HashMap::new();
        for n in (0..self.steps.len()).filter(|n| self.seen[*n] == 1 && !self.discarded[*n]) {
            if let Some((key, piece)) = self.whole(n) {
                came.entry(key).or_default().push(piece);
            }
        }
        for (key, came) in &came {
            let given = &self.given[key];
            let ends = |p: &Piece| [p.seq, p.seq.wrapping_add(p.len as u32)];
            let mut cuts: Vec<u32> = came.iter().chain(given).flat_map(ends).collect();
            cuts.sort_unstable();
            cuts.dedup();
            let nexts = cuts.iter().cycle().skip(1);
            for (from, to) in cuts.iter().zip(nexts) {
                let len = to.wrapping_sub(*from) as usize;
                assert_eq!(self.first_at(came, *from, len), self.first_at(given, *from, len));
            }
        }
    }

    /// `len` bytes from `seq` on, none of which is an end of any piece, of the first that has them.
    fn first_at(&self, pieces: &[Piece], seq: u32, len: usize) -> Option<&'a [u8]> {
        let covers = |p: &&Piece| (seq.wrapping_sub(p.seq) as usize) < p.len;
        let piece = pieces.iter().find(covers)?;
        let start = piece.start + seq.wrapping_sub(piece.seq) as usize;
        Some(&self.frame(piece.frame).0[start..start + len])
    }

    /// The lossless profile's aggregate is its frames; checksums that the port spoke of are not
    /// compared.
    fn cuts_to(&self, frames: &[usize], bytes: &[u8], vnet: &VirtioNetHdr, fixed_id: bool) {
        let mut segmenter = Segmenter::new(bytes, vnet).expect("an aggregate that cannot be cut");
        if fixed_id {
            segmenter = segmenter.fixed_id();
        }
        let mut segment = vec![0; segmenter.max_segment_len()];
        for n in frames {
            let len = segmenter.next_into(&mut segment).expect("room").expect("as many segments");
            let (original, known) = self.frame(*n);
            let at = Headers::parse(original).expect("a merged frame");
            let mut original = original[..at.end].to_vec();
            if known != RxChecksum::Unverified {
                let checksum = at.transport_at + 16..at.transport_at + 18;
                original[checksum.clone()].copy_from_slice(&segment[checksum]);
            }
            assert_eq!(original, segment[..len]);
        }
        assert_eq!(segmenter.next_into(&mut segment), Ok(None));
    }
}

impl Sink<usize> for Out<'_> {
    fn pass(&mut self, n: usize, _: Pass) {
        self.leaves(n);
        if let Some((key, piece)) = self.whole(n) {
            self.given.entry(key).or_default().push(piece);
        }
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, usize>) {
        let (vnet, fixed_id) = (aggregate.vnet(), aggregate.fixed_id());
        let mut bytes = aggregate.header().to_vec();
        let mut frames = Vec::new();
        let mut next = None;
        while let Some(slice) = aggregate.next_slice() {
            let n = slice.frame;
            bytes.extend(&self.frame(n).0[slice.start..slice.start + slice.len]);
            frames.push(n);
            self.leaves(n);
            let (key, whole) = self.whole(n).expect("an aggregate of something not TCP");
            let skipped = slice.start - whole.start;
            assert!(slice.len > 0 && skipped + slice.len <= whole.len);
            let seq = whole.seq.wrapping_add(skipped as u32);
            assert!(next.is_none_or(|next| next == seq), "{seq} after {next:?}");
            next = Some(seq.wrapping_add(slice.len as u32));
            let piece = Piece { frame: n, start: slice.start, seq, len: slice.len };
            self.given.entry(key).or_default().push(piece);
        }
        assert!(self.heard || frames.iter().all(|n| self.ack(*n) == self.ack(frames[0])));
        assert!(frames.len() >= 2 || self.profile == Profile::Endpoint);
        if self.profile == Profile::Lossless {
            self.cuts_to(&frames, &bytes, &vnet, fixed_id);
        }
        complete_checksum(&mut bytes, &vnet).expect("an aggregate that cannot be completed");
        assert_eq!(verify::checksums(&bytes), Ok(()));
        let is = Headers::parse(&bytes).expect("an aggregate that is no packet");
        let seq = bytes[is.transport_at + 4..].first_chunk().expect("a TCP header");
        assert_eq!(next, Some(u32::from_be_bytes(*seq).wrapping_add(is.payload_len() as u32)));
    }

    fn discard(&mut self, n: usize, _: Discard) {
        self.seen[n] += 1;
        self.discarded[n] = true;
    }
}
