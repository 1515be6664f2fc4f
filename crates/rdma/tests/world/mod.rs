//! Two devices with a stream between them, and memory that knows who may touch it.
#![allow(dead_code)] // not every test uses all of it

use std::collections::{BTreeMap, BTreeSet};

use rdma::memory::{BATCH_MAX, Pieces};
use rdma::mpa::layout::FPDU_MAX;
use rdma::mpa::{Config, Initiator, Negotiated, Responder};
use rdma::rdmap::atomic::Operation;
use rdma::verbs::{
    Access, Close, Cq, Flags, Limits, Payload, Pd, Qp, QpConfig, RecvRequest, Registration,
    SendRequest, Sge, State, Work,
};
use rdma::{Completion, Event, Extent, Fault, Handle, Memory, Rnic, Status};

/// The memory of an application, by handle.
#[derive(Debug, Default)]
pub(crate) struct Ram {
    pub(crate) buffers: BTreeMap<u64, Vec<u8>>,
    /// What is no longer registered: nobody may touch it.
    pub(crate) forbidden: BTreeSet<u64>,
    /// Calls, and pieces of the longest.
    pub(crate) calls: usize,
    pub(crate) longest: usize,
    /// Every byte that was stored: handle, place, and whether it ended a message.
    pub(crate) log: Vec<(u64, u64, usize, bool)>,
}

impl Ram {
    pub(crate) fn add(&mut self, handle: u64, len: usize) {
        self.buffers.insert(handle, vec![0; len]);
    }

    fn slice(&mut self, handle: Handle, offset: u64, len: usize) -> Option<&mut [u8]> {
        assert!(!self.forbidden.contains(&handle.0), "{handle:?} is not registered any more");
        let buffer = self.buffers.get_mut(&handle.0)?;
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        // A region never leads outside the memory that was registered.
        assert!(end <= buffer.len(), "{handle:?}: {offset}..{end} of {}", buffer.len());
        buffer.get_mut(start..end)
    }
}

impl Memory for Ram {
    fn place(&mut self, pieces: Pieces<'_>) -> Result<(), Fault> {
        assert!(!pieces.is_empty() && pieces.len() <= BATCH_MAX);
        self.calls += 1;
        self.longest = self.longest.max(pieces.len());
        for (done, piece) in pieces.iter().enumerate() {
            assert!(!piece.bytes.is_empty());
            let to = self.slice(piece.memory, piece.offset, piece.bytes.len());
            to.ok_or(Fault { done })?.copy_from_slice(piece.bytes);
            let entry = (piece.memory.0, piece.offset, piece.bytes.len(), piece.ends_message);
            self.log.push(entry);
        }
        Ok(())
    }

    fn gather(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<(), Fault> {
        assert!(!extents.is_empty() && extents.len() <= BATCH_MAX);
        self.calls += 1;
        for (done, extent) in extents.iter().enumerate() {
            assert!(extent.len > 0);
            let from = self.slice(extent.memory, extent.offset, extent.len);
            let from = from.ok_or(Fault { done })?;
            buffer[extent.at..extent.at + extent.len].copy_from_slice(from);
        }
        Ok(())
    }

    fn atomic(&mut self, memory: Handle, offset: u64, operation: Operation) -> Result<u64, Fault> {
        assert_eq!(offset % 8, 0);
        let place = self.slice(memory, offset, 8).and_then(|place| place.first_chunk_mut());
        let place = place.ok_or(Fault { done: 0 })?;
        let value = u64::from_ne_bytes(*place);
        *place = operation.apply(value).to_ne_bytes();
        Ok(value)
    }
}

/// Where regions begin.
pub(crate) const BASE: u64 = 0x10_0000;
/// How long the first one is.
pub(crate) const LEN: usize = 1 << 16;

/// One side: a device with a domain, a region of all rights, two completion queues and a queue pair.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) rnic: Rnic,
    pub(crate) ram: Ram,
    pub(crate) pd: Pd,
    pub(crate) send_cq: Cq,
    pub(crate) receive_cq: Cq,
    pub(crate) qp: Qp,
    /// The region of [`LEN`] bytes at [`BASE`].
    pub(crate) stag: u32,
    /// What came of the stream and is not done with.
    pub(crate) held: Vec<u8>,
    pub(crate) events: Vec<Event>,
    /// The stream is closed in this direction.
    pub(crate) closed: Option<Close>,
    handles: u64,
}

