//! Any bytes from a peer, in every state of a queue pair.

use std::collections::BTreeMap;

use rdma::ddp::{Tagged, Untagged};
use rdma::mpa::frame::{Frame, Kind};
use rdma::mpa::layout::FPDU_MAX;
use rdma::mpa::{Config, Initiator, Negotiated, Responder, Role, Rtr, RtrKinds};
use rdma::rdmap::atomic::{self, Operation};
use rdma::rdmap::{Opcode, ReadRequest};
use rdma::verbs::{Access, Flags, Payload, RecvRequest, SendRequest, Sge, State, WindowKind, Work};
use rdma::{Completion, Event, Status};
use testkit::bytes::Bytes;
use wire::checksum::Crc32c;

use crate::world::{BASE, Host, LEN, Setup};

/// A host, its peer's idea of the stream, and what must come of what was posted.
struct Drive {
    host: Host,
    crc: bool,
    markers: bool,
    /// The next number of each queue, as an honest peer would have it.
    msn: [u32; 4],
    ids: u64,
    /// Work that has not completed; `true` if it must.
    posted: BTreeMap<u64, bool>,
    stags: Vec<u32>,
    terminates: usize,
}

/// Runs what the bytes say.
pub(crate) fn run(bytes: &mut Bytes<'_>) {
    let mut drive = Drive::begin(bytes);
    while !bytes.is_empty() {
        drive.step(bytes);
    }
    drive.end();
}

impl Drive {
    fn begin(bytes: &mut Bytes<'_>) -> Self {
        let [flags, role, ird, ord] = bytes.array();
        let setup = Setup {
            receives: 8,
            sends: 8,
            cqe: if flags & 8 == 0 { 64 } else { 5 },
            srq: flags & 16 != 0,
            ..Setup::default()
        };
        let mut host = Host::new(1, &setup, setup.srq);
        let negotiated = Negotiated {
            role: if role & 1 == 0 { Role::Initiator } else { Role::Responder },
            markers_in: flags & 1 != 0,
            markers_out: flags & 2 != 0,
            crc: flags & 4 != 0,
            ird: u16::from(ird % 6),
            ord: u16::from(ord % 6),
            rtr: [None, Some(Rtr::Send), Some(Rtr::Read), Some(Rtr::Write)][usize::from(role >> 6)],
        };
        host.rnic.start(host.qp, &negotiated, 128 + 8 * usize::from(role)).unwrap();
        let mut stags = vec![host.stag];
        stags.push(host.register(BASE, 64, Access::LOCAL_WRITE.and(Access::REMOTE_READ)));
        stags.push(host.rnic.alloc_window(host.pd, WindowKind::Two).unwrap());
        stags.push(host.rnic.alloc_region(host.pd, 4096).unwrap());
        let (crc, markers) = (negotiated.crc, negotiated.markers_in);
        let (msn, ids, posted, terminates) = ([1; 4], 0, BTreeMap::new(), 0);
        Self { host, crc, markers, msn, ids, posted, stags, terminates }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.next() % 16 {
            0 => {
                let len = usize::from(bytes.next());
                let raw = bytes.take(len).to_vec();
                self.feed(&raw, bytes);
            }
            1 => {
                let len = usize::from(bytes.next());
                let ulpdu = bytes.take(len).to_vec();
                self.fpdu(&ulpdu, bytes);
            }
            2..=7 => self.segment(bytes),
            8..=9 => self.receive(bytes),
            10..=12 => self.post(bytes),
            13 => self.transmit(bytes),
            14 => self.poll(),
            _ => self.change(bytes),
        }
        self.check();
    }

    /// Bytes of the stream come.
    fn feed(&mut self, raw: &[u8], bytes: &mut Bytes<'_>) {
        let was_over = matches!(self.host.state(), State::Sqe | State::Err);
        let stored = self.host.ram.log.len();
        self.host.feed(raw, 1 + usize::from(bytes.next()));
        assert!(self.host.held.len() < FPDU_MAX);
        if was_over {
            assert_eq!(self.host.ram.log.len(), stored, "something was placed after the end");
            assert!(self.host.held.is_empty());
        }
    }

    /// A whole FPDU comes, with the right CRC.
    fn fpdu(&mut self, ulpdu: &[u8], bytes: &mut Bytes<'_>) {
        let mut fpdu = (ulpdu.len() as u16).to_be_bytes().to_vec();
        fpdu.extend_from_slice(ulpdu);
        fpdu.resize(fpdu.len().next_multiple_of(4), 0);
        if self.crc {
            let crc = Crc32c::new().plus(&fpdu).finish().to_le_bytes();
            fpdu.extend(crc);
        } else {
            fpdu.extend([0; 4]);
        }
        // With markers it is one only by chance.
        if self.markers {
            let len = fpdu.len();
            fpdu.splice(0..0, [0, 0, 0, 0]);
            fpdu.truncate(len + 4);
        }
        self.feed(&fpdu, bytes);
    }

