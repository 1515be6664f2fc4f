//! Any segments, messages, times and calls in any order: a stack answers, keeps time, and what it freezes is
//! valid. The fuzz targets have this from here, too.

use std::net::SocketAddr;
use std::sync::Arc;

use tcp::config::{MILLISECOND, SECOND};
use tcp::trace::{Event, QUEUE_MAX};
use tcp::{
    Algorithm, Config, Ecn, FourTuple, Id, Keepalive, Nanos, Options, Segment, Snapshot, Stack,
    StackConfig, State,
};
use testkit::bytes::Bytes;
use wire::{Flags, Seq, Timestamps, icmp};

/// Two bytes.
fn two(bytes: &mut Bytes<'_>) -> u16 {
    u16::from_le_bytes(bytes.array())
}

/// Four bytes.
pub(crate) fn four(bytes: &mut Bytes<'_>) -> u32 {
    u32::from(two(bytes)) << 16 | u32::from(two(bytes))
}

/// Most that is done in one go.
const STEPS_MAX: usize = 400;

/// A stack, and what its peers have received from it.
pub(crate) struct Drive {
    stack: Stack,
    config: Arc<Config>,
    now: Nanos,
    paths: Vec<Path>,
    /// Payload that segments are cut from.
    payload: Vec<u8>,
    /// Its connections were opened by it, and not thawed from other snapshots.
    born: bool,
    /// State of the connection that is traced, by its trace.
    traced: State,
}

/// One pair of ends.
struct Path {
    tuple: FourTuple,
    id: Option<Id>,
    /// The last sequence number sent to the peer, and the last acknowledgment.
    sent: Seq,
    acked: Seq,
    timestamp: Seq,
}

fn tuple(local: &str, remote: &str) -> FourTuple {
    let end = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    FourTuple { local: end(local), remote: end(remote) }
}

pub(crate) fn config(bytes: &mut Bytes<'_>) -> Config {
    let bits = two(bytes);
    let bit = |at: u16| bits >> at & 1 == 1;
    let standard = Config::default();
    Config {
        timestamps: bit(0),
        sack: bit(1),
        window_scaling: bit(2),
        congestion: if bit(3) { Algorithm::Cubic } else { Algorithm::NewReno },
        ecn: if bit(4) { Ecn::On } else { Ecn::Passive },
        no_delay: bit(5),
        probe_mtu: bit(6),
        urgent_inline: bit(7),
        keepalive: bit(8).then_some(Keepalive { idle: SECOND, interval: SECOND, probes: 3 }),
        send_buffer: if bit(9) { 3_000 } else { 200_000 },
        receive_buffer: if bit(10) { 3_000 } else { 65_536 },
        receive_buffer_max: if bit(11) { 65_536 } else { 1 << 20 },
        user_timeout: if bit(12) { 5 * SECOND } else { 0 },
        mss: if bit(13) { 100 } else { 0 },
        mtu: if bit(14) { 9000 } else { 1500 },
        retries: if bit(15) { 3 } else { 15 },
        ..standard
    }
}

impl Drive {
    /// A stack that listens, and one connection begun by it.
    pub(crate) fn begin(bytes: &mut Bytes<'_>) -> Self {
        let mut drive = Drive { born: true, ..Drive::empty(bytes) };
        let config = Arc::clone(&drive.config);
        drive.stack.listen(None, 80, Arc::clone(&config)).expect("a free port");
        let active = tuple("10.0.0.1:4000", "10.0.0.2:80");
        let id = drive.stack.connect(active, config, drive.now).expect("a free pair of ends");
        drive.add(active, Some(id));
        drive.add(tuple("10.0.0.1:80", "10.0.0.3:5000"), None);
        drive.add(tuple("[fd00::1]:80", "[fd00::3]:5000"), None);
        drive
    }

