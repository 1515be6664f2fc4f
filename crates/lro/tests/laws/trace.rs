//! Random traces: senders that mostly behave, and everything that can happen to their packets.

use lro::{Config, Profile, RxChecksum};
use proptest::prelude::*;
use testkit::packet::{PacketBuilder, pattern};
use wire::{Flags, protocol};

use super::naive::Tcp;
use super::rules::is_before;
use super::run::{Frame, Step};

/// One connection, and where its numbers start.
#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) v6: bool,
    pub(crate) vlans: Vec<u16>,
    pub(crate) extensions: Vec<(u8, usize)>,
    pub(crate) timestamps: bool,
    pub(crate) seq: u32,
    pub(crate) clock: u32,
    pub(crate) id: u16,
    pub(crate) id_step: u16,
    pub(crate) mss: usize,
    /// The trace begins with its SYN, not in the middle of its connection.
    pub(crate) opens: bool,
}

/// What a sender does next.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Sends data, of so many bytes in place of `mss`, and with one thing different.
    Data(Option<usize>, Change),
    /// Sends so many segments that the network loses.
    Lose(u8),
    /// Sends again from so many bytes back so many: the same bytes, or others.
    Resend(u32, usize, bool),
    /// Its sequence numbers jump.
    Jump(i32),
    /// Segment without data.
    Control(Flags),
    /// One of a new window.
    Update(u16),
    /// A byte of no meaning from before the next (keepalive), or the next one (zero-window probe).
    Probe(bool),
    Fragment,
    IpOptions,
    /// Sends so many bytes that go by as one packet, which is not taken.
    Elsewhere(usize),
}

/// One thing that differs in a data segment; those marked * stay so.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Nothing,
    Flags(Flags),
    /// *
    Window(u16),
    /// * The acknowledgment moves by so much.
    Ack(i32),
    /// * It is of all that the host has sent, but for the last so many bytes.
    AckSent(u32),
    /// * The clock in the timestamps moves by so much.
    Clock(i32),
    /// * TSecr moves.
    Echo(u32),
    Tos(u8),
    Ttl(u8),
    MayFragment,
    /// * The ID jumps.
    Id(u16),
    Mac(u8),
    Label(u32),
    Urgent(u16),
    Reserved(u8),
    Options(Vec<u8>),
    Padding(usize),
    NoAck,
    /// * The ID with which the IPv4 header's checksum is 0, and 0xFFFF in its place.
    MinusZero,
    /// A checksum that is partial, wrong or right, and what the port says of it.
    Checksum(Sum, RxChecksum),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Sum {
    Right,
    Partial,
    Wrong,
    WrongIp,
}

/// What happens to the frame on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    Arrives,
    Doubled,
    /// Arrives after so many others.
    Late(usize),
}

/// A move of the whole: a sender acts, or something else happens.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Act(prop::sample::Index, Action, Fate),
    /// A sender's segments, as many as there are numbers, arrive in the order of those.
    Shuffled(prop::sample::Index, Vec<u8>),
    /// Its host sends so many bytes, so far from where it was, with these flags.
    Host(prop::sample::Index, i32, usize, Flags),
    Other(Vec<u8>),
    Between(Step),
}

pub(crate) fn sender() -> impl Strategy<Value = Sender> {
    let kinds =
        prop::sample::select(vec![protocol::HOP_BY_HOP, protocol::ROUTING, protocol::DESTINATION]);
    let near_wrap = || prop_oneof![any::<u32>(), 0xffff_e000u32..=u32::MAX];
    (
        any::<bool>(),
        prop_oneof![4 => Just(vec![]), 1 => proptest::collection::vec(0u16..4, 1..=2)],
        prop_oneof![3 => Just(vec![]), 1 => proptest::collection::vec((kinds, prop_oneof![Just(8), Just(32)]), 1..=3)],
        any::<bool>(),
        (near_wrap(), near_wrap(), prop_oneof![any::<u16>(), 0xfff8u16..=0xffff]),
        prop_oneof![3 => Just(1u16), 1 => Just(0), 1 => Just(7)],
        (prop_oneof![Just(1448usize), Just(8948), Just(20_000), 1usize..300], any::<bool>()),
    )
        .prop_map(|(v6, vlans, extensions, timestamps, numbers, id_step, (mss, opens))| {
            let (seq, clock, id) = numbers;
            Sender { v6, vlans, extensions, timestamps, seq, clock, id, id_step, mss, opens }
        })
}

