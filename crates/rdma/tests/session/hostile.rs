//! An application that writes anything into the shared memory, and asks for anything: its session ends or goes on, and
//! no memory is reached that is not registered.

use std::sync::atomic::Ordering;

use rdma::mpa::Config;
use rdma::session::message::{QpRequest, RegisterRequest};
use rdma::session::{Hostile, Request};
use rdma::verbs::{Limits, Work};
use testkit::bytes::Bytes;

use super::side::{CONTEXT, Side, WORDS, pump};
use crate::world::{BASE, negotiate};

pub(crate) fn limits() -> Limits {
    Limits {
        pds: 4,
        cqs: 6,
        cqe: 64,
        srqs: 3,
        qps: 5,
        wr: 16,
        sge: 4,
        inline: 256,
        queue_bytes: 1 << 20,
        regions: 24,
        registered: 1 << 20,
        reads: 16,
    }
}

/// Runs what the bytes say, until the session ends.
pub(crate) fn run(bytes: &mut Bytes<'_>) {
    let (mut a, mut b) = (Side::new(1, limits()), Side::new(2, limits()));
    let (ours, theirs) = negotiate(Config::default(), Config::default());
    a.start(&ours);
    b.start(&theirs);
    let waits = bytes.next();
    a.process.let_wait(a.qp, waits & 1 != 0);
    b.process.let_wait(b.qp, waits & 2 != 0);
    let mut names = vec![0, u32::MAX, a.pd, a.cq, a.qp.0, a.stag, b.stag];
    while !bytes.is_empty() {
        if step(bytes, &mut a, &mut names).is_err() {
            return;
        }
        if bytes.next() < 128 && pump(&mut a, &mut b).is_err() {
            return;
        }
    }
}

fn step(bytes: &mut Bytes<'_>, a: &mut Side, names: &mut Vec<u32>) -> Result<(), Hostile> {
    match bytes.next() % 8 {
        // Any word of the first page and of the queues.
        0..=2 => {
            let near = usize::from(u16::from_le_bytes(bytes.array()));
            let at = match bytes.next() % 4 {
                0 => near % WORDS,
                1 => a.areas[near % 3].at as usize + bytes.next() as usize,
                2 => near % 128,
                _ => a.areas[near % 3].at as usize,
            };
            let value = match bytes.next() % 4 {
                0 => u64::from(bytes.next()),
                1 => u64::from_le_bytes(bytes.array()),
                2 => BASE + u64::from(bytes.next()),
                _ => a.memory[at].load(Ordering::Relaxed).wrapping_add(bytes.next().into()),
            };
            a.memory[at].store(value, Ordering::Relaxed);
        }
        3 => {
            let (stag, offset) = (names[usize::from(bytes.next()) % names.len()], BASE);
            let work = bytes.pick(&[
                Work::Send { invalidate: Some(stag) },
                Work::Write { stag, offset },
                Work::Read { stag, offset },
                Work::LocalInvalidate { stag },
            ]);
            let sges = [a.sge(bytes.next().into(), bytes.next().into())];
            a.send(bytes.next().into(), work, &sges);
        }
        4 => {
            let sges = [a.sge(bytes.next().into(), bytes.next().into())];
            a.receive(bytes.next().into(), &sges);
        }
        5 => drop(a.poll()),
        _ => {
            let name = |bytes: &mut Bytes<'_>| names[usize::from(bytes.next()) % names.len()];
            let (one, other) = (name(bytes), name(bytes));
            let request = request(bytes, one, other);
            if let Ok(reply) = a.ask(&request) {
                names.push(reply.words[0] as u32);
            }
        }
    }
    let mut pairs = Vec::new();
    a.process.take_posts(a.memory, |qp| pairs.push(qp));
    pairs.into_iter().try_for_each(|qp| a.process.pull(a.memory, 0, qp))
}

fn request(bytes: &mut Bytes<'_>, one: u32, other: u32) -> Request<'static> {
    let small = u32::from(bytes.next());
    match bytes.next() % 20 {
        0 => Request::AllocPd(CONTEXT),
        1 => Request::DeallocPd(one),
        2 => {
            let (addr, len, iova) =
                (BASE, u64::from(small) << 4, u64::from_le_bytes(bytes.array()));
            let access = bytes.next().into();
            Request::Register(RegisterRequest { pd: one, access, addr, len, iova, file: None })
        }
        3 => Request::Deregister(one),
        4 => Request::AllocWindow { pd: one, is_type_2: small & 1 != 0 },
        5 => Request::DeallocWindow(one),
        6 => Request::CreateCq { context: small & 1, depth: bytes.next().into(), channel: None },
        7 => Request::DestroyCq(one),
        8 => Request::Moderate { cq: one, count: small as u16, period: bytes.next().into() },
        9 => {
            let (depth, sges) = (small, bytes.next());
            Request::CreateSrq { context: CONTEXT, pd: one, depth, sges }
        }
        10 => Request::ArmSrq { srq: one, limit: small },
        11 => Request::QuerySrq(one),
        12 => Request::DestroySrq(one),
        13..=14 => Request::CreateQp(QpRequest {
            context: CONTEXT,
            pd: one,
            send_cq: other,
            receive_cq: other,
            srq: (small & 1 != 0).then_some(one),
            sends: small,
            receives: bytes.next().into(),
            send_sges: bytes.next(),
            receive_sges: bytes.next(),
            inline: bytes.next().into(),
            signal_all: small & 2 != 0,
        }),
        15 => Request::ModifyQp { qp: one, state: bytes.next() % 8 },
        16 => Request::QueryQp(one),
        17 => Request::DestroyQp(one),
        18 => Request::CloseContext(small & 1),
        _ => Request::Query,
    }
}
