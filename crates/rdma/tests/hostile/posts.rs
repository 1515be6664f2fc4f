//! An application that calls verbs with any numbers, and posts anything: it gets errors and completions, and reaches
//! no memory but what it has registered.

use rdma::mpa::Config;
use rdma::rdmap::atomic::Operation;
use rdma::verbs::{
    Access, Bind, Cq, FastRegister, Flags, Limits, Payload, Pd, Qp, QpConfig, RecvRequest,
    Registration, SendRequest, Sge, Srq, State, WindowKind, Work,
};
use rdma::{Completion, Handle};
use testkit::bytes::Bytes;

use crate::world::{BASE, Host, Pair, Setup, negotiate};

/// Numbers that were names once, of all kinds: an application may confuse them.
struct Drive {
    pair: Pair,
    numbers: Vec<u32>,
}

/// Runs what the bytes say.
pub(crate) fn run(bytes: &mut Bytes<'_>) {
    let limits = Limits {
        pds: 4,
        cqs: 6,
        cqe: 64,
        srqs: 3,
        qps: 4,
        wr: 16,
        sge: 4,
        inline: 256,
        queue_bytes: 1 << 20,
        regions: 24,
        registered: 1 << 20,
        reads: 16,
    };
    let setup = Setup { limits, cqe: 32, sends: 16, receives: 16, ..Setup::default() };
    let pair = Pair::new(&setup);
    let a = &pair.a;
    let mut numbers = vec![0, 1, u32::MAX, a.stag, a.stag | 1, a.qp.0, a.pd.0, a.send_cq.0];
    numbers.push(pair.b.stag);
    let mut drive = Drive { pair, numbers };
    while !bytes.is_empty() {
        drive.step(bytes);
    }
    drive.pair.pump_all();
}

fn word(bytes: &mut Bytes<'_>) -> u64 {
    let [kind, near] = bytes.array();
    match kind % 6 {
        0 => u64::from(near),
        1 => BASE + u64::from(near) * 8,
        2 => BASE + 65_536 - u64::from(near),
        3 => u64::MAX - u64::from(near),
        4 => 1 << (near % 64),
        _ => u64::from_le_bytes(bytes.array()),
    }
}

impl Drive {
    fn number(&self, bytes: &mut Bytes<'_>) -> u32 {
        let at = bytes.next();
        if at >= 250 {
            return u32::from_le_bytes(bytes.array());
        }
        self.numbers[usize::from(at) % self.numbers.len()]
    }

    /// The queue pair that is connected, mostly.
    fn qp(&self, bytes: &mut Bytes<'_>) -> Qp {
        if bytes.next() < 200 { self.pair.a.qp } else { Qp::new(self.number(bytes)) }
    }

    fn access(bytes: &mut Bytes<'_>) -> Access {
        Access::from_bits(u32::from(bytes.next())).unwrap_or(Access::ALL)
    }

    fn keep<T>(&mut self, made: Result<T, rdma::verbs::Error>, number: impl FnOnce(T) -> u32) {
        if let Ok(made) = made {
            self.numbers.push(number(made));
        }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.next() % 24 {
            0 => {
                let made = self.pair.a.rnic.alloc_pd();
                self.keep(made, |pd| pd.0);
            }
            1 => {
                let pd = Pd::new(self.number(bytes));
                let _ = self.pair.a.rnic.dealloc_pd(pd);
            }
            2 => {
                let (pd, iova) = (Pd::new(self.number(bytes)), word(bytes));
                let (len, access) = (word(bytes) % (1 << 21), Self::access(bytes));
                // The device gives memory of that length, or the registration fails before.
                let memory = self.pair.a.handle(len.min(1 << 16) as usize);
                let len = len.min(1 << 16);
                let of = Registration { pd, iova, len, access, memory };
                let made = self.pair.a.rnic.register(of);
                self.keep(made, |stag| stag);
            }
            3 => {
                let stag = self.number(bytes);
                if let Ok(Handle(memory)) = self.pair.a.rnic.deregister(stag) {
                    // It is the application's own again: whoever touches it now is wrong.
                    self.pair.a.ram.forbidden.insert(memory);
                }
            }
            4 => {
                let kind = if bytes.next() & 1 == 0 { WindowKind::One } else { WindowKind::Two };
                let pd = Pd::new(self.number(bytes));
                let made = self.pair.a.rnic.alloc_window(pd, kind);
                self.keep(made, |stag| stag);
            }
            5 => {
                let (pd, most) = (Pd::new(self.number(bytes)), word(bytes));
                let made = self.pair.a.rnic.alloc_region(pd, most);
                self.keep(made, |stag| stag);
            }
            6 => drop(self.pair.a.rnic.dealloc_window(self.number(bytes))),
            7 => {
                let depth = u32::from(bytes.next());
                let made = self.pair.a.rnic.create_cq(depth);
                self.keep(made, |cq| cq.0);
            }
            8 => drop(self.pair.a.rnic.destroy_cq(Cq::new(self.number(bytes)))),
            9 => {
                let (pd, depth) = (Pd::new(self.number(bytes)), u32::from(bytes.next()));
                let made = self.pair.a.rnic.create_srq(pd, depth, bytes.next());
                self.keep(made, |srq| srq.0);
            }
            10 => drop(self.pair.a.rnic.destroy_srq(Srq::new(self.number(bytes)))),
            11 => {
                let config = QpConfig {
                    pd: Pd::new(self.number(bytes)),
                    send_cq: Cq::new(self.number(bytes)),
                    receive_cq: Cq::new(self.number(bytes)),
                    srq: (bytes.next() & 1 == 0).then(|| Srq::new(self.number(bytes))),
                    sends: u32::from(bytes.next() % 20),
                    receives: u32::from(bytes.next() % 20),
                    send_sges: bytes.next() % 6,
                    receive_sges: bytes.next() % 6,
                    inline: u32::from(bytes.next()) * 2,
                    signal_all: false,
                };
                let made = self.pair.a.rnic.create_qp(config);
                self.keep(made, |qp| qp.0);
            }
            12 => {
                let qp = Qp::new(self.number(bytes));
                if bytes.next() > 250 || qp != self.pair.a.qp {
                    let _ = self.pair.a.rnic.destroy_qp(qp);
                }
            }
            13 => {
                let qp = self.qp(bytes);
                let to = bytes.pick(&[State::Init, State::Rtr, State::Rts, State::Sqd, State::Err]);
                if to != State::Err || bytes.next() > 200 {
                    let _ = self.pair.a.rnic.modify(qp, to);
                }
            }
            14..=18 => self.post(bytes),
            19..=20 => {
                let sges = self.sges(bytes);
                let request = RecvRequest { wr_id: 1, sges: &sges };
                let qp = self.qp(bytes);
                let _ = self.pair.a.rnic.post_recv(qp, &request);
                let _ = self.pair.a.rnic.post_srq_recv(Srq::new(self.number(bytes)), &request);
                let _ = self
                    .pair
                    .b
                    .rnic
                    .post_recv(self.pair.b.qp, &RecvRequest { wr_id: 2, sges: &[] });
            }
            21 => {
                let cq = Cq::new(self.number(bytes));
                let mut taken = [Completion::default(); 3];
                let _ = self.pair.a.rnic.take_cq(cq, &mut taken);
                self.pair.a.rnic.release_cq(cq, u32::from(bytes.next()));
                let _ = self.pair.a.rnic.arm_cq(cq, bytes.next() & 1 == 0);
                let _ = self.pair.a.rnic.arm_srq(Srq::new(cq.0), u32::from(bytes.next()));
            }
            22 => self.pair.pump_all(),
            _ => self.again(bytes),
        }
        let (a, b) = (&mut self.pair.a, &mut self.pair.b);
        a.take_events();
        b.take_events();
        assert!(a.rnic.qps() <= 4);
    }