fn change() -> impl Strategy<Value = Change> {
    let flag = |flags: Flags| Just(Change::Flags(flags));
    let options = prop_oneof![
        Just(vec![1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]), // SACK
        Just(vec![8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0]), // timestamps first
        Just(vec![1; 12]),
        Just(vec![0; 12]),
        Just(vec![0, 7, 7, 7]),
        Just(vec![1, 1, 8, 11, 0, 0, 0, 1, 0, 0, 0, 2]), // a lie
        proptest::collection::vec(any::<u8>(), 0..=40),
    ];
    let sum = prop::sample::select(vec![Sum::Right, Sum::Partial, Sum::Wrong, Sum::WrongIp]);
    prop_oneof![
        40 => Just(Change::Nothing),
        2 => flag(Flags::PSH),
        1 => flag(Flags::FIN),
        1 => flag(Flags::FIN.with(Flags::PSH)),
        1 => flag(Flags::SYN),
        1 => flag(Flags::RST),
        1 => flag(Flags::URG),
        1 => flag(Flags::ECE),
        1 => flag(Flags::CWR),
        1 => any::<u16>().prop_map(Change::Window),
        2 => (-3000i32..9000).prop_map(Change::Ack),
        4 => prop_oneof![3 => Just(0), 1 => 0u32..9000].prop_map(Change::AckSent),
        2 => (-2i32..50).prop_map(Change::Clock),
        1 => any::<u32>().prop_map(Change::Echo),
        1 => prop_oneof![Just(1u8), Just(2), Just(3), any::<u8>()].prop_map(Change::Tos),
        1 => any::<u8>().prop_map(Change::Ttl),
        1 => Just(Change::MayFragment),
        1 => Just(Change::NoAck),
        1 => Just(Change::MinusZero),
        1 => any::<u16>().prop_map(Change::Id),
        1 => any::<u8>().prop_map(Change::Mac),
        1 => any::<u32>().prop_map(Change::Label),
        1 => any::<u16>().prop_map(Change::Urgent),
        1 => (0u8..16).prop_map(Change::Reserved),
        3 => options.prop_map(Change::Options),
        2 => (1usize..40).prop_map(Change::Padding),
        6 => (sum, checksums()).prop_map(|(sum, known)| Change::Checksum(sum, known)),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let control = prop::sample::select(vec![
        Flags::ACK, // pure acknowledgment, duplicate ACK or window update
        Flags::ACK.with(Flags::ECE),
        Flags::SYN,
        Flags::FIN.with(Flags::ACK),
        Flags::RST,
        Flags::RST.with(Flags::ACK),
        Flags::default(),
    ]);
    prop_oneof![
        30 => change().prop_map(|change| Action::Data(None, change)),
        4 => ((1usize..2000), change()).prop_map(|(len, change)| Action::Data(Some(len), change)),
        1 => (1u8..4).prop_map(Action::Lose),
        4 => (prop_oneof![0u32..5000, 0u32..40_000], 1usize..9000, any::<bool>())
            .prop_map(|(back, len, same)| Action::Resend(back, len, same)),
        1 => prop_oneof![-40_000_000i32..40_000_000, any::<i32>()].prop_map(Action::Jump),
        2 => control.prop_map(Action::Control),
        1 => any::<u16>().prop_map(Action::Update),
        1 => any::<bool>().prop_map(Action::Probe),
        1 => Just(Action::Fragment),
        1 => Just(Action::IpOptions),
        1 => (1usize..40_000).prop_map(Action::Elsewhere),
    ]
}

/// Frames that are no TCP.
fn other() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(PacketBuilder::udp4().payload_pattern(100).build()),
        Just(PacketBuilder::udp6().payload_pattern(3).build()),
        Just(PacketBuilder::ip4(1).payload_pattern(64).build()),
        Just([&[0xff; 12][..], &[0x08, 0x06], &[0; 28]].concat()), // ARP
        proptest::collection::vec(any::<u8>(), 0..80),
    ]
}

