//! A run: two devices and their models do the same, step by step, over streams that are cut anywhere.

use rdma::Status;
use rdma::mpa::{Config, RtrKinds};
use rdma::verbs::{Completion, Error, Event, Limits, QpConfig, Rnic, State};

use super::program;
use super::rng::Rng;
use super::side::{Cq, Names, Phase, Qp, Side};
use super::tap::{Segment, Tap};
use crate::world::{Ram, negotiate};

pub(crate) const CONNECTIONS: usize = 4;
pub(crate) const DEPTH: usize = 12;
pub(crate) const SGES: u8 = 3;
pub(crate) const INLINE: u32 = 96;

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    tap: Tap,
    /// Bytes that were written and are not done with.
    bytes: Vec<u8>,
    /// What they say.
    segments: Vec<Segment>,
    /// Bytes that are done with.
    done: u64,
    /// Bytes that the receiver has seen and holds.
    seen: usize,
    /// The writer closes.
    closed: bool,
    /// The reader is gone: what is written goes nowhere.
    is_dead: bool,
}

impl Pipe {
    fn new(markers: bool, crc: bool) -> Self {
        let tap = Tap::new(markers, crc);
        let (bytes, segments) = (Vec::new(), Vec::new());
        Self { tap, bytes, segments, done: 0, seen: 0, closed: false, is_dead: false }
    }

    /// Of what has not been seen, no more than so many bytes arrive.
    pub(crate) fn cut(&mut self, kept: usize) {
        self.bytes.truncate(self.seen + kept);
        let end = self.done + self.bytes.len() as u64;
        self.segments.retain(|segment| segment.end <= end);
    }

    /// Nobody reads it any more.
    pub(crate) fn lead_nowhere(&mut self) {
        self.is_dead = true;
        self.seen = 0;
        self.bytes.clear();
        self.segments.clear();
    }
}

/// A device and its model.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) rnic: Rnic,
    pub(crate) ram: Ram,
    pub(crate) pds: [rdma::verbs::Pd; 2],
    /// What the queue pairs are made with.
    pub(crate) configs: Vec<QpConfig>,
    pub(crate) model: Side,
    pub(crate) handles: u64,
}

pub(crate) struct Run {
    pub(crate) rng: Rng,
    pub(crate) hosts: [Host; 2],
    /// By connection, from the first host and from the second.
    pub(crate) pipes: Vec<[Pipe; 2]>,
    pub(crate) ids: u64,
    /// How seldom it does what ends a stream.
    calm: u64,
    trace: bool,
    /// How often a message was found to wait.
    waits: u64,
}

/// What a run was worth.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) messages: u64,
    pub(crate) successes: u64,
    pub(crate) errors: u64,
    pub(crate) terminates: u64,
    pub(crate) streams: u64,
    pub(crate) atomics: u64,
    /// Messages that have met no receive and waited, queue pairs destroyed, and streams that one side has lost first.
    pub(crate) waits: u64,
    pub(crate) destroyed: u64,
    pub(crate) lost: u64,
}

fn host(secret: u8, rng: &mut Rng) -> Host {
    let mut rnic = Rnic::new(Limits::default(), [secret; 16]);
    let pds = [rnic.alloc_pd().unwrap(), rnic.alloc_pd().unwrap()];
    // Now and then a queue is too short.
    let depths = [0, 1].map(|_| if rng.once_in(12) { 3 + rng.below(6) } else { 400 } as usize);
    let cqs = depths.map(|depth| rnic.create_cq(depth as u32).unwrap());
    let srq = rnic.create_srq(pds[0], DEPTH as u32, SGES).unwrap();
    // Two of them share a receive queue, which is of the first domain; all share the completion queues.
    let domains = [0, 0, 1, rng.below(2) as usize];
    let configs = (0..CONNECTIONS).map(|index| QpConfig {
        pd: pds[domains[index]],
        send_cq: cqs[0],
        receive_cq: cqs[1],
        srq: (index % 2 == 1).then_some(srq),
        sends: DEPTH as u32,
        receives: DEPTH as u32,
        send_sges: SGES,
        receive_sges: SGES,
        inline: INLINE,
        signal_all: false,
    });
    let configs: Vec<_> = configs.collect();
    let qps = configs.iter().map(|config| rnic.create_qp(*config).unwrap()).collect();
    let model = Side {
        names: Names { qps, cqs, srq },
        regions: Vec::new(),
        memory: Default::default(),
        cqs: depths.map(|depth| Cq { depth, ..Cq::default() }),
        srq: Default::default(),
        srq_limit: 0,
        qps: (0..CONNECTIONS).map(|index| Qp::fresh(domains[index], index % 2 == 1)).collect(),
        events: Vec::new(),
    };
    Host { rnic, ram: Ram::default(), pds, configs, model, handles: 0 }
}