    fn sges(&self, bytes: &mut Bytes<'_>) -> Vec<Sge> {
        let count = bytes.next() % 6;
        (0..count)
            .map(|_| {
                let lkey = if bytes.next() < 180 { self.pair.a.stag } else { self.number(bytes) };
                let len = word(bytes) as u32 % if bytes.next() < 220 { 5000 } else { u32::MAX };
                Sge { addr: word(bytes), len, lkey }
            })
            .collect()
    }

    fn post(&mut self, bytes: &mut Bytes<'_>) {
        let sges = self.sges(bytes);
        let (stag, offset) = (self.number(bytes), word(bytes));
        let operation = Operation::FetchAdd { add: word(bytes), mask: word(bytes) };
        let work = match bytes.next() % 9 {
            0 => Work::Send { invalidate: None },
            1 => Work::Send { invalidate: Some(stag) },
            2 => Work::Write { stag, offset },
            3 => Work::WriteImmediate { stag, offset, immediate: [9; 4] },
            4 => Work::Read { stag, offset },
            5 => Work::Atomic { stag, offset, operation },
            6 => {
                let (window, len) = (self.number(bytes), word(bytes));
                let access = Self::access(bytes);
                Work::Bind(Bind { window, region: stag, offset, len, access })
            }
            7 => {
                let (len, access) = (word(bytes) % 70_000, Self::access(bytes));
                let memory = self.pair.a.handle(len as usize);
                Work::FastRegister(FastRegister { stag, iova: offset, len, access, memory })
            }
            _ => Work::LocalInvalidate { stag },
        };
        let flags = bytes.next();
        let flags = Flags {
            signaled: flags & 1 == 0,
            solicited: flags & 2 == 0,
            fence: flags & 4 == 0,
            local_fence: flags & 24 == 0,
        };
        let inline = [7; 300];
        let payload = match bytes.next() {
            len @ 0..64 => Payload::Inline(&inline[..usize::from(len) * 4]),
            _ => Payload::Sges(&sges),
        };
        let qp = self.qp(bytes);
        let request = SendRequest { wr_id: 3, work, payload, flags };
        let _ = self.pair.a.rnic.post_send(qp, &request);
    }

    /// A stream that is over begins anew.
    fn again(&mut self, bytes: &mut Bytes<'_>) {
        let is_over = |host: &Host| host.rnic.state(host.qp).is_ok_and(|state| state == State::Err);
        if !is_over(&self.pair.a) && bytes.next() < 250 {
            return;
        }
        let (here, there) = negotiate(Config::default(), Config::default());
        for (host, negotiated) in [(&mut self.pair.a, here), (&mut self.pair.b, there)] {
            host.held.clear();
            for state in [State::Reset, State::Init] {
                let _ = host.rnic.modify(host.qp, state);
            }
            let _ = host.rnic.start(host.qp, &negotiated, 600);
        }
    }
}
