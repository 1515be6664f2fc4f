//! Receiving through the whole worker of a NIC: frames in a port's memory, LRO, the IP host, the engine, a
//! service that reads, and acknowledgments as frames.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use ::tcp::{FourTuple, Nanos, Options};
use degen::Random;
use nic::config::Config;
use nic::port::{NoHost, Outgoing, RxFrame, Transmit, Transmitted, Wire};
use nic::tcp::{self as endpoint, Address, Addresses, Own, Role, Service, Work};
use nic::worker::Worker;
use sys::frames::{Frame, FramePool};
use wire::ip::{self, IpHeader};
use wire::{ETHERNET_LEN, Flags, IPV4_MIN_LEN, Mac, Seq, Tcp, VirtioNetHdr, write_ethernet};

use super::clock::{Clock, timed, warming};
use super::peers::{HEADER, LOCAL, MSS, Peer, failed, header, number, path};
use crate::Error;
use crate::side_by_side::Lap;

/// Segments that arrive at once.
const BATCH: usize = 32;
/// Batches that are timed together.
const BATCHES: usize = 64;
/// Time from one segment to the next: 40 Gb/s.
const BETWEEN: Nanos = 300;
/// Segments of each connection before any is timed: it acknowledges every one at first.
const FIRST: u32 = 20;
const NIC: Mac = [2, 0, 0, 0, 0, 1];
const ROUTER: Mac = [2, 0, 0, 0, 0, 2];
const CHUNKS: u32 = 1024;
const CHUNK: u32 = 2048;
const TCP_AT: usize = ETHERNET_LEN + IPV4_MIN_LEN;

/// All headers of a segment or an ARP message, and how long they are.
type Headers = ([u8; TCP_AT + HEADER], usize);

/// What is on the wire: both ends of it, in one thread.
#[derive(Debug, Default)]
struct Line {
    /// Headers, and bytes of payload behind them, which lie in the frame already.
    arriving: VecDeque<(Headers, usize)>,
    /// Frames that were sent, while they are looked at.
    sent: Option<Vec<Vec<u8>>>,
    count: u64,
}

/// The worker's end.
#[derive(Debug)]
struct Near(Rc<RefCell<Line>>);

impl Wire for Near {
    fn receive(
        &mut self,
        pool: &mut FramePool,
        into: &mut VecDeque<RxFrame>,
        max: usize,
    ) -> io::Result<()> {
        let mut line = self.0.borrow_mut();
        for _ in 0..max {
            let Some((header, payload)) = line.arriving.pop_front() else { break };
            let Some(mut frame) = pool.alloc() else { break };
            let (header, len) = header;
            pool.set_range(&mut frame, 0, len + payload);
            pool.bytes_mut(&mut frame)[..len].copy_from_slice(&header[..len]);
            let vnet = VirtioNetHdr { data_valid: true, ..VirtioNetHdr::default() };
            into.push_back(RxFrame { frame, vnet, overflow: 0, slot: 0, maybe_partial: false });
        }
        Ok(())
    }

    fn transmit(
        &mut self,
        _pool: &mut FramePool,
        packet: Outgoing<'_>,
        transmitted: &mut Transmitted,
    ) -> Result<Transmit, gso::Refusal> {
        transmitted.sent.count(packet.bytes.len());
        Ok(Transmit::Done)
    }

    fn send_frame(&mut self, pool: &mut FramePool, frame: Frame) -> Result<(), Frame> {
        let mut line = self.0.borrow_mut();
        line.count += 1;
        if let Some(sent) = &mut line.sent {
            sent.push(pool.bytes(&frame).to_vec());
        }
        pool.free(frame);
        Ok(())
    }

    fn flush(&mut self, _pool: &mut FramePool) -> io::Result<()> {
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_pending(&mut self) -> bool {
        false
    }

    fn close(self, _pool: &mut FramePool) {}
}

/// A worker that receives.
pub(super) struct Through {
    worker: Worker<Near, NoHost>,
    line: Rc<RefCell<Line>>,
    peers: Vec<Peer>,
    random: Random,
    now: Nanos,
}

impl Through {
    /// With so many connections, each of which is past its beginning.
    pub(super) fn new(connections: u32) -> Result<Through, Error> {
        let own = vec![Address { ip: LOCAL.0.into(), prefix_len: 24 }];
        let gateway = vec![IpAddr::from(Ipv4Addr::new(10, 0, 0, 254))];
        let addresses = Addresses::new(own, gateway).map_err(|error| failed(&error.to_string()))?;
        let work = Work { service: Service::Discard, bytes: None, verify: false };
        let role = Role::Listen { port: LOCAL.1 };
        let own = Own { addresses, probes: 0, role, work, run: None };
        let mut config = Config::default();
        config.tcp.connections = connections;
        config.tcp.memory = 64 << 30;
        let line = Rc::new(RefCell::new(Line { sent: Some(Vec::new()), ..Line::default() }));
        let pool = FramePool::new(CHUNKS, CHUNK).map_err(|error| failed(&error.to_string()))?;
        let near = Near(Rc::clone(&line));
        let worker = endpoint::worker_on((near, pool), own, &config, (NIC, 1500));
        let worker = worker.map_err(|error| failed(&error.to_string()))?;
        let (peers, random) = (Vec::new(), Random::new(1));
        let mut through = Through { worker, line, peers, random, now: 1_000_000_000 };
        through.connect(connections)?;
        for _ in 0..FIRST {
            for number in 0..connections {
                through.fill(&[number]);
                through.run_batch(warming)?;
            }
        }
        through.line.borrow_mut().sent = None;
        Ok(through)
    }