    /// A segment that is nearly one of an honest peer.
    fn segment(&mut self, bytes: &mut Bytes<'_>) {
        let opcode = Opcode::ALL[usize::from(bytes.next()) % 12];
        let [flags, near, len] = bytes.array();
        let last = flags & 3 != 0;
        let stag = bytes.pick(&self.stags) ^ if near & 0x70 == 0 { u32::from(near) } else { 0 };
        let offset = BASE.wrapping_add(u64::from(near) * 17).wrapping_sub(u64::from(flags >> 6));
        let mut payload = bytes.take(usize::from(len)).to_vec();
        match opcode {
            Opcode::ReadRequest => {
                let len = u32::from(len) * if near & 1 == 0 { 1 } else { 0x0100_0001 };
                let (sink_stag, sink_offset) = (stag, u64::MAX - u64::from(flags) * 9);
                let (source_stag, source_offset) = (stag, offset);
                let of = ReadRequest { sink_stag, sink_offset, len, source_stag, source_offset };
                payload = of.encode().to_vec();
            }
            Opcode::AtomicRequest => {
                let operation = Operation::fetch_add(u64::from(len));
                let id = u32::from(flags);
                let offset = if near & 1 == 0 { offset & !7 } else { offset };
                payload = atomic::Request { id, stag, offset, operation }.encode().to_vec();
            }
            Opcode::AtomicResponse => {
                let (id, original) = (u32::from(near % 8), u64::from(len));
                payload = atomic::Response { id, original }.encode().to_vec();
            }
            Opcode::Immediate | Opcode::ImmediateSolicited => payload.resize(8, 0),
            _ => {}
        }
        let ulp = opcode.control();
        let header = match opcode.queue() {
            None => Tagged { last, ulp, stag, offset }.encode().to_vec(),
            Some(queue) => {
                let next = &mut self.msn[queue as usize];
                let msn = next.wrapping_add(u32::from(flags & 0x0c == 0x0c));
                *next = next.wrapping_add(u32::from(last));
                let offset = if near & 0x0f == 0 { u32::from(near) } else { 0 };
                Untagged { last, ulp, ulp_word: stag, queue, msn, offset }.encode().to_vec()
            }
        };
        self.fpdu(&[header, payload].concat(), bytes);
    }

    fn sges(&mut self, bytes: &mut Bytes<'_>) -> Vec<Sge> {
        let count = bytes.next() % 4;
        (0..count)
            .map(|_| {
                let [a, len, which] = bytes.array();
                let lkey = if which < 250 { self.host.stag } else { bytes.pick(&self.stags) };
                let addr = BASE + u64::from(a) * 200;
                Sge { addr, len: u32::from(len), lkey }
            })
            .collect()
    }

    fn receive(&mut self, bytes: &mut Bytes<'_>) {
        let sges = self.sges(bytes);
        self.ids += 1;
        let request = RecvRequest { wr_id: self.ids, sges: &sges };
        if self.host.rnic.post_recv(self.host.qp, &request).is_ok() {
            self.posted.insert(self.ids, true);
        }
    }

    fn post(&mut self, bytes: &mut Bytes<'_>) {
        let sges = self.sges(bytes);
        let [kind, flags, near] = bytes.array();
        let (stag, offset) = (u32::from(near) << 8, u64::from(near) * 8);
        let work = match kind % 8 {
            0 => Work::Send { invalidate: (near & 1 == 0).then_some(stag) },
            1 => Work::Write { stag, offset },
            2 => Work::WriteImmediate { stag, offset, immediate: [1; 4] },
            3 | 4 => Work::Read { stag, offset },
            5 | 6 => Work::Atomic { stag, offset, operation: Operation::fetch_add(3) },
            _ => Work::LocalInvalidate { stag: bytes.pick(&self.stags) },
        };
        let flags = Flags {
            signaled: flags & 1 == 0,
            solicited: flags & 2 == 0,
            fence: flags & 12 == 0,
            local_fence: flags & 48 == 0,
        };
        let sges = match kind % 8 {
            3 | 4 => &sges[..sges.len().min(1)],
            5 | 6 => &[Sge { addr: BASE + 64, len: 8, lkey: self.host.stag }][..],
            7 => &[][..],
            _ => &sges[..],
        };
        self.ids += 1;
        let payload = Payload::Sges(sges);
        let request = SendRequest { wr_id: self.ids, work, payload, flags };
        if self.host.rnic.post_send(self.host.qp, &request).is_ok() {
            self.posted.insert(self.ids, flags.signaled);
        }
    }

