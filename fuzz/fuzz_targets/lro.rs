//! Mutated senders in both profiles at once: every frame comes out exactly once and in the order
//! of its connection, every aggregate verifies, and what the lossless profile joins is cut to the
//! same bytes again.
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
    let base = Config {
        max_aggregate: [65_535, 3000, 200][usize::from(input.byte() % 3)],
        max_segments: [512, 3, 1, 0][usize::from(input.byte() % 4)],
        flush_on_psh: input.byte() % 2 == 0,
        flows: 1 + usize::from(input.byte() % 4),
        held_frames: 1 + usize::from(input.byte() % 32),
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
    Wait(u64),
    BurstEnds,
    FlushAll,
    Reconfigure(Profile, u64),
}

fn steps(input: &mut Input<'_>) -> Vec<Step> {
    let mut senders: [Sender; 3] = std::array::from_fn(|n| Sender::new(n as u16, input.byte()));
    let mut steps = Vec::new();
    while !input.0.is_empty() {
        steps.push(match input.byte() {
            0..=239 => senders[usize::from(input.byte() % 3)].send(input),
            240..=243 => Step::Wait(u64::from(input.byte()) * 1000),
            244..=246 => Step::BurstEnds,
            247 => Step::FlushAll,
            248 => Step::Reconfigure(Profile::Endpoint, u64::from(input.byte()) * 100),
            249 => Step::Reconfigure(Profile::Lossless, u64::from(input.byte()) * 100),
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
        Sender {
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

    /// A segment, in order and plain if the input is all zeros.
    fn send(&mut self, input: &mut Input<'_>) -> Step {
        let (what, how) = (input.byte(), input.byte());
        let mut seq = self.seq;
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
            _ => {}
        }
        let mut p = self.template.clone().flags(flags).seq(seq).ack(self.ack).window(self.window);
        if let Some(clock) = self.clock {
            p = p.timestamps(clock, self.ack);
        }
        p = p.id(self.id).payload(&pattern(seq as usize, len)).padding(padding);
        self.id = self.id.wrapping_add(self.id_step);
        self.seq = seq.wrapping_add(len as u32);
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
    let mut out =
        Out { steps, profile: config.profile, seen: vec![0; steps.len()], last: HashMap::new() };
    let mut now = 0;
    for (n, step) in steps.iter().enumerate() {
        match step {
            Step::Frame(bytes, known) => lro.receive(n, bytes, *known, now, &mut out),
            Step::Wait(time) => {
                now += time;
                lro.expire(now, &mut out);
                assert!(lro.next_deadline().is_none_or(|deadline| deadline > now));
            }
            Step::BurstEnds => lro.burst_ends(&mut out),
            Step::FlushAll => lro.flush_all(&mut out),
            Step::Reconfigure(profile, max_timeout) => {
                let config =
                    Config { profile: *profile, max_timeout: *max_timeout, ..config.clone() };
                lro.reconfigure(config, &mut out);
                out.profile = *profile;
            }
        }
    }
    lro.flush_all(&mut out);
    assert_eq!(lro.next_deadline(), None);
    for (n, step) in steps.iter().enumerate() {
        assert_eq!(out.seen[n], u8::from(matches!(step, Step::Frame(..))), "step {n}");
    }
    let counters = lro.counters();
    let passed: u64 = counters.passed.iter().chain(&counters.discarded).sum();
    assert_eq!(counters.received, passed + counters.merged);
}

struct Out<'a> {
    steps: &'a [Step],
    profile: Profile,
    seen: Vec<u8>,
    /// The last frame of each connection.
    last: HashMap<Vec<u8>, usize>,
}

impl Out<'_> {
    fn frame(&self, n: usize) -> (&[u8], RxChecksum) {
        let Step::Frame(bytes, known) = &self.steps[n] else { panic!("step {n} is no frame") };
        (bytes, *known)
    }

    fn leaves(&mut self, n: usize) {
        self.seen[n] += 1;
        let (bytes, _) = self.frame(n);
        let Ok(at) = Headers::parse(bytes) else { return };
        if at.transport == Transport::Tcp {
            let v4 = matches!(at.network, Network::Ipv4 { .. });
            let addresses = at.network_at + if v4 { 12 } else { 8 };
            let key = [
                &bytes[addresses..addresses + if v4 { 8 } else { 32 }],
                &bytes[at.transport_at..at.transport_at + 4],
            ];
            let before = self.last.insert(key.concat(), n);
            assert!(before.is_none_or(|before| before < n), "{n} after {before:?}");
        }
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
    }

    fn aggregate(&mut self, mut aggregate: Aggregate<'_, usize>) {
        let (vnet, fixed_id) = (aggregate.vnet(), aggregate.fixed_id());
        let mut bytes = aggregate.header().to_vec();
        let mut frames = Vec::new();
        while let Some(slice) = aggregate.next_slice() {
            bytes.extend(&self.frame(slice.frame).0[slice.start..slice.start + slice.len]);
            frames.push(slice.frame);
            self.leaves(slice.frame);
        }
        assert!(frames.len() >= 2);
        if self.profile == Profile::Lossless {
            self.cuts_to(&frames, &bytes, &vnet, fixed_id);
        }
        complete_checksum(&mut bytes, &vnet).expect("an aggregate that cannot be completed");
        assert_eq!(verify::checksums(&bytes), Ok(()));
    }

    fn discard(&mut self, n: usize, _: Discard) {
        self.seen[n] += 1;
    }
}
