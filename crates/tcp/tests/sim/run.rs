//! One run: two sides, the network between them, and the laws.

use std::collections::VecDeque;

use degen::{Degen, Heap, Random};
use tcp::{Nanos, Reason, State};
use wire::{Flags, Seq, icmp};

use super::app::Phase;
use super::attack;
use super::frame::{self, Arrival, ip_len};
use super::host::Host;
use super::plan::{Dice, Opening, Plan};
use super::trace::Trace;
use super::watch::Watch;

const SECOND: Nanos = 1_000_000_000;

/// How a run went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// All bytes are where they belong, and both ends are closed.
    Complete,
    /// An application has ended it before.
    Abrupt,
    /// An end has given up, and the network was bad enough for that.
    GaveUp,
}

/// A packet on the wire, and when it was sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) at: Nanos,
    pub(crate) side: usize,
    pub(crate) frame: Vec<u8>,
}

/// What is known of a run that is over.
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) frozen: u32,
    /// The packets, if they were to be kept.
    pub(crate) wire: Vec<Sent>,
}

/// An ICMP message on its way.
struct Message {
    due: Nanos,
    to: usize,
    icmp: icmp::Error,
    seq: Seq,
}

pub(crate) struct Run<'a> {
    plan: &'a Plan,
    now: Nanos,
    hosts: [Host; 2],
    watches: [Watch; 2],
    ways: [Degen<Vec<u8>>; 2],
    messages: VecDeque<Message>,
    /// What an attacker is about to send to each side.
    forged: [Option<Arrival>; 2],
    /// Packets that have come to each side.
    came: [u64; 2],
    dice: Dice,
    /// Everything that happens when the network or an application moves on.
    progress: (u64, Nanos, u64),
    steps: u64,
    trace: Trace,
    keep: bool,
    wire: Vec<Sent>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(plan: &'a Plan, trace: Trace) -> Self {
        let way = |number: usize| {
            let seed = Random::stream(plan.seed, 40 + number as u64).next();
            Degen::new(plan.ways[number].clone(), seed)
        };
        Run {
            plan,
            now: 0,
            hosts: [Host::new(plan, 0), Host::new(plan, 1)],
            watches: [Watch::default(), Watch::default()],
            ways: [way(0), way(1)],
            messages: VecDeque::new(),
            forged: [None, None],
            came: [0; 2],
            dice: Dice::new(plan.seed, 50),
            progress: (0, 0, 0),
            steps: 0,
            trace,
            keep: false,
            wire: Vec::new(),
        }
    }

    /// Keeps all packets until one of the connection's ends is gone.
    pub(crate) fn keeping(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// The law that does not hold, and where it was broken.
    pub(crate) fn run(mut self) -> Result<Report, String> {
        let result = self.run_to_end();
        let words = [self.hosts[0].words(), self.hosts[1].words()].join("\n  ");
        let outcome = result.map_err(|law| {
            format!("{law}\n  at {} ns, step {}\n  {words}", self.now, self.steps)
        })?;
        Ok(Report {
            outcome,
            packets: self.watches.iter().map(|watch| watch.packets).sum(),
            bytes: self.hosts.iter().map(|host| host.app.reading.place).sum(),
            frozen: self.hosts.iter().map(|host| host.frozen).sum(),
            wire: self.wire,
        })
    }

    fn run_to_end(&mut self) -> Result<Outcome, String> {
        // The listener first, so that no connection is refused.
        self.hosts[1].open(0);
        self.hosts[0].open(0);
        loop {
            for side in 0..2 {
                self.work(side)?;
                self.hosts[side].keeps_its_bound()?;
            }
            self.look_for_progress()?;
            let hosts = self.hosts.iter().filter_map(Host::next_time);
            let ways = self.ways.iter().filter_map(Degen::next_deadline);
            let messages = self.messages.iter().map(|message| message.due);
            let Some(next) = hosts.chain(ways.map(|at| self.interrupt(at))).chain(messages).min()
            else {
                if self.waiting_side_gives_up() {
                    continue;
                }
                return self.finish();
            };
            self.now = self.now.max(next);
            self.steps += 1;
            self.deliver_messages();
            for side in 0..2 {
                self.deliver(side)?;
            }
        }
    }

    /// When a packet that comes at `at` is seen.
    fn interrupt(&self, at: Nanos) -> Nanos {
        match self.plan.interrupts {
            0 => at,
            every => at.next_multiple_of(every),
        }
    }

    fn deliver_messages(&mut self) {
        let now = self.now;
        while let Some(at) = self.messages.iter().position(|message| message.due <= now)
            && let Some(message) = self.messages.remove(at)
        {
            self.trace.message(now, message.to, &message.icmp, message.seq);
            let host = &mut self.hosts[message.to];
            if let icmp::Error::TooBig { mtu } = message.icmp
                && !host.is_at_rest()
            {
                self.watches[message.to].reported_mtu(mtu as u16, message.seq);
            }
            host.unreachable(message.icmp, message.seq, now);
        }
    }

    /// What has come out of the network to `side`.
    fn deliver(&mut self, side: usize) -> Result<(), String> {
        let (mut packets, before) = (Vec::new(), self.came[side]);
        if self.interrupt(self.now) != self.now {
            return Ok(());
        }
        while let Some(departure) = self.ways[1 - side].depart(self.now, &mut Heap) {
            let Some(packet) = Arrival::parse(departure.packet) else {
                self.trace.broken(self.now, side);
                continue;
            };
            self.trace.comes(self.now, side, &packet);
            packets.push(packet);
        }
        if !self.hosts[side].is_at_rest() {
            let [zero, one] = &mut self.watches;
            let (watch, peer) = if side == 0 { (zero, one) } else { (one, zero) };
            packets.iter().for_each(|packet| watch.receives(packet, peer));
            self.hosts[side].receive(&packets, self.plan.merge, self.now);
        }
        self.came[side] += packets.len() as u64;
        // Right now, before anything is answered.
        let came = before + 1..=self.came[side];
        let freezes = self.plan.freezes.iter();
        for freeze in freezes.filter(|freeze| freeze.side == side && came.contains(&freeze.packet))
        {
            if self.hosts[side].freeze(freeze, self.now)? {
                self.trace.froze(self.now, side, freeze);
            }
        }
        Ok(())
    }

    fn work(&mut self, side: usize) -> Result<(), String> {
        let [zero, one] = &mut self.hosts;
        let (host, peer) = if side == 0 { (zero, one) } else { (one, zero) };
        let mut frames = Vec::new();
        host.work(&peer.app.stream, self.now, |transmit| {
            frame::write(transmit, |frame| frames.push(frame));
        })?;
        for frame in frames {
            self.send(side, frame)?;
        }
        self.look_at_congestion_window(side)?;
        // Segments after an end may belong to no connection: a SYN that was doubled long ago, or forged.
        let over = |host: &Host| {
            let waits = host.info().is_none_or(|info| info.state == State::TimeWait);
            host.app.phase == Phase::Over && waits && !host.is_at_rest()
        };
        self.keep &= !self.hosts.iter().any(over);
        // What was forged after the last packet comes before anything else has happened.
        if self.attack(side) { self.work(side) } else { Ok(()) }
    }

    /// A side that sends something new keeps to the congestion window, by a probe or what limited transmit
    /// allows for (RFC 5681 section 3.2, step 2).
    fn look_at_congestion_window(&mut self, side: usize) -> Result<(), String> {
        if !std::mem::take(&mut self.watches[side].sent_new) {
            return Ok(());
        }
        let Some(info) = self.hosts[side].info() else { return Ok(()) };
        let most = info.snd_cwnd.saturating_add(2 * u32::from(info.snd_mss));
        if info.in_flight > most {
            return Err(format!("side {side} has {} bytes in flight", info.in_flight));
        }
        Ok(())
    }

    fn send(&mut self, side: usize, frame: Vec<u8>) -> Result<(), String> {
        let Some(packet) = Arrival::parse(frame.clone()) else {
            return Err(format!("side {side} sends what is no packet: {frame:02x?}"));
        };
        self.trace.leaves(self.now, side, &packet);
        let [zero, one] = &mut self.watches;
        let (watch, peer) = if side == 0 { (zero, one) } else { (one, zero) };
        let limits = self.hosts[side].limits();
        watch
            .sends(&packet, &frame, peer, limits)
            .map_err(|law| format!("side {side} sends {law}"))?;
        if self.keep {
            self.wire.push(Sent { at: self.now, side, frame: frame.clone() });
        }
        self.forge(side, &packet);
        let mtu = self.mtu();
        if ip_len(&frame) > usize::from(mtu) {
            self.too_big(side, &packet, mtu);
            return Ok(());
        }
        self.ways[side].arrive(frame, self.now, &mut Heap);
        Ok(())
    }

    /// MTU of the router at this time.
    fn mtu(&self) -> u16 {
        let step = self.plan.mtus.iter().rfind(|(from, _)| *from <= self.now);
        step.map_or(9000, |(_, mtu)| *mtu)
    }

    /// The router drops the packet, and sends a message unless it is a black hole.
    fn too_big(&mut self, side: usize, packet: &Arrival, mtu: u16) {
        self.trace.drops(self.now, side, mtu);
        if self.plan.black_hole || packet.tcp().flags().any(Flags::RST) {
            return;
        }
        let due = self.now + self.plan.ways[side].delay;
        let (icmp, seq) = (icmp::Error::TooBig { mtu: mtu.into() }, packet.tcp().seq());
        self.messages.push_back(Message { due, to: side, icmp, seq });
    }

    /// What an attacker who sees nothing sends (RFC 5927 section 4): messages of packets that were
    /// not sent; and a router's that mean nothing in the long run.
    fn forge(&mut self, side: usize, packet: &Arrival) {
        if self.plan.forged == 0 || !self.dice.once_in(self.plan.forged) {
            return;
        }
        let opened = !packet.tcp().flags().any(Flags::SYN.with(Flags::RST));
        if opened && packet.tcp().flags().any(Flags::ACK) {
            self.forged[side] = attack::segment(packet, &mut self.dice);
        }
        let due = self.now + self.plan.ways[side].delay;
        let seq = packet.tcp().seq();
        let far = seq + (1 << 30);
        let established = self.hosts[side].app.phase == Phase::Open;
        let (icmp, seq) = match self.dice.below(4) {
            0 => (icmp::Error::Unreachable { hard: true }, far),
            1 if established => (icmp::Error::Unreachable { hard: true }, seq),
            _ => (icmp::Error::Unreachable { hard: false }, seq),
        };
        self.messages.push_back(Message { due, to: side, icmp, seq });
    }

    fn attack(&mut self, side: usize) -> bool {
        let forged = self.forged[side].take().filter(|_| !self.hosts[side].is_at_rest());
        if let Some(packet) = &forged {
            self.trace.comes(self.now, side, packet);
            self.hosts[side].receive(std::slice::from_ref(packet), false, self.now);
        }
        forged.is_some()
    }

    /// Something must go on as long as there is something to do.
    fn look_for_progress(&mut self) -> Result<(), String> {
        let side = |host: &Host| {
            let app = &host.app;
            let phase = match app.phase {
                Phase::Opening => 0,
                Phase::Open => 1,
                Phase::Over => 2,
            };
            app.stream.sent + app.reading.place + phase + u64::from(app.reading.eof)
        };
        let done = self.hosts.iter().map(side).sum();
        let (before, since, step) = self.progress;
        if done != before {
            self.progress = (done, self.now, self.steps);
            return Ok(());
        }
        let over = self.hosts.iter().all(|host| host.app.phase == Phase::Over);
        let bound = if over { self.patience() + 600 * SECOND } else { self.patience() };
        if self.steps - step > 20_000 {
            return Err("20,000 steps without progress".to_owned());
        }
        if self.now - since <= bound {
            return Ok(());
        }
        if self.waiting_side_gives_up() {
            return Ok(());
        }
        Err(format!("no progress for {} s", (self.now - since) / SECOND))
    }

    /// A side that waits for one that is gone, and has nothing to send, waits for ever (RFC 9293 section
    /// 3.8.4), or as long as its application does.
    fn waiting_side_gives_up(&mut self) -> bool {
        let over = |host: &Host| host.app.phase == Phase::Over;
        let gone = |host: &Host| {
            over(host) && (host.app.abrupt || host.app.end.is_some() || host.stack.is_empty())
        };
        // A listener that never got the third segment of the handshake: its SYN-ACKs have run out, and it has
        // no connection any more.
        let never_let_in = |host: &Host| {
            host.app.phase == Phase::Opening
                && host.stack.is_empty()
                && host.stack.counters().failures > 0
        };
        let gone = |host: &Host| gone(host) || never_let_in(host);
        let mut sides = 0..2;
        let waiting = sides.find(|side| !over(&self.hosts[*side]) && gone(&self.hosts[1 - side]));
        if let Some(side) = waiting {
            self.trace.gives_up(self.now, side);
            self.hosts[side].give_up(self.now);
        }
        waiting.is_some()
    }

    /// How long nothing may happen.
    fn patience(&self) -> Nanos {
        let largest_rto = self.plan.sides.iter().map(|side| side.config.max_rto).max();
        let round_trip: Nanos = self.plan.ways.iter().map(|way| way.delay + 40 * way.jitter).sum();
        let rests = self.plan.longest_rest() + round_trip * 4;
        match (self.plan.loses(), largest_rto) {
            (true, Some(rto)) => rests + 40 * rto + 20 * SECOND,
            _ => rests + 10 * SECOND,
        }
    }

    /// Nothing is left to be done.
    fn finish(&mut self) -> Result<Outcome, String> {
        for (side, host) in self.hosts.iter().enumerate() {
            if !host.stack.is_empty() {
                return Err(format!("nothing is to be done, and side {side} has connections"));
            }
        }
        let plan = self.plan;
        let ends = self.hosts.iter().map(|host| host.app.end);
        let errors: Vec<Reason> =
            ends.flatten().filter(|reason| *reason != Reason::Closed).collect();
        let whole = (0..2).all(|side| {
            let reading = &self.hosts[side].app.reading;
            reading.eof && reading.place == plan.sides[1 - side].total
        });
        if plan.is_orderly() {
            if whole && errors.is_empty() {
                return Ok(Outcome::Complete);
            }
            // The end of a connection that its application has released makes no event.
            let alone = self.hosts.iter().any(|host| host.stack.counters().failures > 0);
            let given_up = (alone || errors.contains(&Reason::TimedOut)) && plan.loss() >= 100;
            // A cookie is only accepted with the very first byte.
            let cookies = plan.opening == Opening::Cookies && errors.contains(&Reason::Reset);
            // A client that was never accepted may be reset so late.
            let outside = !self.hosts[1].app.was_open && plan.loses();
            return if given_up || cookies && plan.loses() || outside {
                Ok(Outcome::GaveUp)
            } else {
                Err(format!("all is over, and not all bytes have come: {errors:?}"))
            };
        }
        let explained = |reason: &Reason| match reason {
            Reason::Closed | Reason::Reset | Reason::Aborted => true,
            Reason::TimedOut => plan.loses(),
            // By a peer that had opened at the same time and closed at once.
            Reason::Refused => plan.opening == Opening::Simultaneous,
            Reason::Unreachable | Reason::Frozen => false,
        };
        match errors.iter().find(|reason| !explained(reason)) {
            Some(reason) => Err(format!("nothing explains {reason:?}")),
            None => Ok(Outcome::Abrupt),
        }
    }
}
