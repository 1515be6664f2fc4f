//! Two stacks on a path that loses chosen packets, and the packets on the wire of the first one.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use tcp::trace::{Header, Record};
use tcp::{Config, Events, FourTuple, Id, Nanos, Options, Segment, Stack, StackConfig, Transmit};
use wire::Tcp;

pub(crate) const MILLISECOND: Nanos = 1_000_000;
const DELAY: Nanos = 10 * MILLISECOND;
pub(crate) const PORT: u16 = 80;

pub(crate) fn path(port: u16) -> FourTuple {
    let local: SocketAddr = ([192, 0, 2, 1], port).into();
    FourTuple { local, remote: ([192, 0, 2, 2], PORT).into() }
}

pub(crate) fn reversed(path: FourTuple) -> FourTuple {
    FourTuple { local: path.remote, remote: path.local }
}

pub(crate) fn stack(secret: u8) -> Stack {
    Stack::new(StackConfig { secret: [secret; 16], half_open: 16, connections: 16 })
}

pub(crate) fn config() -> Arc<Config> {
    Arc::new(Config { burst: 8 << 10, time_wait: 50 * MILLISECOND, ..Config::default() })
}

/// A packet that went out or came, as the wire shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Out(FourTuple, Header),
    In(FourTuple, Header),
}

struct Packet {
    at: Nanos,
    to: usize,
    path: FourTuple,
    header: Vec<u8>,
    payload: Vec<u8>,
    gso_size: u16,
}

/// See the module's documentation. The first stack is the client, and is the one that is
/// traced unless another is.
pub(crate) struct Lab {
    pub(crate) stacks: [Stack; 2],
    pub(crate) now: Nanos,
    packets: VecDeque<Packet>,
    /// Which of the packets are lost, in their order; those behind are not.
    lost: Vec<bool>,
    sent: usize,
    /// What the wire saw of the first stack, with the time.
    pub(crate) seen: Vec<(Nanos, Seen)>,
    pub(crate) records: Vec<Record>,
    /// The stack whose records are fetched.
    pub(crate) traced: usize,
}

impl Lab {
    pub(crate) fn new(lost: Vec<bool>) -> Self {
        let mut stacks = [stack(1), stack(2)];
        stacks[1].listen(None, PORT, config()).unwrap();
        let (packets, seen, records) = (VecDeque::new(), Vec::new(), Vec::new());
        Lab { stacks, now: 0, packets, lost, sent: 0, seen, records, traced: 0 }
    }

    pub(crate) fn connect(&mut self, port: u16) -> Id {
        self.stacks[0].connect(path(port), config(), self.now).unwrap()
    }

    /// Sends `len` bytes on each of the connections, which are closed then, and goes on until nothing is
    /// left of them.
    pub(crate) fn transfer(&mut self, clients: &[Id], len: usize) {
        let mut left: Vec<(Id, usize)> = clients.iter().map(|&id| (id, len)).collect();
        let data = vec![7; 32 << 10];
        loop {
            while self.stacks[0].next_event().is_some() {}
            for (id, left) in &mut left {
                if let Some(mut socket) = self.stacks[0].socket(*id, self.now)
                    && socket.state().is_synchronized()
                    && *left > 0
                {
                    *left -= socket.send(&data[..data.len().min(*left)]).unwrap_or(*left);
                    if *left == 0 {
                        socket.close();
                    }
                }
            }
            while let Some((id, events)) = self.stacks[1].next_event() {
                let Some(mut socket) = self.stacks[1].socket(id, self.now) else { continue };
                let mut buffer = [0; 64 << 10];
                while let Ok(1..) = socket.receive(&mut buffer) {}
                if events.any(Events::READABLE) && socket.is_at_end() {
                    socket.close();
                }
            }
            self.fetch();
            if !self.step() {
                return;
            }
        }
    }

    /// What is to be sent is, and the time goes on to what happens next; `false` if nothing does.
    fn step(&mut self) -> bool {
        self.carry(0);
        self.carry(1);
        let deadlines = self.stacks.iter().filter_map(Stack::next_deadline);
        let arrival = self.packets.front().map(|packet| packet.at);
        let Some(next) = deadlines.chain(arrival).min() else { return false };
        // Memory that the stacks keep for a while is no reason to go on.
        if self.stacks.iter().all(Stack::is_empty) && self.packets.is_empty() {
            return false;
        }
        self.now = self.now.max(next);
        self.stacks.iter_mut().for_each(|stack| stack.on_time(self.now));
        while self.packets.front().is_some_and(|packet| packet.at <= self.now)
            && let Some(packet) = self.packets.pop_front()
        {
            let payload = [&packet.payload[..]];
            let tcp = Tcp::new(&packet.header[..]).unwrap();
            let plain = Segment::new(&tcp, &payload);
            let segment = Segment { gso_size: packet.gso_size, ..plain };
            if packet.to == 0 {
                let header = wire_header(&packet.header, packet.payload.len(), packet.gso_size);
                self.seen.push((self.now, Seen::In(packet.path, header)));
            }
            self.stacks[packet.to].receive(&packet.path, &segment, self.now);
        }
        self.fetch();
        true
    }

    fn carry(&mut self, from: usize) {
        while let Some(transmit) = self.stacks[from].poll_transmit(self.now) {
            let packet = on_the_wire(&transmit, 1 - from, self.now);
            if from == 0 {
                let header = wire_header(&packet.header, packet.payload.len(), packet.gso_size);
                self.seen.push((self.now, Seen::Out(transmit.path, header)));
            }
            let lost = self.lost.get(self.sent).copied().unwrap_or(false);
            self.sent += 1;
            if !lost {
                self.packets.push_back(packet);
            }
        }
        self.fetch();
    }

    pub(crate) fn fetch(&mut self) {
        let stack = &mut self.stacks[self.traced];
        self.records.extend(std::iter::from_fn(|| stack.next_trace()));
    }
}

fn on_the_wire(transmit: &Transmit<'_>, to: usize, now: Nanos) -> Packet {
    let mut header = vec![0; transmit.header_len()];
    transmit.write_header(&mut header);
    let payload = transmit.payload.concat();
    let path = reversed(transmit.path);
    Packet { at: now + DELAY, to, path, header, payload, gso_size: transmit.gso_size }
}

/// From the bytes, and not by what the trace is made with.
fn wire_header(bytes: &[u8], len: usize, gso_size: u16) -> Header {
    let tcp = Tcp::new(bytes).unwrap();
    Header {
        seq: tcp.seq(),
        ack: tcp.ack(),
        flags: tcp.flags(),
        window: tcp.window(),
        len: len as u32,
        gso_size,
        options: Options::parse(tcp.option_bytes()),
    }
}