/// RFC 5044 section 4.5, by its words.
pub(crate) fn mulpdu(emss: usize, markers: bool) -> usize {
    let markers = if markers { 4 * emss.div_ceil(512) } else { 0 };
    emss.saturating_sub(6 + markers + emss % 4).clamp(128, 64_768)
}

impl Run {
    pub(crate) fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng(seed);
        let hosts = [host(1, &mut rng), host(2, &mut rng)];
        let pipes = (0..CONNECTIONS).map(|_| [Pipe::new(false, false), Pipe::new(false, false)]);
        let pipes = pipes.collect();
        let calm = rng.pick(&[1, 10, 100]);
        let mut run = Self { rng, hosts, pipes, ids: 1, calm, trace, waits: 0 };
        for side in 0..2 {
            for domain in [0, 0, 0, 1, 1] {
                program::register(&mut run, side, Some(domain));
            }
        }
        for connection in 0..CONNECTIONS {
            run.connect(connection);
        }
        run
    }

    /// Once in so many times, or less in a run that is calm.
    pub(crate) fn fault(&mut self, times: u64) -> bool {
        self.rng.once_in(times * self.calm)
    }

    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{}", what());
        }
    }

    /// Begins a connection anew, with what both agree on.
    pub(crate) fn connect(&mut self, connection: usize) {
        let rng = &mut self.rng;
        let mut config = |revision, peer_to_peer| {
            let all = [RtrKinds::ALL, rdma::mpa::Rtr::Read.into(), rdma::mpa::Rtr::Send.into()];
            Config {
                revision,
                markers: rng.once_in(3),
                crc: rng.once_in(2),
                ird: rng.below(5) as u16,
                ord: rng.below(5) as u16,
                peer_to_peer,
                rtr: rng.pick(&all),
            }
        };
        let first = config(2, true);
        let peer_to_peer = first.rtr != RtrKinds::ALL || first.ird != 1;
        let revision = if first.ord == 3 { 1 } else { 2 };
        let (initiator, responder) = (config(revision, peer_to_peer), config(2, true));
        let responder = Config { rtr: RtrKinds::ALL, ..responder };
        let (here, there) = negotiate(initiator, responder);
        let swapped = self.rng.once_in(2);
        let order = if swapped { [1, 0] } else { [0, 1] };
        for (side, negotiated) in order.into_iter().zip([&here, &there]) {
            let emss = self.rng.pick(&[150, 200, 536, 1448, 3000]) + self.rng.below(9) as usize;
            self.make_again(side, connection);
            let waits = self.rng.once_in(2);
            let host = &mut self.hosts[side];
            let name = host.model.names.qps[connection];
            for state in [State::Reset, State::Init] {
                host.rnic.modify(name, state).unwrap();
            }
            host.rnic.start(name, negotiated, emss).unwrap();
            // Type 2 windows of the queue pair as it was go with it.
            host.model.forget(connection);
            let was = &host.model.qps[connection];
            let is_responder = negotiated.role == rdma::mpa::Role::Responder;
            host.model.qps[connection] = Qp {
                phase: Phase::Open,
                held: is_responder,
                ready: negotiated.rtr.filter(|_| !is_responder),
                awaits: negotiated.rtr.filter(|_| is_responder),
                ird: usize::from(negotiated.ird),
                ord: usize::from(negotiated.ord),
                mulpdu: mulpdu(emss, negotiated.markers_out),
                connected: true,
                ..Qp::fresh(was.pd, was.srq)
            };
            self.pipes[connection][side] = Pipe::new(negotiated.markers_out, negotiated.crc);
            if waits {
                self.let_wait(side, connection, true);
            }
        }
        self.say(|| format!("connect {connection}: {here:?} {there:?} {order:?}"));
    }

    /// The stream is over for both.
    pub(crate) fn end(&mut self, connection: usize) {
        self.say(|| format!("end {connection}"));
        for host in &mut self.hosts {
            host.rnic.stream_ended(host.model.names.qps[connection]);
            host.model.stream_ended(connection);
        }
        let [a, b] = &mut self.pipes[connection];
        for pipe in [a, b] {
            pipe.bytes.clear();
            pipe.segments.clear();
            pipe.seen = 0;
        }
    }

    /// A side writes what it has to send.
    pub(crate) fn transmit(
        &mut self,
        side: usize,
        connection: usize,
        may_stop: bool,
    ) -> Result<(), String> {
        loop {
            let host = &mut self.hosts[side];
            let name = host.model.names.qps[connection];
            let wanted = host.rnic.wants_transmit(name);
            let room = host.rnic.fpdu_len(name).max(64) + self.rng.below(4000) as usize;
            let mut buffer = vec![0xee; room];
            let sent = host.rnic.transmit(name, &mut buffer, &mut host.ram);
            if host.model.qps[connection].phase == Phase::Gone {
                return if sent.is_err() { Ok(()) } else { Err("what is gone sends".to_owned()) };
            }
            let sent = sent.unwrap();
            if self.trace {
                println!("{side}.{connection} wanted {wanted}, {sent:?}");
            }
            let pipe = &mut self.pipes[connection][side];
            let segments = pipe.tap.read(&buffer[..sent.len])?;
            if !wanted && sent.len > 0 {
                return Err("it sends, but did not want to".to_owned());
            }
            pipe.bytes.extend_from_slice(&buffer[..sent.len]);
            for segment in &segments {
                if self.trace {
                    let Segment { opcode, last, to, payload, end } = segment;
                    println!(
                        "{side}.{connection} > {opcode:x} {last} {to:x?} {} .{end}",
                        payload.len()
                    );
                }
                host.model.wrote(connection, segment)?;
            }
            pipe.segments.extend(segments);
            if pipe.is_dead {
                pipe.lead_nowhere();
            }
            let model = &mut host.model;
            let found = host.rnic.state(name) == Ok(State::Sqe) && !model.is_failing(connection);
            if found && !model.qps[connection].overrun {
                // It has found something that ends the stream, and has had no room to say it.
                model.find_failure(connection);
            } else if sent.more {
                model.stopped(connection);
            } else {
                model.is_quiet(connection)?;
            }
            model.check_overrun(connection);
            let phase = model.qps[connection].phase;
            let drained = phase == Phase::Closing && model.is_drained(connection);
            let of = &mut model.qps[connection];
            of.closed |= drained;
            let is_last = of.connected && (of.closed || phase == Phase::Over);
            if sent.close.is_some() != is_last {
                return Err(format!("close: {:?} in {phase:?}", sent.close));
            }
            pipe.closed |= sent.close.is_some();
            self.compare(side, connection)?;
            let host = &self.hosts[side];
            if !sent.more {
                let failing = matches!(host.model.qps[connection].phase, Phase::Failing(_));
                if host.rnic.wants_transmit(name) != failing {
                    return Err("it wants to send, and does not".to_owned());
                }
                if !failing {
                    return Ok(());
                }
                continue;
            }
            if may_stop && self.rng.once_in(3) {
                return Ok(());
            }
        }
    }

    /// Some bytes arrive, in some slices.
    pub(crate) fn deliver(
        &mut self,
        side: usize,
        connection: usize,
        count: usize,
    ) -> Result<(), String> {
        let pipe = &mut self.pipes[connection][1 - side];
        let host = &mut self.hosts[side];
        let name = host.model.names.qps[connection];
        pipe.seen = (pipe.seen + count).min(pipe.bytes.len());
        let size = 1 + self.rng.below(if self.rng.0 & 1 == 0 { 3000 } else { 40 }) as usize;
        let mut slices: Vec<&[u8]> = Vec::new();
        let mut rest = &pipe.bytes[..pipe.seen];
        while !rest.is_empty() {
            let now = if slices.len() < 60 { size.min(rest.len()) } else { rest.len() };
            let (slice, more) = rest.split_at(now);
            slices.push(slice);
            rest = more;
        }
        let done = host.rnic.receive(name, &slices, &mut host.ram);
        if host.model.qps[connection].phase == Phase::Gone {
            pipe.lead_nowhere();
            return if done.is_err() { Ok(()) } else { Err("what is gone receives".to_owned()) };
        }
        let done = done.unwrap();
        let end = pipe.done + pipe.seen as u64;
        let whole = pipe.segments.iter().take_while(|segment| segment.end <= end).count();
        // Where the first FPDU begins that is not done with.
        let (mut taken, mut until) = (0, pipe.done);
        host.model.look_for_receives(connection)?;
        for segment in &pipe.segments[..whole] {
            if !host.model.got(connection, segment)? {
                break;
            }
            (taken, until) = (taken + 1, segment.end);
        }
        host.model.check_overrun(connection);
        let of = &mut host.model.qps[connection];
        if !matches!(of.phase, Phase::Open | Phase::Closing) {
            // After an error all is done with, and nothing waits.
            (taken, until) = (whole, end);
        }
        self.waits += u64::from(!of.parked.is_empty());
        if pipe.done + done as u64 != until {
            return Err(format!("{done} bytes are done with, not {}", until - pipe.done));
        }
        pipe.segments.drain(..taken);
        pipe.done += done as u64;
        pipe.seen -= done;
        pipe.bytes.drain(..done);
        if self.trace {
            println!("{side}.{connection} < {done} bytes, {taken} of {whole} segments");
        }
        self.compare(side, connection)
    }

    /// Whether a side puts markers into what it sends.
    pub(crate) fn markers_out(&self, side: usize, connection: usize) -> bool {
        self.pipes[connection][side].tap.markers
    }

    /// Bytes on their way to a side.
    pub(crate) fn waiting(&self, side: usize, connection: usize) -> usize {
        let pipe = &self.pipes[connection][1 - side];
        pipe.bytes.len() - pipe.seen
    }

    /// Messages on their way to a side that take a receive.
    pub(crate) fn messages_to(&self, side: usize, connection: usize) -> usize {
        let segments = &self.pipes[connection][1 - side].segments;
        let parked = &self.hosts[side].model.qps[connection].parked;
        parked
            .iter()
            .chain(segments)
            .filter(|segment| segment.last && matches!(segment.opcode, 3..=6 | 8 | 9))
            .count()
    }

    /// Nobody sends any more.
    pub(crate) fn is_over(&self, connection: usize) -> bool {
        let over =
            |host: &Host| matches!(host.model.qps[connection].phase, Phase::Over | Phase::Gone);
        self.hosts.iter().all(over)
    }

    /// Both have said that they close, and all has arrived.
    pub(crate) fn is_closed(&self, connection: usize) -> bool {
        let over = |side: usize| {
            let of = &self.hosts[side].model.qps[connection];
            !of.connected || self.pipes[connection][side].closed
        };
        over(0) && over(1)
    }

    /// States, queues, events and memory are those of the model.
    pub(crate) fn compare(&mut self, side: usize, connection: usize) -> Result<(), String> {
        let host = &mut self.hosts[side];
        let state = host.rnic.state(host.model.names.qps[connection]);
        let expected = match host.model.qps[connection].phase {
            Phase::Open => Ok(State::Rts),
            Phase::Closing => Ok(State::Sqd),
            Phase::Failing(_) => Ok(State::Sqe),
            Phase::Over => Ok(State::Err),
            Phase::Gone => Err(Error::Invalid),
        };
        if state != expected {
            return Err(format!("{side}.{connection} is in {state:?}, not {expected:?}"));
        }
        let waiting = !host.model.qps[connection].parked.is_empty();
        if host.rnic.is_waiting(host.model.names.qps[connection]) != waiting {
            return Err(format!("{side}.{connection}: waiting should be {waiting}"));
        }
        for (cq, name) in host.model.cqs.iter().zip(host.model.names.cqs) {
            let (is, should) = (host.rnic.cq_len(name), cq.entries.len());
            if is != should {
                return Err(format!("{side}: {is} completions, not {should}: {:?}", cq.entries));
            }
        }
        if host.rnic.srq_len(host.model.names.srq) as usize != host.model.srq.len() {
            return Err("receives of the shared queue".to_owned());
        }
        let mut events = Vec::new();
        while let Some(event) = host.rnic.poll_event() {
            events.push(format!("{event:?}"));
        }
        let mut expected: Vec<_> =
            host.model.events.drain(..).map(|event: Event| format!("{event:?}")).collect();
        events.sort();
        expected.sort();
        if events != expected {
            return Err(format!("{side}: events {events:?}, not {expected:?}"));
        }
        if host.ram.buffers != host.model.memory {
            let differs =
                host.ram.buffers.iter().find(|(at, of)| host.model.memory.get(at) != Some(of));
            return Err(format!("{side}: memory {:?} is another", differs.map(|(at, _)| at)));
        }
        Ok(())
    }

    /// Takes completions of both.
    pub(crate) fn poll(&mut self, side: usize, which: usize, count: usize) -> Result<(), String> {
        let host = &mut self.hosts[side];
        let mut taken = vec![Completion::default(); count];
        let got = host.rnic.poll_cq(host.model.names.cqs[which], &mut taken).unwrap();
        let model = &mut host.model.cqs[which].entries;
        let expected: Vec<_> = model.drain(..count.min(model.len())).collect();
        // What else a failure says is not promised.
        let plain = |of: &Completion| match of.status {
            Status::Success => *of,
            status => Completion { wr_id: of.wr_id, qp: of.qp, status, ..Completion::default() },
        };
        let taken: Vec<_> = taken[..got].iter().map(plain).collect();
        let expected: Vec<_> = expected.iter().map(plain).collect();
        if taken != expected {
            return Err(format!("{side}: completions {taken:?}, not {expected:?}"));
        }
        Ok(())
    }

    /// Runs a program of so many steps, then lets all come to rest.
    pub(crate) fn run(mut self, steps: u64) -> Result<Report, String> {
        let mut report = Report { streams: CONNECTIONS as u64, ..Report::default() };
        for step in 0..steps {
            let result = program::step(&mut self, &mut report);
            result.map_err(|law| format!("step {step}: {law}"))?;
        }
        for _ in 0..60 {
            for connection in 0..CONNECTIONS {
                for side in 0..2 {
                    self.serve(side, connection)?;
                    self.transmit(side, connection, false)?;
                    self.deliver(1 - side, connection, usize::MAX / 2)?;
                }
            }
        }
        for connection in 0..CONNECTIONS {
            for side in 0..2 {
                let is_waiting = !self.hosts[side].model.qps[connection].parked.is_empty();
                let left = self.pipes[connection][1 - side].segments.len();
                if self.waiting(side, connection) > 0 || is_waiting || left > 0 {
                    return Err("it does not come to rest".to_owned());
                }
            }
        }
        for side in 0..2 {
            for which in 0..2 {
                self.poll(side, which, 800)?;
            }
            let counters = self.hosts[side].rnic.counters();
            report.messages += counters.messages_in;
            report.terminates += counters.terminates_out;
            report.atomics += counters.atomics;
        }
        report.waits += self.waits;
        Ok(report)
    }
}