/// Mostly data in order.
pub(crate) fn of_host() -> impl Strategy<Value = Move> {
    let shift = prop_oneof![8 => Just(0), 1 => -3000i32..3000, 1 => any::<i32>()];
    let flags = prop_oneof![
        20 => Just(Flags::ACK),
        1 => Just(Flags::ACK.with(Flags::FIN)),
        1 => Just(Flags::ACK.with(Flags::SYN)),
        1 => Just(Flags::SYN),
        1 => Just(Flags::RST),
    ];
    (any::<prop::sample::Index>(), shift, prop_oneof![1 => Just(0usize), 4 => 1usize..9000], flags)
        .prop_map(|(who, shift, len, flags)| Move::Host(who, shift, len, flags))
}

fn one_move() -> impl Strategy<Value = Move> {
    let fate = prop_oneof![
        30 => Just(Fate::Arrives),
        1 => Just(Fate::Doubled),
        2 => (1usize..4).prop_map(Fate::Late),
        1 => (1usize..40).prop_map(Fate::Late),
    ];
    let shuffle = proptest::collection::vec(any::<u8>(), 2..33);
    let between = |step: Step| Just(Move::Between(step));
    prop_oneof![
        60 => (any::<prop::sample::Index>(), action(), fate).prop_map(|(i, a, f)| Move::Act(i, a, f)),
        2 => (any::<prop::sample::Index>(), shuffle).prop_map(|(i, order)| Move::Shuffled(i, order)),
        5 => of_host(),
        2 => other().prop_map(Move::Other),
        5 => prop_oneof![0u64..2000, 0u64..150_000].prop_map(|time| Move::Between(Step::Wait(time))),
        3 => between(Step::BurstEnds),
        2 => between(Step::Idle),
        1 => between(Step::FlushAll),
        1 => between(Step::Interrupt),
    ]
}

/// What a port may say of a checksum.
pub(crate) fn checksums() -> impl Strategy<Value = RxChecksum> {
    prop::sample::select(vec![
        RxChecksum::Unverified,
        RxChecksum::MaybePartial,
        RxChecksum::Verified,
    ])
}

/// Any configuration; sizes of memory are those of `new`.
pub(crate) fn configs() -> impl Strategy<Value = Config> {
    (
        prop_oneof![3 => Just(Profile::Endpoint), 1 => Just(Profile::Lossless)],
        prop_oneof![3 => Just(65_535u32), 1 => 500u32..65_536],
        prop_oneof![3 => Just(512u32), 1 => 0u32..20],
        (prop_oneof![0u64..200_000, 0u64..20], 0u64..50_000, 0u32..20),
        (
            prop_oneof![3 => Just(2_000_000), 1 => 0u64..200_000],
            prop_oneof![Just(0), Just(u64::MAX)],
        ),
        any::<bool>(),
    )
        .prop_map(|(profile, max_aggregate, max_segments, time, holes, flush_on_psh)| {
            let (max_timeout, min_timeout, timeout_factor) = time;
            let time = Config { max_timeout, min_timeout, timeout_factor, ..Config::default() };
            let (hole_timeout, min_hole_timeout) = holes;
            let time = Config { hole_timeout, min_hole_timeout, ..time };
            Config { profile, max_aggregate, max_segments, flush_on_psh, ..time }
        })
}

/// A trace of up to `moves` moves by one to `senders` senders.
pub(crate) fn traces(senders: usize, moves: usize) -> impl Strategy<Value = Vec<Step>> {
    (
        proptest::collection::vec(sender(), 1..=senders),
        proptest::collection::vec(one_move(), 1..=moves),
    )
        .prop_map(|(senders, moves)| steps(&senders, &moves))
}

