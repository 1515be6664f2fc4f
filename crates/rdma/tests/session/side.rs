//! A process and its device, with the shared memory between them.
#![allow(dead_code)] // not every test uses all of it

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use rdma::Handle;
use rdma::mpa::Negotiated;
use rdma::session::area::Area;
use rdma::session::completions::{Completions, Entry};
use rdma::session::control::Control;
use rdma::session::message::{QpRequest, RegisterRequest, Reply};
use rdma::session::posts::Posts;
use rdma::session::process::Told;
use rdma::session::work::{RECV_HEAD, SEND_HEAD, Send, Shape, write_sges};
use rdma::session::{Hostile, Process, Request};
use rdma::verbs::{Flags, Limits, Qp, Sge, State, Work};

use crate::world::{BASE, LEN, Ram};

/// Words of the shared memory.
pub(crate) const WORDS: usize = 1 << 16;
/// The one context.
pub(crate) const CONTEXT: u32 = 1;
/// The channel of the completion queue.
pub(crate) const CHANNEL: u32 = 9;

pub(crate) struct Side {
    pub(crate) process: Process,
    pub(crate) memory: &'static [AtomicU64],
    pub(crate) ram: Ram,
    pub(crate) pd: u32,
    pub(crate) cq: u32,
    pub(crate) qp: Qp,
    pub(crate) stag: u32,
    pub(crate) sends: Posts<'static>,
    pub(crate) receives: Posts<'static>,
    pub(crate) completions: Completions<'static>,
    pub(crate) told: Vec<Told>,
    /// Areas that were told of: of the queue pair's two queues and the completion queue.
    pub(crate) areas: [Area; 3],
    held: Vec<u8>,
}

pub(crate) const DEPTH: u32 = 16;

thread_local! {
    /// Shared memory of sides that are over. It is never freed, so that what is made of it can lie beside it.
    static SPARE: RefCell<Vec<&'static [AtomicU64]>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Side {
    fn drop(&mut self) {
        self.memory.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        SPARE.with_borrow_mut(|spare| spare.push(self.memory));
    }
}