    /// A stack without anything.
    pub(crate) fn empty(bytes: &mut Bytes<'_>) -> Self {
        let config = Arc::new(config(bytes));
        let half_open = u32::from(bytes.next() % 3);
        let mut stack = Stack::new(StackConfig { secret: [7; 16], half_open, connections: 8 });
        // The first that begins, whichever it is.
        stack.trace(Some(tuple("0.0.0.0:0", "0.0.0.0:0")));
        Drive {
            stack,
            config,
            now: u64::from(four(bytes)) << bytes.pick(&[0, 10, 28]),
            paths: Vec::new(),
            payload: (0..70_000_u32).map(|at| at as u8).collect(),
            born: false,
            traced: State::Closed,
        }
    }

    fn add(&mut self, tuple: FourTuple, id: Option<Id>) {
        let zero = Seq(0);
        self.paths.push(Path { tuple, id, sent: zero, acked: zero, timestamp: zero });
    }

    /// Thaws a snapshot, if the stack accepts it.
    pub(crate) fn thaw(&mut self, snapshot: &Snapshot) {
        let thawed = self.stack.thaw(snapshot, Arc::clone(&self.config), self.now);
        if let Ok(id) = thawed {
            let tuple = FourTuple { local: snapshot.local, remote: snapshot.remote };
            self.add(tuple, Some(id));
            let path = self.paths.last_mut().expect("it was added");
            path.sent = snapshot.send.nxt;
            path.acked = snapshot.receive.nxt;
            path.timestamp = Seq(snapshot.ts_now);
        }
    }

    /// Does what `bytes` say, until they end.
    pub(crate) fn run(&mut self, bytes: &mut Bytes<'_>) {
        self.transmit();
        for _ in 0..STEPS_MAX {
            if bytes.0.is_empty() || self.paths.is_empty() {
                break;
            }
            let which = usize::from(bytes.next()) % self.paths.len();
            match bytes.next() % 16 {
                0..=7 => self.segment(which, bytes),
                8 | 9 => self.pass_time(bytes),
                10 => self.unreachable(which, bytes),
                11 => self.freeze(which),
                _ => self.application(which, bytes),
            }
            self.events();
            self.transmit();
            self.fetch_trace();
        }
        self.end();
    }

    /// The states of the connection that is traced follow one another, whatever its peer does.
    fn fetch_trace(&mut self) {
        let mut count = 0;
        while let Some(record) = self.stack.next_trace() {
            count += 1;
            assert!(count <= QUEUE_MAX, "more than there is room for");
            if let Event::State { from, to, .. } = record.event
                && record.dropped == 0
            {
                assert_eq!(from, self.traced, "{record:?}");
                self.traced = to;
            }
        }
    }