/// Plays the moves.
pub(crate) fn steps(senders: &[Sender], moves: &[Move]) -> Vec<Step> {
    let mut states: Vec<State> =
        senders.iter().enumerate().map(|(n, s)| State::new(n as u16, s)).collect();
    let mut steps = Vec::new();
    // Frames that are late, and how many are still to pass them.
    let mut late: Vec<(usize, Step)> = Vec::new();
    for state in states.iter_mut().filter(|state| state.sender.opens) {
        let syn = state.packet(state.sender.seq.wrapping_sub(1), 0).flags(Flags::SYN);
        steps.push(Step::Frame(syn.build().into()));
    }
    for one in moves {
        match one {
            Move::Between(step) => steps.push(step.clone()),
            Move::Other(bytes) => steps.push(Step::Frame(bytes.clone().into())),
            Move::Shuffled(who, order) => {
                let state = &mut states[who.index(senders.len())];
                let plain = Action::Data(None, Change::Nothing);
                let mut sent: Vec<_> =
                    order.iter().filter_map(|place| Some((*place, state.act(&plain)?))).collect();
                sent.sort_by_key(|(place, _)| *place);
                steps.extend(sent.into_iter().map(|(_, frame)| Step::Frame(frame)));
            }
            Move::Host(who, shift, len, flags) => {
                let state = &mut states[who.index(senders.len())];
                steps.push(Step::Host(state.host_sends(*shift, *len, *flags)));
            }
            Move::Act(who, Action::Elsewhere(len), _) => {
                let state = &mut states[who.index(senders.len())];
                let whole = state.packet(state.sender.seq, *len);
                steps.push(Step::InterruptFlow(whole.build()));
            }
            Move::Act(who, action, fate) => {
                let at = who.index(states.len());
                let Some(frame) = states[at].act(action).map(Step::Frame) else { continue };
                match fate {
                    Fate::Arrives => steps.push(frame),
                    Fate::Doubled => steps.extend([frame.clone(), frame]),
                    Fate::Late(others) => late.push((*others, frame)),
                }
            }
        }
        for (others, _) in &mut late {
            *others = others.saturating_sub(1);
        }
        steps.extend(late.extract_if(.., |(others, _)| *others == 0).map(|(_, frame)| frame));
    }
    steps.extend(late.into_iter().map(|(_, frame)| frame));
    steps.push(Step::Wait(1)); // never empty
    steps
}

fn address6(last: u8) -> [u8; 16] {
    let mut address = [0; 16];
    (address[0], address[15]) = (0xfd, last);
    address
}

/// A sender at work.
struct State {
    number: u16,
    sender: Sender,
    /// What its host sends next.
    host: u32,
    ack: u32,
    echo: u32,
    window: u16,
}

impl State {
    fn new(number: u16, sender: &Sender) -> State {
        State { number, sender: sender.clone(), host: 77, ack: 77, echo: 99, window: 501 }
    }