/// What differs between tests.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) peer: Config,
    pub(crate) limits: Limits,
    pub(crate) emss: usize,
    pub(crate) cqe: u32,
    pub(crate) sends: u32,
    pub(crate) receives: u32,
    pub(crate) sges: u8,
    pub(crate) signal_all: bool,
    /// The responder's queue pair has a shared receive queue.
    pub(crate) srq: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: Config::default(),
            peer: Config::default(),
            limits: Limits { regions: 64, ..Limits::default() },
            emss: 1448,
            cqe: 128,
            sends: 32,
            receives: 32,
            sges: 4,
            signal_all: false,
            srq: false,
        }
    }
}

impl Host {
    pub(crate) fn new(secret: u8, setup: &Setup, has_srq: bool) -> Self {
        let mut rnic = Rnic::new(setup.limits, [secret; 16]);
        let pd = rnic.alloc_pd().unwrap();
        let (send_cq, receive_cq) =
            (rnic.create_cq(setup.cqe).unwrap(), rnic.create_cq(setup.cqe).unwrap());
        let srq = has_srq.then(|| rnic.create_srq(pd, setup.receives, setup.sges).unwrap());
        let config = QpConfig {
            pd,
            send_cq,
            receive_cq,
            srq,
            sends: setup.sends,
            receives: setup.receives,
            send_sges: setup.sges,
            receive_sges: setup.sges,
            inline: 236,
            signal_all: setup.signal_all,
        };
        let qp = rnic.create_qp(config).unwrap();
        let mut host = Self {
            rnic,
            ram: Ram::default(),
            pd,
            send_cq,
            receive_cq,
            qp,
            stag: 0,
            held: Vec::new(),
            events: Vec::new(),
            closed: None,
            handles: 0,
        };
        host.stag = host.register(BASE, LEN, Access::ALL);
        host.rnic.modify(qp, State::Init).unwrap();
        host
    }

    /// A region with memory of its own.
    pub(crate) fn register(&mut self, iova: u64, len: usize, access: Access) -> u32 {
        let (pd, memory) = (self.pd, self.handle(len));
        let len = len as u64;
        self.rnic.register(Registration { pd, iova, len, access, memory }).unwrap()
    }

    /// Memory that is not registered yet.
    pub(crate) fn handle(&mut self, len: usize) -> Handle {
        self.handles += 1;
        self.ram.add(self.handles, len);
        Handle(self.handles)
    }

    /// Bytes of the first region.
    pub(crate) fn bytes(&mut self, offset: usize, len: usize) -> &mut [u8] {
        &mut self.ram.buffers.get_mut(&1).unwrap()[offset..offset + len]
    }

    /// An element of the first region.
    pub(crate) fn sge(&self, offset: usize, len: u32) -> Sge {
        Sge { addr: BASE + offset as u64, len, lkey: self.stag }
    }

    /// Posts work that is signaled.
    pub(crate) fn post(&mut self, wr_id: u64, work: Work, sges: &[Sge]) {
        self.post_with(
            wr_id,
            work,
            Payload::Sges(sges),
            Flags { signaled: true, ..Flags::default() },
        );
    }

    pub(crate) fn post_with(&mut self, wr_id: u64, work: Work, payload: Payload<'_>, flags: Flags) {
        self.rnic.post_send(self.qp, &SendRequest { wr_id, work, payload, flags }).unwrap();
    }

    pub(crate) fn send(&mut self, wr_id: u64, sges: &[Sge]) {
        self.post(wr_id, Work::Send { invalidate: None }, sges);
    }

    pub(crate) fn receive(&mut self, wr_id: u64, sges: &[Sge]) {
        self.rnic.post_recv(self.qp, &RecvRequest { wr_id, sges }).unwrap();
    }

    pub(crate) fn poll(&mut self, cq: Cq) -> Vec<Completion> {
        let mut all = Vec::new();
        let mut some = [Completion::default(); 8];
        loop {
            let count = self.rnic.poll_cq(cq, &mut some).unwrap();
            all.extend_from_slice(&some[..count]);
            if count < some.len() {
                return all;
            }
        }
    }

