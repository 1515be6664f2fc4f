//! A kernel that receives with a small buffer, behind a path with a delay: the engine has as many bytes
//! in flight as the kernel's own TCP has.

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tcp::{Config, FourTuple, Id, Nanos, Segment, Stack, StackConfig};
use wire::Seq;

use super::PATIENCE;
use super::frame::{self, Arrival};
use super::lab::{Host, read, write};

/// One way.
const DELAY: Duration = Duration::from_millis(5);
const BYTES: usize = 60_000;
/// A window of one and a half segments or so.
const RECEIVE_MEMORY: &str = "4096 4096 6000";

/// Who sends.
enum Sender {
    Kernel { host: Host, socket: Option<TcpStream> },
    Engine { stack: Box<Stack>, id: Id, since: Instant },
}

impl Sender {
    fn engine(path: FourTuple) -> Sender {
        let mut stack = Stack::new(StackConfig { secret: [7; 16], half_open: 1, connections: 1 });
        let id = stack.connect(path, Arc::new(Config::default()), 0).unwrap();
        Sender::Engine { stack: Box::new(stack), id, since: Instant::now() }
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        match self {
            Sender::Kernel { socket, .. } => {
                socket.as_ref().map_or(0, |socket| write(socket, bytes))
            }
            Sender::Engine { stack, id, since } => {
                stack.socket(*id, clock(*since)).unwrap().send(bytes).unwrap()
            }
        }
    }

    fn give(&mut self, frame: &[u8]) {
        match self {
            Sender::Kernel { host, .. } => host.give(frame),
            Sender::Engine { stack, since, .. } => {
                let Some(arrival) = Arrival::parse(frame.to_vec()) else { return };
                let pieces = [arrival.payload()];
                let pieces = if pieces[0].is_empty() { &[][..] } else { &pieces[..] };
                let segment = Segment::new(&arrival.tcp(), pieces);
                stack.receive(&arrival.path, &segment, clock(*since));
            }
        }
    }

    fn frames(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        match self {
            Sender::Kernel { host, .. } => frames.extend(std::iter::from_fn(|| host.next())),
            Sender::Engine { stack, since, .. } => {
                let now = clock(*since);
                stack.on_time(now);
                while let Some(transmit) = stack.poll_transmit(now) {
                    frame::write(&transmit, |frame| frames.push(frame));
                }
                while stack.next_event().is_some() {}
            }
        }
        frames
    }
}

fn clock(since: Instant) -> Nanos {
    since.elapsed().as_nanos() as Nanos
}

/// Frames, and when they arrive.
#[derive(Default)]
struct Way(VecDeque<(Instant, Vec<u8>)>);

impl Way {
    fn put(&mut self, frame: Vec<u8>) {
        self.0.push_back((Instant::now() + DELAY, frame));
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        self.0.pop_front_if(|(due, _)| *due <= Instant::now()).map(|(_, frame)| frame)
    }
}

/// The path, and what it has seen.
#[derive(Default)]
struct Path {
    out: Way,
    back: Way,
    sent: Option<Seq>,
    acked: Option<Seq>,
    /// What was in flight before each acknowledgment that moved it on.
    in_flight: Vec<u32>,
    /// The longest segment.
    longest: u32,
}

impl Path {
    fn carry(&mut self, sender: &mut Sender, far: &Host) {
        for frame in sender.frames() {
            if let Some(arrival) = Arrival::parse(frame.clone()) {
                let len = arrival.payload().len() as u32;
                self.longest = self.longest.max(len);
                let end = arrival.tcp().seq() + len;
                if self.sent.is_none_or(|sent| end.after(sent)) {
                    self.sent = Some(end);
                }
            }
            self.out.put(frame);
        }
        while let Some(frame) = self.out.take() {
            far.give(&frame);
        }
        while let Some(frame) = far.next() {
            self.back.put(frame);
        }
        while let Some(frame) = self.back.take() {
            if let Some(arrival) = Arrival::parse(frame.clone()) {
                let ack = arrival.tcp().ack();
                match (self.sent, self.acked) {
                    (Some(sent), Some(acked)) if ack.after(acked) => {
                        self.in_flight.push(sent - acked);
                    }
                    _ => {}
                }
                self.acked = Some(ack);
            }
            sender.give(&frame);
        }
    }
}

