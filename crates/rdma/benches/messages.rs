//! What a message costs, from the post to the stream and from the stream to the peer's memory, on one core and without
//! a device's work but memcpy: `cargo bench -p rdma`.
//!
//! `cargo bench -p rdma -- CASE LISTS` sends so many lists of a case's and nothing else: run by
//! `valgrind --tool=callgrind` with two numbers, the difference is what a list costs in instructions.
#![allow(missing_docs, clippy::unwrap_used)] // a bench may stop where a test may

use std::hint::black_box;
use std::time::{Duration, Instant};

use rdma::memory::Pieces;
use rdma::mpa::{Config, Negotiated, Role};
use rdma::rdmap::atomic::Operation;
use rdma::verbs::{
    Access, Cq, Flags, Limits, Payload, Qp, QpConfig, RecvRequest, Registration, SendRequest, Sge,
    State, Work,
};
use rdma::{Completion, Extent, Fault, Handle, Memory, Rnic};

const BASE: u64 = 1 << 20;
const LEN: usize = 1 << 20;
/// Work requests of a list, the last of which is signaled.
const LIST: u64 = 32;

struct Ram(Vec<u8>);

impl Memory for Ram {
    fn place(&mut self, pieces: Pieces<'_>) -> Result<(), Fault> {
        for piece in pieces.iter() {
            let at = piece.offset as usize;
            self.0[at..at + piece.bytes.len()].copy_from_slice(piece.bytes);
        }
        Ok(())
    }

    fn gather(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<(), Fault> {
        for extent in extents {
            let at = extent.offset as usize;
            buffer[extent.at..extent.at + extent.len].copy_from_slice(&self.0[at..at + extent.len]);
        }
        Ok(())
    }

    fn atomic(&mut self, _: Handle, _: u64, _: Operation) -> Result<u64, Fault> {
        Err(Fault { done: 0 })
    }
}

struct Side {
    rnic: Rnic,
    ram: Ram,
    qp: Qp,
    cq: Cq,
    stag: u32,
}

fn side(role: Role, crc: bool, emss: usize) -> Side {
    let mut rnic = Rnic::new(Limits::default(), [3; 16]);
    let pd = rnic.alloc_pd().unwrap();
    let cq = rnic.create_cq(4096).unwrap();
    let (iova, len, access, memory) = (BASE, LEN as u64, Access::ALL, Handle(1));
    let stag = rnic.register(Registration { pd, iova, len, access, memory }).unwrap();
    let config = QpConfig {
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        sends: 64,
        receives: 64,
        send_sges: 4,
        receive_sges: 4,
        inline: 236,
        signal_all: false,
    };
    let qp = rnic.create_qp(config).unwrap();
    rnic.modify(qp, State::Init).unwrap();
    let Config { ird, ord, .. } = Config::default();
    let (markers_in, markers_out, rtr) = (false, false, None);
    let negotiated = Negotiated { role, markers_in, markers_out, crc, ird, ord, rtr };
    rnic.start(qp, &negotiated, emss).unwrap();
    Side { rnic, ram: Ram(vec![1; LEN]), qp, cq, stag }
}

/// What is sent.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    len: usize,
    inline: bool,
    crc: bool,
    emss: usize,
    sends: bool,
}

const CASES: [Case; 6] = [
    Case { name: "write8", len: 8, inline: true, crc: true, emss: 1448, sends: false },
    Case { name: "write8-nocrc", len: 8, inline: true, crc: false, emss: 1448, sends: false },
    Case { name: "send8", len: 8, inline: true, crc: true, emss: 1448, sends: true },
    Case { name: "write64k", len: 65_536, inline: false, crc: true, emss: 1448, sends: false },
    Case {
        name: "write64k-long",
        len: 65_536,
        inline: false,
        crc: true,
        emss: 65_483,
        sends: false,
    },
    Case {
        name: "write64k-nocrc",
        len: 65_536,
        inline: false,
        crc: false,
        emss: 65_483,
        sends: false,
    },
];

struct Lab {
    case: Case,
    a: Side,
    b: Side,
    buffer: Vec<u8>,
    wire: u64,
}

impl Lab {
    fn new(case: Case) -> Self {
        let a = side(Role::Initiator, case.crc, case.emss);
        let b = side(Role::Responder, case.crc, case.emss);
        Self { case, a, b, buffer: vec![0; 1 << 18], wire: 0 }
    }

    /// Posts a list, sends it, and lets it arrive; completions are taken at both ends.
    fn list(&mut self) {
        let Case { len, inline, sends, .. } = self.case;
        if sends {
            self.receives();
        }
        self.posts(len, inline, sends);
        while self.a.rnic.wants_transmit(self.a.qp) {
            let len = self.transmit();
            self.receive(len);
            self.wire += len as u64;
        }
        let mut taken = [Completion::default(); 64];
        assert_eq!(self.a.rnic.poll_cq(self.a.cq, &mut taken), Ok(1));
        if sends {
            assert_eq!(self.b.rnic.poll_cq(self.b.cq, &mut taken), Ok(LIST as usize));
        }
    }

    #[inline(never)]
    fn receives(&mut self) {
        let sges = [Sge { addr: BASE, len: self.case.len as u32, lkey: self.b.stag }];
        for wr_id in 0..LIST {
            self.b.rnic.post_recv(self.b.qp, &RecvRequest { wr_id, sges: &sges }).unwrap();
        }
    }

    #[inline(never)]
    fn posts(&mut self, len: usize, inline: bool, sends: bool) {
        let bytes = [5; 236];
        let sges = [Sge { addr: BASE, len: len as u32, lkey: self.a.stag }];
        let payload = if inline { Payload::Inline(&bytes[..len]) } else { Payload::Sges(&sges) };
        let stag = self.b.stag;
        for wr_id in 0..LIST {
            let flags = Flags { signaled: wr_id == LIST - 1, ..Flags::default() };
            let offset = BASE + wr_id * 8;
            let work = match sends {
                true => Work::Send { invalidate: None },
                false => Work::Write { stag, offset },
            };
            let request = SendRequest { wr_id, work, payload, flags };
            self.a.rnic.post_send(self.a.qp, black_box(&request)).unwrap();
        }
    }

    #[inline(never)]
    fn transmit(&mut self) -> usize {
        let Side { rnic, ram, qp, .. } = &mut self.a;
        rnic.transmit(*qp, &mut self.buffer, ram).unwrap().len
    }

    #[inline(never)]
    fn receive(&mut self, len: usize) {
        let Side { rnic, ram, qp, .. } = &mut self.b;
        assert_eq!(rnic.receive(*qp, &[&self.buffer[..len]], ram), Ok(len));
    }
}

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let [case, lists] = &arguments[..] {
        let case = CASES.into_iter().find(|of| of.name == case).unwrap();
        let mut lab = Lab::new(case);
        for _ in 0..lists.parse::<u64>().unwrap() {
            lab.list();
        }
        return;
    }
    for case in CASES {
        let mut lab = Lab::new(case);
        let mut best = Duration::MAX;
        let end = Instant::now() + Duration::from_millis(400);
        while Instant::now() < end {
            let start = Instant::now();
            lab.list();
            best = best.min(start.elapsed());
        }
        let each = best.as_nanos() as f64 / LIST as f64;
        let rate = case.len as f64 * 8.0 / each;
        println!("{:<16}{each:>10.1} ns a message, both ends{rate:>9.1} Gb/s", case.name);
    }
}