    fn packet(&mut self, seq: u32, len: usize) -> PacketBuilder {
        let s = &mut self.sender;
        let mut p = if s.v6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4() };
        for tci in &s.vlans {
            p = p.vlan(*tci);
        }
        for (kind, len) in &s.extensions {
            p = p.extension(*kind, *len);
        }
        if s.timestamps {
            p = p.timestamps(s.clock, self.echo);
        }
        p = p.ports(1000 + self.number, 80).seq(seq).ack(self.ack).window(self.window).id(s.id);
        s.id = s.id.wrapping_add(s.id_step);
        p.payload(&pattern(seq as usize, len))
    }

    fn host_sends(&mut self, shift: i32, len: usize, flags: Flags) -> Frame {
        let s = &self.sender;
        let mut p = match s.v6 {
            true => PacketBuilder::tcp6().addresses6(address6(2), address6(1)),
            false => PacketBuilder::tcp4().addresses4([10, 0, 0, 2], [10, 0, 0, 1]),
        };
        for tci in &s.vlans {
            p = p.vlan(*tci);
        }
        let seq = self.host.wrapping_add_signed(shift);
        let end = seq.wrapping_add(len as u32);
        if is_before(self.host, end) {
            self.host = end;
        }
        p = p.ports(80, 1000 + self.number).seq(seq).ack(s.seq).flags(flags);
        p.payload(&pattern(0, len)).build().into()
    }

    fn act(&mut self, action: &Action) -> Option<Frame> {
        let (seq, mss) = (self.sender.seq, self.sender.mss);
        Some(match action {
            Action::Data(len, change) => {
                let len = len.unwrap_or(mss);
                self.sender.seq = seq.wrapping_add(len as u32);
                self.data(seq, len, change)
            }
            Action::Lose(segments) => {
                self.sender.seq = seq.wrapping_add(u32::from(*segments) * mss as u32);
                return None;
            }
            Action::Jump(by) => {
                self.sender.seq = seq.wrapping_add_signed(*by);
                return None;
            }
            Action::Resend(back, len, same) => {
                // Of any length: it may overlap what was sent, partly or wholly, or more.
                let again = self.packet(seq.wrapping_sub(*back), *len);
                let others = pattern(1 + seq as usize, *len);
                if *same { again } else { again.payload(&others) }.build().into()
            }
            Action::Update(window) => {
                self.window = *window;
                self.packet(seq, 0).build().into()
            }
            Action::Control(flags) => self.packet(seq, 0).flags(*flags).build().into(),
            Action::Probe(true) => self.packet(seq.wrapping_sub(1), 1).payload(&[0]).build().into(),
            Action::Probe(false) => self.packet(seq, 1).build().into(),
            Action::Elsewhere(_) => return None,
            Action::Fragment => self.packet(seq, mss).fragment(0, true).build().into(),
            Action::IpOptions if self.sender.v6 => return None,
            Action::IpOptions => {
                self.sender.seq = seq.wrapping_add(mss as u32);
                self.packet(seq, mss).ip_options(&[1; 4]).build().into()
            }
        })
    }

    fn data(&mut self, seq: u32, len: usize, change: &Change) -> Frame {
        match change {
            Change::Window(window) => self.window = *window,
            Change::Ack(by) => self.ack = self.ack.wrapping_add_signed(*by),
            Change::AckSent(but) => self.ack = self.host.wrapping_sub(*but),
            Change::Clock(by) => self.sender.clock = self.sender.clock.wrapping_add_signed(*by),
            Change::Echo(echo) => self.echo = *echo,
            Change::Id(id) => self.sender.id = *id,
            _ => {}
        }
        if let Change::MinusZero = change {
            self.sender.id = self.id_for_checksum_0(seq, len);
        }
        let p = self.packet(seq, len);
        let p = match change {
            Change::NoAck => p.flags(Flags::PSH),
            Change::Flags(flags) => p.flags(Flags::ACK.with(*flags)),
            Change::Tos(tos) => p.tos(*tos),
            Change::Ttl(ttl) => p.ttl(*ttl),
            Change::MayFragment => p.dont_fragment(false),
            Change::Mac(last) => p.macs([2, 0, 0, 0, 0, *last], testkit::packet::DESTINATION_MAC),
            Change::Label(label) => p.flow_label(*label),
            Change::Urgent(urgent) => p.urgent(*urgent),
            Change::Reserved(bits) => p.reserved(*bits),
            Change::Options(options) => p.options(options),
            Change::Padding(len) => p.padding(*len),
            Change::Checksum(Sum::Wrong, _) => p.wrong_checksum(),
            Change::Checksum(Sum::WrongIp, _) => p.wrong_ip_checksum(),
            Change::Checksum(Sum::Partial, _) => p.partial_checksum(),
            _ => p,
        };
        let checksum = match change {
            Change::Checksum(_, known) => *known,
            _ => RxChecksum::Unverified,
        };
        let mut bytes = p.build();
        if let (Change::MinusZero, Some(at)) = (change, ip_checksum_at(&bytes)) {
            assert_eq!(bytes[at..at + 2], [0, 0]);
            bytes[at..at + 2].fill(0xff);
        }
        Frame { bytes, checksum }
    }

    /// It is the checksum that the header has with the ID 0.
    fn id_for_checksum_0(&mut self, seq: u32, len: usize) -> u16 {
        self.sender.id = 0;
        let bytes = self.packet(seq, len).build();
        ip_checksum_at(&bytes).map_or(0, |at| u16::from_be_bytes([bytes[at], bytes[at + 1]]))
    }
}

fn ip_checksum_at(bytes: &[u8]) -> Option<usize> {
    let packet = Tcp::read(bytes)?;
    packet.ip_checksum().map(|_| packet.link.len() + 10)
}