impl Side {
    pub(crate) fn new(secret: u8, limits: Limits) -> Self {
        let memory = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect::<Box<[_]>>())
        });
        let mut process = Process::new(limits, [secret; 16], WORDS);
        let mut ram = Ram::default();
        ram.add(1, LEN);
        let ask = |process: &mut Process, request: &Request<'_>| {
            let reply = process.request(memory, 0, request, Handle(1));
            assert_eq!(reply.errno, 0, "{request:?}");
            reply
        };
        let pd = ask(&mut process, &Request::AllocPd(CONTEXT)).words[0] as u32;
        let (addr, len, iova) = (BASE, LEN as u64, BASE);
        let register = RegisterRequest { pd, access: 0x1f, addr, len, iova, file: None };
        let stag = ask(&mut process, &Request::Register(register)).words[0] as u32;
        let create =
            Request::CreateCq { context: CONTEXT, depth: 2 * DEPTH, channel: Some(CHANNEL) };
        let cq = ask(&mut process, &create);
        let cq_area = area(&cq, 1);
        let cq = cq.words[0] as u32;
        let qp = ask(&mut process, &Request::CreateQp(qp_request(pd, cq)));
        let (sq_area, rq_area) = (area(&qp, 1), area(&qp, 3));
        let qp = Qp::new(qp.words[0] as u32);
        let init = Request::ModifyQp { qp: qp.0, state: State::Init as u8 };
        assert_eq!(ask(&mut process, &init).words[0], State::Init as u64);
        Side {
            process,
            memory,
            ram,
            pd,
            cq,
            qp,
            stag,
            sends: Posts::new(sq_area, DEPTH, memory).unwrap(),
            receives: Posts::new(rq_area, DEPTH, memory).unwrap(),
            completions: Completions::new(cq_area, memory).unwrap(),
            told: Vec::new(),
            areas: [sq_area, rq_area, cq_area],
            held: Vec::new(),
        }
    }

    /// What the application asks for; the words of what is done.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Result<Reply, u16> {
        let reply = self.process.request(self.memory, 0, request, Handle(1));
        self.hear();
        if reply.errno == 0 { Ok(reply) } else { Err(reply.errno) }
    }

    pub(crate) fn start(&mut self, negotiated: &Negotiated) {
        self.process.start(self.memory, self.qp, negotiated, 1448).unwrap();
    }

    /// Posts a send; whether there was room.
    pub(crate) fn send(&mut self, wr_id: u64, work: Work, sges: &[Sge]) -> bool {
        put(&mut self.sends, self.memory, self.qp, wr_id, work, sges)
    }

    pub(crate) fn receive(&mut self, wr_id: u64, sges: &[Sge]) -> bool {
        let Some(entry) = self.receives.slot() else { return false };
        entry[0].store(wr_id, Ordering::Relaxed);
        entry[1].store(sges.len() as u64, Ordering::Relaxed);
        write_sges(entry, RECV_HEAD, sges.iter().copied());
        self.receives.push();
        self.receives.publish();
        true
    }

    pub(crate) fn control(&self) -> Control<'static> {
        Control::new(self.memory).unwrap()
    }

    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: BASE + offset, len, lkey: self.stag }
    }

    pub(crate) fn poll(&mut self) -> Vec<Entry> {
        let entries = std::iter::from_fn(|| self.completions.poll()).collect();
        self.completions.release();
        entries
    }

    fn hear(&mut self) {
        self.told.extend(std::iter::from_fn(|| self.process.poll_told()));
    }

    /// A turn of the device: what this side has to say.
    pub(crate) fn transmit(&mut self) -> Result<Vec<u8>, Hostile> {
        let mut pairs = Vec::new();
        self.process.take_posts(self.memory, |qp| pairs.push(qp));
        for qp in pairs {
            self.process.pull(self.memory, 0, qp)?;
        }
        let mut stream = Vec::new();
        let mut buffer = vec![0; 4096];
        while self.process.wants_transmit(self.qp) {
            let Side { process, memory, ram, qp, .. } = self;
            let sent = process.transmit(memory, 0, *qp, &mut buffer, ram)?;
            stream.extend_from_slice(&buffer[..sent.len]);
            if sent.len == 0 {
                break;
            }
        }
        self.hear();
        Ok(stream)
    }

    /// What the peer has said.
    pub(crate) fn hears(&mut self, stream: &[u8]) -> Result<(), Hostile> {
        self.held.extend_from_slice(stream);
        let Side { process, memory, ram, qp, held, .. } = self;
        let taken = process.receive(memory, 0, *qp, &[held], ram)?;
        held.drain(..taken);
        self.hear();
        Ok(())
    }
}

/// Posts a send; whether there was room.
pub(crate) fn put(
    sends: &mut Posts<'static>,
    memory: &[AtomicU64],
    qp: Qp,
    wr_id: u64,
    work: Work,
    sges: &[Sge],
) -> bool {
    let flags = Flags { signaled: true, ..Flags::default() };
    let Some(entry) = sends.slot() else { return false };
    let send = Send { wr_id, work, flags, shape: Shape::Sges(sges.len() as u8) };
    for (word, value) in entry.iter().zip(send.encode()) {
        word.store(value, Ordering::Relaxed);
    }
    write_sges(entry, SEND_HEAD, sges.iter().copied());
    sends.push();
    sends.publish();
    Control::new(memory).unwrap().post(qp.0 as usize & 0xfff);
    true
}

pub(crate) fn qp_request(pd: u32, cq: u32) -> QpRequest {
    QpRequest {
        context: CONTEXT,
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        sends: DEPTH,
        receives: DEPTH,
        send_sges: 3,
        receive_sges: 2,
        inline: 64,
        signal_all: false,
    }
}

pub(crate) fn area(reply: &Reply, at: usize) -> Area {
    Area::decode([reply.words[at], reply.words[at + 1]]).unwrap()
}

/// Both say what they have to until neither has more.
pub(crate) fn pump(a: &mut Side, b: &mut Side) -> Result<(), Hostile> {
    for _ in 0..10_000 {
        let (from_a, from_b) = (a.transmit()?, b.transmit()?);
        if from_a.is_empty() && from_b.is_empty() {
            return Ok(());
        }
        b.hears(&from_a)?;
        a.hears(&from_b)?;
    }
    panic!("they do not come to an end");
}