    fn segment(&mut self, which: usize, bytes: &mut Bytes<'_>) {
        let path = &self.paths[which];
        let near = |base: Seq, bytes: &mut Bytes<'_>| match bytes.next() % 8 {
            0..=3 => base,
            4 => base + u32::from(bytes.next()),
            5 => Seq(base.0.wrapping_sub(bytes.next().into())),
            6 => base + u32::from(two(bytes)),
            _ => base + four(bytes),
        };
        // The peer's next byte is what was acknowledged last; it may acknowledge all that was sent.
        let seq = near(path.acked, bytes);
        let ack = near(path.sent, bytes);
        let flags = match bytes.next() {
            any @ 0x80.. => Flags(any),
            usual => {
                [Flags::ACK, Flags::SYN, Flags::SYN.with(Flags::ACK), Flags::ACK.with(Flags::FIN)]
                    [usize::from(usual) % 4]
            }
        };
        let options = match bytes.next() % 4 {
            0 => Options::default(),
            1 => {
                let echo = path.timestamp;
                let value = Seq((self.now / MILLISECOND) as u32);
                Options { timestamps: Some(Timestamps { value, echo }), ..Options::default() }
            }
            2 => {
                let from = near(path.sent, bytes).0.to_be_bytes();
                let to = near(path.sent, bytes).0.to_be_bytes();
                let mut sack = vec![1, 1, 5, 10];
                sack.extend(from);
                sack.extend(to);
                Options::parse(&sack)
            }
            _ => {
                let len = usize::from(bytes.next()) % 41;
                Options::parse(bytes.take(len))
            }
        };
        let len = match bytes.next() % 4 {
            0 | 1 => 0,
            2 => usize::from(bytes.next()),
            _ => usize::from(two(bytes)),
        };
        let cut = usize::from(bytes.next()).min(len);
        let pieces = [&self.payload[..cut], &self.payload[cut..len]];
        let segment = Segment {
            seq,
            ack,
            flags,
            window: bytes.pick(&[0, 1, 1_000, 65_535, u16::from(bytes.0.len() as u8)]),
            urgent: if flags.any(Flags::URG) { two(bytes) } else { 0 },
            options,
            payload: if len == 0 { &[] } else { &pieces },
            gso_size: if bytes.next() & 3 == 0 { two(bytes) } else { 0 },
            ce: bytes.next() & 7 == 0,
        };
        self.stack.receive(&path.tuple, &segment, self.now);
    }

    fn pass_time(&mut self, bytes: &mut Bytes<'_>) {
        let step = match bytes.next() % 4 {
            0 => u64::from(two(bytes)),
            1 => u64::from(bytes.next()) * MILLISECOND,
            2 => u64::from(bytes.next()) * SECOND,
            _ => self.stack.next_deadline().map_or(0, |at| at.saturating_sub(self.now)),
        };
        self.now += step;
        self.stack.on_time(self.now);
    }

    fn unreachable(&mut self, which: usize, bytes: &mut Bytes<'_>) {
        let path = &self.paths[which];
        let icmp = match bytes.next() % 3 {
            0 => icmp::Error::TooBig { mtu: two(bytes).into() },
            other => icmp::Error::Unreachable { hard: other == 1 },
        };
        let seq = path.sent + u32::from(bytes.next());
        self.stack.unreachable(&path.tuple, icmp, seq, self.now);
    }

    fn freeze(&mut self, which: usize) {
        let path = &mut self.paths[which];
        let Some(id) = path.id else { return };
        let Some(snapshot) = self.stack.freeze(id, self.now) else { return };
        assert_eq!(snapshot.validate(), Ok(()), "{}", difference(&snapshot, None));
        assert_eq!(Snapshot::decode(&snapshot.encode()).as_ref(), Ok(&snapshot));
        let thawed = self.stack.thaw(&snapshot, Arc::clone(&self.config), self.now);
        path.id = Some(thawed.expect("it was here before"));
        let second = self.stack.freeze(path.id.expect("it is there"), self.now);
        let second = second.expect("it was just thawed");
        path.id = self.stack.thaw(&second, Arc::clone(&self.config), self.now).ok();
        let third = self.stack.freeze(path.id.expect("it was there twice"), self.now);
        assert!(third.as_ref() == Some(&second), "{}", difference(&second, third.as_ref()));
        path.id = self.stack.thaw(&second, Arc::clone(&self.config), self.now).ok();
        // A snapshot from outside may have held values that make no sense, and lost them.
        if self.born {
            let mut first = snapshot;
            // A value that is not known yet is set to the one that stands for it.
            first.moment.prr_flight = first.moment.prr_flight.max(1);
            assert!(first == second, "{}", difference(&first, Some(&second)));
        }
    }

    fn application(&mut self, which: usize, bytes: &mut Bytes<'_>) {
        let path = &mut self.paths[which];
        let Some(id) = path.id else { return };
        let Some(mut socket) = self.stack.socket(id, self.now) else {
            path.id = None;
            return;
        };
        let len = usize::from(two(bytes));
        match bytes.next() % 16 {
            0..=3 => drop(socket.send(&self.payload[..len])),
            4 => drop(socket.send_urgent(&self.payload[..len.min(10)])),
            5..=7 => drop(socket.receive(&mut vec![0; len])),
            8 => {
                let there: usize = socket.readable().iter().map(|piece| piece.len()).sum();
                socket.consume(there.min(len));
            }
            9 => drop(socket.receive_urgent()),
            10 => socket.set_no_delay(len % 2 == 0),
            11 => socket.set_cork(len % 2 == 0),
            12 => socket.shutdown(),
            13 if len % 4 == 0 => socket.close(),
            14 if len % 4 == 0 => socket.abort(),
            _ => socket.set_user_timeout(len as u64 * MILLISECOND),
        }
    }

    fn events(&mut self) {
        while let Some((id, _)) = self.stack.next_event() {
            let Some(connection) = self.stack.connection(id) else { continue };
            let tuple = connection.path();
            if let Some(path) = self.paths.iter_mut().find(|path| path.tuple == tuple) {
                path.id = Some(id);
            }
        }
    }

    /// Takes all that there is to send, which must end.
    fn transmit(&mut self) {
        for _ in 0..100_000 {
            let Some(transmit) = self.stack.poll_transmit(self.now) else {
                let deadline = self.stack.next_deadline();
                if deadline.is_some_and(|at| at <= self.now) {
                    self.stack.on_time(self.now);
                }
                return;
            };
            let mut header = [0; 60];
            transmit.write_header(&mut header);
            let len = transmit.payload_len();
            assert!(transmit.gso_size == 0 || len > usize::from(transmit.gso_size));
            assert!(len < 66_000);
            let (tuple, seq, ack) = (transmit.path, transmit.seq, transmit.ack);
            let timestamps = Options::parse(transmit.options.as_slice()).timestamps;
            let taken = u32::from(transmit.flags.any(Flags::SYN))
                + u32::from(transmit.flags.any(Flags::FIN))
                + len as u32;
            let Some(path) = self.paths.iter_mut().find(|path| path.tuple == tuple) else {
                continue;
            };
            path.sent = seq + taken;
            path.acked = ack;
            path.timestamp = timestamps.map_or(path.timestamp, |timestamps| timestamps.value);
        }
        panic!("there is always more to send");
    }

    /// The peers send nothing from now on: when the applications have released their connections, none stays.
    fn end(&mut self) {
        for _ in 0..100_000 {
            self.events();
            self.close_all();
            self.transmit();
            let Some(at) = self.stack.next_deadline() else { break };
            assert!(at > self.now, "{at} is over at {}", self.now);
            self.now = at;
            self.stack.on_time(at);
        }
        assert_eq!(self.stack.len(), 0, "a connection is left, and no application holds it");
        assert_eq!(self.stack.next_deadline(), None);
    }

    /// Applications release their connections, and wait no longer than a minute for what they have sent.
    fn close_all(&mut self) {
        for path in &mut self.paths {
            let id = path.id.take();
            if let Some(mut socket) = id.and_then(|id| self.stack.socket(id, self.now)) {
                socket.set_keepalive(None);
                socket.set_user_timeout(60 * SECOND);
                socket.close();
            }
        }
    }
}

/// The lines in which two snapshots differ; all but the bytes of the queues if there is one only.
fn difference(one: &Snapshot, other: Option<&Snapshot>) -> String {
    let lines = |snapshot: &Snapshot| -> Vec<String> {
        format!("{snapshot:#?}").lines().map(str::to_owned).collect()
    };
    let byte = |line: &String| line.trim().trim_end_matches(',').parse::<u8>().is_ok();
    let others = other.map(lines).unwrap_or_default();
    let mut differing = Vec::new();
    for (at, line) in lines(one).into_iter().enumerate() {
        if others.get(at) != Some(&line) && !byte(&line) {
            differing
                .push(format!("{line}  <->  {}", others.get(at).map_or("", |line| line.trim())));
        }
    }
    differing.join("\n")
}