    /// Numbers and statuses of what has completed.
    pub(crate) fn sent(&mut self) -> Vec<(u64, Status)> {
        self.poll(self.send_cq).iter().map(|of| (of.wr_id, of.status)).collect()
    }

    pub(crate) fn received(&mut self) -> Vec<(u64, Status)> {
        self.poll(self.receive_cq).iter().map(|of| (of.wr_id, of.status)).collect()
    }

    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        while let Some(event) = self.rnic.poll_event() {
            self.events.push(event);
        }
        std::mem::take(&mut self.events)
    }

    pub(crate) fn state(&self) -> State {
        self.rnic.state(self.qp).unwrap()
    }

    /// What it has to send, up to so many bytes.
    pub(crate) fn transmit(&mut self, room: usize) -> Vec<u8> {
        let mut buffer = vec![0xee; room];
        let sent = self.rnic.transmit(self.qp, &mut buffer, &mut self.ram).unwrap();
        assert!(sent.len <= room);
        buffer.truncate(sent.len);
        if sent.close.is_some() {
            self.closed = sent.close;
        }
        buffer
    }

    /// Bytes of the stream come, in slices of at most so many.
    pub(crate) fn feed(&mut self, bytes: &[u8], slice: usize) {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let slices: Vec<&[u8]> = held.chunks(slice.max(1)).collect();
        let done = self.rnic.receive(self.qp, &slices, &mut self.ram).unwrap();
        self.held = held[done..].to_vec();
        assert!(self.held.len() < FPDU_MAX);
    }

    /// As [`feed`](Self::feed), and all of it is done with.
    pub(crate) fn feed_all(&mut self, bytes: &[u8]) {
        self.feed(bytes, usize::MAX);
        assert!(self.held.is_empty());
    }
}

/// Two hosts that are connected.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) a: Host,
    pub(crate) b: Host,
}

/// Connection set-up between two hosts.
pub(crate) fn negotiate(config: Config, peer: Config) -> (Negotiated, Negotiated) {
    let (initiator, responder) = (Initiator::new(config), Responder::new(peer));
    let request = responder.receive(&initiator.request(&[]).unwrap()).unwrap().unwrap();
    let (reply, there) = request.accept(peer.ird, peer.ord, &[]).unwrap();
    (initiator.receive(&reply).unwrap().unwrap().negotiated, there)
}

impl Pair {
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut pair = Self { a: Host::new(1, setup, false), b: Host::new(2, setup, setup.srq) };
        let (here, there) = negotiate(setup.config, setup.peer);
        pair.a.rnic.start(pair.a.qp, &here, setup.emss).unwrap();
        pair.b.rnic.start(pair.b.qp, &there, setup.emss).unwrap();
        pair
    }

    /// A pair whose ready message is through.
    pub(crate) fn ready() -> Self {
        Self::ready_with(&Setup::default())
    }

    pub(crate) fn ready_with(setup: &Setup) -> Self {
        let mut pair = Self::new(setup);
        if !pair.a.rnic.wants_transmit(pair.a.qp) {
            pair.a.post_with(
                0,
                Work::Write { stag: 0, offset: 0 },
                Payload::Sges(&[]),
                Flags::default(),
            );
        }
        pair.pump();
        pair.a.sent();
        pair.a.take_events();
        pair.b.take_events();
        pair
    }

    /// As [`pump`](Self::pump), where a queue pair may be gone.
    pub(crate) fn pump_all(&mut self) {
        let exists = |host: &Host| host.rnic.state(host.qp).is_ok();
        if exists(&self.a) && exists(&self.b) {
            self.pump();
        }
    }

    /// All that both have to send arrives, until nobody has anything. Closing is as the device does it.
    pub(crate) fn pump(&mut self) {
        for _ in 0..10_000 {
            let mut quiet = true;
            for from_a in [true, false] {
                let (a, b) = (&mut self.a, &mut self.b);
                let (from, to) = if from_a { (a, b) } else { (b, a) };
                if from.rnic.wants_transmit(from.qp) {
                    quiet = false;
                    let bytes = from.transmit(1 << 17);
                    to.feed_all(&bytes);
                }
            }
            if quiet {
                return;
            }
        }
        panic!("it does not come to rest");
    }
}