    fn transmit(&mut self, bytes: &mut Bytes<'_>) {
        let room = self.host.rnic.fpdu_len(self.host.qp) + usize::from(bytes.next()) * 20;
        let wanted = self.host.rnic.wants_transmit(self.host.qp);
        let sent = self.host.transmit(room);
        assert!(wanted || sent.is_empty());
        assert_eq!(sent.len() % 4, 0);
    }

    fn poll(&mut self) {
        let (send_cq, receive_cq) = (self.host.send_cq, self.host.receive_cq);
        for cq in [send_cq, receive_cq] {
            for completion in self.host.poll(cq) {
                self.completed(&completion);
            }
        }
    }

    /// Each request completes once at most, and a failure is never silent.
    fn completed(&mut self, completion: &Completion) {
        let was = self.posted.remove(&completion.wr_id);
        let must = was.unwrap_or_else(|| panic!("{completion:?} was not posted, or is told twice"));
        assert!(
            must || completion.status != Status::Success,
            "it was not to be told: {completion:?}"
        );
        assert!(completion.len as usize <= 3 * LEN);
    }

    fn change(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.next() % 8 {
            0 => drop(self.host.rnic.disconnect(self.host.qp)),
            1 => self.host.rnic.stream_ended(self.host.qp),
            2 => self.host.rnic.modify(self.host.qp, State::Err).unwrap(),
            3 => {
                // Beginning anew: nothing that was posted completes.
                self.poll();
                self.posted.clear();
                self.host.rnic.modify(self.host.qp, State::Reset).unwrap();
                *self = Drive::begin(bytes);
            }
            4 => self.host.rnic.set_emss(self.host.qp, usize::from(bytes.next()) * 40),
            _ => {}
        }
    }

    fn check(&mut self) {
        let state = self.host.state();
        for event in self.host.take_events() {
            match event {
                Event::QpFatal(..) | Event::QpAccessError(..) => {
                    self.terminates += 1;
                    assert!(matches!(state, State::Sqe | State::Err));
                }
                Event::Terminated(..) | Event::Disconnected(_) => assert_eq!(state, State::Err),
                _ => {}
            }
        }
        assert!(self.terminates <= 1, "it ends once");
        // What was asked for at most: IRD and ORD bound what a peer can make wait.
        assert!(self.host.ram.longest <= 1024);
    }

    /// At the end of the stream all that is posted completes, unless a queue had no room for it.
    fn end(&mut self) {
        self.host.rnic.stream_ended(self.host.qp);
        self.poll();
        let lost = self.host.rnic.counters().lost_completions > 0;
        let missing: Vec<_> = self.posted.iter().filter(|(_, must)| **must).collect();
        let flushed = self.host.state() == State::Err;
        assert!(lost || !flushed || missing.is_empty(), "{missing:?}");
    }
}

/// Any bytes as the frames of connection set-up.
pub(crate) fn set_up(bytes: &mut Bytes<'_>) {
    let [flags, ird, ord, has_key] = bytes.array();
    let config = Config {
        revision: 1 + (flags & 1),
        markers: flags & 2 != 0,
        crc: flags & 4 != 0,
        ird: u16::from(ird),
        ord: u16::from(ord),
        peer_to_peer: flags & 8 != 0,
        rtr: RtrKinds { send: flags & 16 != 0, write: flags & 32 != 0, read: flags & 64 != 0 },
    };
    let frame = |key: &[u8]| {
        let mut all = if has_key & 1 == 0 { key.to_vec() } else { Vec::new() };
        all.extend_from_slice(bytes.0);
        all
    };
    let request = frame(b"MPA ID Req Frame");
    if let Ok(Some(waiting)) = Responder::new(config).receive(&request) {
        assert!(waiting.private_data.len() <= 512);
        let (reply, negotiated) = waiting.accept(4, 4, &[1, 2]).unwrap();
        assert!(negotiated.ird <= 4 && negotiated.ord <= 4);
        assert!(Frame::parse(Kind::Reply, &reply).unwrap().is_some());
        assert!(waiting.reject(&[]).is_ok());
    }
    let reply = frame(b"MPA ID Rep Frame");
    let initiator = Initiator::new(config);
    match initiator.receive(&reply) {
        Ok(Some(accepted)) => {
            assert!(accepted.consumed <= reply.len());
            assert!(accepted.negotiated.ord <= config.ord);
            assert_eq!(accepted.negotiated.ird, config.ird);
        }
        Ok(None) => {}
        Err(error) => {
            let words = initiator.last_words(&reply, error);
            assert_eq!(words.is_empty(), error.cause().is_none());
        }
    }
}