/// What a transfer by the engine, or by the kernel, has shown.
#[derive(Debug)]
struct Shown {
    /// The median of what is in flight, in bytes.
    in_flight: u32,
    /// The longest segment, in bytes.
    longest: u32,
    /// How long it took: for those who read.
    #[allow(dead_code)] // shown by Debug
    took: Duration,
}

fn transfer(by_engine: bool) -> Option<Shown> {
    let [near_ip, far_ip] = ["10.9.0.1", "10.9.0.2"].map(|ip| ip.parse().unwrap());
    let far = Host::new(far_ip)?;
    far.namespace
        .run(|| std::fs::write("/proc/sys/net/ipv4/tcp_rmem", RECEIVE_MEMORY).unwrap())
        .unwrap();
    let listener = far.namespace.run(|| TcpListener::bind((far_ip, 80))).unwrap().unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut connecting = None;
    let mut sender = if by_engine {
        Sender::engine(FourTuple { local: (near_ip, 4000).into(), remote: (far_ip, 80).into() })
    } else {
        let host = Host::new(near_ip)?;
        let connect = move || TcpStream::connect((far_ip, 80)).unwrap();
        connecting = Some(host.namespace.spawn(connect).unwrap());
        Sender::Kernel { host, socket: None }
    };
    let (mut path, mut peer) = (Path::default(), None);
    let (mut written, mut came, started) = (0, 0, Instant::now());
    while came < BYTES {
        assert!(started.elapsed() < PATIENCE, "{came} bytes came of {written}");
        path.carry(&mut sender, &far);
        if let Sender::Kernel { socket, .. } = &mut sender
            && let Some(done) = connecting.take_if(|connecting| connecting.is_finished())
        {
            let connected = done.join().unwrap().unwrap();
            connected.set_nonblocking(true).unwrap();
            *socket = Some(connected);
        }
        if peer.is_none() {
            peer = listener.accept().ok().map(|(peer, _)| peer);
            peer.iter().for_each(|peer| peer.set_nonblocking(true).unwrap());
        }
        written += sender.write(&[7; 4096][..(BYTES - written).min(4096)]);
        came += peer.as_ref().map_or(0, |peer| read(peer, 100_000).unwrap().len());
        std::thread::sleep(Duration::from_micros(200));
    }
    // The handshake and the first windows are others.
    let mut steady = path.in_flight.split_off(5);
    steady.sort_unstable();
    let in_flight = steady[steady.len() / 2];
    Some(Shown { in_flight, longest: path.longest, took: started.elapsed() })
}

/// Number of pairs of transfers of which one must keep the law. The receiving kernel decides by the time of its timers
/// how far it opens the window, so that one pair alone may differ by a part of a segment; a sender that leaves the
/// window half empty, or fills it by one long segment, does so in each.
const PAIRS: usize = 20;

/// RFC 9293 section 3.8.6.2.1: as many bytes in flight as from the kernel, in segments that are no longer: a
/// receiver that gets one segment only delays its acknowledgment.
#[test]
fn a_small_window_is_filled_as_by_the_kernel() {
    let mut all = Vec::new();
    for _ in 0..PAIRS {
        let (Some(engine), Some(kernel)) = (transfer(true), transfer(false)) else { return };
        println!("{engine:?}, by the kernel's TCP {kernel:?}");
        let is_filled = engine.in_flight * 10 >= kernel.in_flight * 9;
        if is_filled && engine.longest <= kernel.longest {
            return;
        }
        all.push((engine, kernel));
    }
    panic!("by the engine and by the kernel, each time: {all:#?}");
}