    fn connect(&mut self, connections: u32) -> Result<(), Error> {
        let router = wire::arp::Arp::request((ROUTER, Ipv4Addr::new(10, 0, 0, 254)), LOCAL.0, None);
        let mut bytes = [0; TCP_AT + HEADER];
        bytes[..router.len()].copy_from_slice(&router);
        self.arrive((bytes, router.len()), 0);
        self.turn()?;
        for number in 0..connections {
            self.line.borrow_mut().sent.get_or_insert_default().clear();
            let mut peer = Peer { seq: Seq(number), ack: Seq(0), echo: Seq(0) };
            let syn = header(number, &peer, Flags::SYN, self.clock());
            self.arrive(frame(number, &syn, 0), 0);
            self.turn()?;
            let line = self.line.borrow();
            let answer = line.sent.iter().flatten().find(|frame| frame.len() > TCP_AT + 20);
            let answer = answer.ok_or_else(|| failed("no SYN-ACK"))?;
            let tcp = Tcp::new(&answer[TCP_AT..]).map_err(|_| failed("no SYN-ACK"))?;
            let echo = Options::parse(tcp.option_bytes()).timestamps;
            peer.seq += 1;
            peer.ack = tcp.seq() + 1;
            peer.echo = echo.map_or(Seq(0), |stamps| stamps.value);
            drop(line);
            let ack = header(number, &peer, Flags::ACK, self.clock());
            self.arrive(frame(number, &ack, 0), 0);
            self.turn()?;
            self.peers.push(peer);
        }
        Ok(())
    }

    fn clock(&self) -> Seq {
        Seq((self.now / 1_000_000) as u32)
    }

    fn arrive(&mut self, header: Headers, payload: usize) {
        self.line.borrow_mut().arriving.push_back((header, payload));
    }

    fn turn(&mut self) -> Result<(), Error> {
        self.now += BETWEEN;
        self.worker.turn(self.now).map(drop).map_err(|error| failed(&error.to_string()))
    }

    /// Some batches, whose order of connections is unpredictable.
    pub(super) fn lap(&mut self) -> Result<Lap, Error> {
        let connections = self.peers.len() as u64;
        let mut lap = Lap { time: Duration::ZERO, packets: 0, large: 0 };
        for _ in 0..BATCHES {
            let mut numbers = [0; BATCH];
            numbers.fill_with(|| self.random.next_below(connections) as u32);
            self.fill(&numbers);
            let before = self.line.borrow().count;
            lap.time += self.run_batch(timed)?;
            lap.packets += BATCH as u64;
            lap.large += self.line.borrow().count - before;
        }
        Ok(lap)
    }

    /// The next segment of each of these connections.
    fn fill(&mut self, numbers: &[u32]) {
        let clock = self.clock();
        for &number in numbers {
            let peer = &mut self.peers[number as usize];
            let header = header(number, peer, Flags::ACK.with(Flags::PSH), clock);
            peer.seq += MSS as u32;
            self.arrive(frame(number, &header, MSS), MSS);
        }
        self.now += numbers.len() as u64 * BETWEEN;
    }

    /// Turns until nothing is left to do: what the worker does before it would sleep.
    fn run_batch(&mut self, clock: Clock<io::Result<()>>) -> Result<Duration, Error> {
        let (worker, now) = (&mut self.worker, self.now);
        let (time, done) = clock(&mut || {
            while worker.turn(now)? {}
            Ok(())
        });
        done.map_err(|error| failed(&error.to_string()))?;
        if let Some(sent) = &mut self.line.borrow_mut().sent {
            sent.clear();
        }
        Ok(time)
    }
}

/// All headers of a segment.
fn frame(number: u32, tcp: &[u8; HEADER], payload: usize) -> Headers {
    let FourTuple { local, remote } = path(number);
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (remote.ip(), local.ip()) else {
        return ([0; TCP_AT + HEADER], 0);
    };
    debug_assert_eq!(self::number(&path(number)), number);
    let addresses = ip::Addresses::V4 { source, destination };
    let header = IpHeader::new(addresses, wire::protocol::TCP);
    let mut bytes = [0; TCP_AT + HEADER];
    write_ethernet(&mut bytes, NIC, ROUTER, header.ether_type());
    header.write(&mut bytes[ETHERNET_LEN..], tcp.len() + payload);
    bytes[TCP_AT..].copy_from_slice(tcp);
    (bytes, TCP_AT + HEADER)
}
