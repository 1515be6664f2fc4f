//! Random programs: what two applications do, and what the network does to their streams.

use rdma::rdmap::atomic::Operation;
use rdma::verbs::{
    Access, Bind, Error, FastRegister, Flags, Payload, RecvRequest, Registration, SendRequest, Sge,
    State, WindowKind, Work,
};
use rdma::{Completion, Handle, Status};

use super::run::{CONNECTIONS, DEPTH, INLINE, Report, Run, SGES};
use super::send::bits;
use super::side::{
    At, Kind, LOCAL_WRITE, Phase, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Recv, Region,
    WINDOW_BIND, Wr,
};

/// Bytes of a region.
const BYTES: u64 = 4096;

/// One step of one side, or of the network.
pub(crate) fn step(run: &mut Run, report: &mut Report) -> Result<(), String> {
    let (side, connection) =
        (run.rng.below(2) as usize, run.rng.below(CONNECTIONS as u64) as usize);
    if run.is_over(connection) && run.rng.once_in(3) {
        return anew(run, connection, report);
    }
    match run.rng.below(64) {
        0..=17 => post(run, side, connection),
        18..=27 => receive(run, side, connection),
        28..=35 => run.transmit(side, connection, true),
        36..=46 => {
            let most = run.waiting(side, connection) as u64 + 1;
            let count = if run.rng.once_in(2) { most } else { run.rng.below(most) };
            run.deliver(side, connection, count as usize)
        }
        47..=51 => {
            let (which, count) = (run.rng.below(2) as usize, run.rng.below(20) as usize);
            count_ends(run, side, which, count, report);
            run.poll(side, which, count)
        }
        52..=54 => {
            register(run, side, None);
            Ok(())
        }
        55 => deregister(run, side),
        56 => {
            arm(run, side);
            Ok(())
        }
        57 => {
            scribble(run, side);
            Ok(())
        }
        58 => {
            let emss = 150 + run.rng.below(4000) as usize;
            set_emss(run, side, connection, emss);
            Ok(())
        }
        59 if run.rng.once_in(8) => close(run, side, connection),
        60 if run.rng.once_in(20) => abort(run, side, connection),
        61 if run.rng.once_in(20) => {
            report.lost += 1;
            run.lose(side, connection)
        }
        62 if run.rng.once_in(20) => {
            report.destroyed += 1;
            run.destroy(side, connection)
        }
        61 => run.hears(connection),
        62 if run.fault(2) => {
            let waits = run.rng.once_in(2);
            run.let_wait(side, connection, waits);
            Ok(())
        }
        _ if run.is_closed(connection) => anew(run, connection, report),
        _ => Ok(()),
    }
}

/// What is over begins anew.
fn anew(run: &mut Run, connection: usize, report: &mut Report) -> Result<(), String> {
    run.end(connection);
    run.connect(connection);
    report.streams += 1;
    Ok(())
}

fn count_ends(run: &Run, side: usize, which: usize, count: usize, report: &mut Report) {
    let entries = run.hosts[side].model.cqs[which].entries.iter().take(count);
    for completion in entries {
        match completion.status {
            Status::Success => report.successes += 1,
            _ => report.errors += 1,
        }
    }
}

/// A region, a window or room for fast registration; or a plain region of that domain.
pub(crate) fn register(run: &mut Run, side: usize, plain: Option<usize>) {
    let access = match (plain.is_some(), run.rng.below(4)) {
        (true, _) | (_, 0) => Access::ALL,
        (_, 1) => Access::LOCAL_WRITE.and(Access::REMOTE_WRITE),
        (_, 2) => Access::REMOTE_READ,
        _ => Access::LOCAL_WRITE.and(Access::WINDOW_BIND).and(Access::REMOTE_ATOMIC),
    };
    let which = if plain.is_some() { 0 } else { run.rng.below(4) };
    let domain = plain.unwrap_or_else(|| usize::from(run.rng.once_in(3)));
    let host = &mut run.hosts[side];
    if host.model.regions.len() > 16 {
        return;
    }
    let pd = host.pds[domain];
    let region = Region {
        stag: 0,
        kind: Kind::Region,
        valid: false,
        pd: domain,
        access: 0,
        iova: 0,
        len: 0,
        memory: 0,
        begin: 0,
        of: None,
        qp: None,
    };
    let region = match which {
        0 => {
            let iova = (host.handles + 1) << 20;
            let memory = memory(run, side);
            let of = Registration { pd, iova, len: BYTES, access, memory };
            let stag = run.hosts[side].rnic.register(of).unwrap();
            let (memory, valid, access) = (memory.0, true, bits(access));
            Region { stag, valid, access, iova, len: BYTES, memory, ..region }
        }
        1 => {
            let stag = host.rnic.alloc_region(pd, BYTES).unwrap();
            Region { stag, kind: Kind::Fast { most: BYTES }, ..region }
        }
        other => {
            let kind = if other == 2 { WindowKind::One } else { WindowKind::Two };
            let stag = host.rnic.alloc_window(pd, kind).unwrap();
            Region { stag, kind: Kind::Window(kind), ..region }
        }
    };
    run.hosts[side].model.regions.push(region);
}

/// Memory for a region, of random bytes.
fn memory(run: &mut Run, side: usize) -> Handle {
    let bytes: Vec<u8> = (0..BYTES / 8).flat_map(|_| run.rng.next().to_ne_bytes()).collect();
    let host = &mut run.hosts[side];
    host.handles += 1;
    host.ram.buffers.insert(host.handles, bytes.clone());
    host.model.memory.insert(host.handles, bytes);
    Handle(host.handles)
}

fn deregister(run: &mut Run, side: usize) -> Result<(), String> {
    let Some(stag) = some_stag(run, side) else { return Ok(()) };
    let host = &mut run.hosts[side];
    let Some(at) = host.model.find(stag) else { return Ok(()) };
    let is_window = matches!(host.model.regions[at].kind, Kind::Window(_));
    let (is, expected) = if is_window {
        (host.rnic.dealloc_window(stag), Ok(()))
    } else {
        let busy = host.model.windows(stag) > 0;
        let expected = if busy { Err(Error::Busy) } else { Ok(()) };
        (host.rnic.deregister(stag).map(drop), expected)
    };
    if expected.is_ok() {
        host.model.regions.remove(at);
    }
    if is == expected { Ok(()) } else { Err(format!("deregister: {is:?}, not {expected:?}")) }
}

/// Any STag of a side, mostly with the right key.
fn some_stag(run: &mut Run, side: usize) -> Option<u32> {
    let count = run.hosts[side].model.regions.len() as u64;
    if count == 0 {
        return None;
    }
    let at = run.rng.below(count) as usize;
    let stag = run.hosts[side].model.regions[at].stag;
    Some(if run.fault(40) { stag ^ 1 } else { stag })
}

/// A place in a region of a side's domain, for so many bytes; now and then one that is none.
fn place(run: &mut Run, (side, pd): (usize, usize), len: u32, needed: u32) -> (u32, u64) {
    if run.fault(60) {
        return (run.rng.next() as u32, run.rng.next());
    }
    // Mostly one that may be used.
    for _ in 0..8 {
        let Some(stag) = some_stag(run, side) else { break };
        let host = &run.hosts[side];
        let Some(at) = host.model.find(stag) else { break };
        let region = host.model.regions[at].clone();
        let is_local = needed & !(LOCAL_WRITE | WINDOW_BIND) == 0;
        let is_window = matches!(region.kind, Kind::Window(_));
        let is_good = region.valid
            && region.pd == pd
            && region.access & needed == needed
            && !(is_local && is_window);
        if !is_good && !run.fault(12) {
            continue;
        }
        let room = region.len.saturating_sub(u64::from(len));
        let offset = if room == 0 { 0 } else { run.rng.below(room + 1) };
        let offset = if run.fault(50) { BYTES } else { offset };
        return (stag, region.iova + offset);
    }
    (0x100, 0)
}

/// Elements of own memory, and their bytes together.
fn elements(run: &mut Run, of: (usize, usize), most: u64, needed: u32) -> (Vec<Sge>, u32) {
    let count = run.rng.below(u64::from(SGES) + 1);
    let mut sges = Vec::new();
    for _ in 0..count.min(most) {
        let len = match run.rng.below(8) {
            0 => 0,
            1 => 300 + run.rng.below(2500),
            _ => run.rng.below(64),
        } as u32;
        let (lkey, addr) = place(run, of, len, needed);
        sges.push(Sge { addr, len, lkey });
    }
    let len = sges.iter().map(|sge| sge.len).sum();
    (sges, len)
}

fn post(run: &mut Run, side: usize, connection: usize) -> Result<(), String> {
    let own = (side, domain(run, side, connection));
    let peer = (1 - side, domain(run, 1 - side, connection));
    let (mut sges, mut inline) = (Vec::new(), None);
    let kind = run.rng.below(16);
    let work = match kind {
        0..=4 => {
            let any;
            (sges, any) = elements(run, own, u64::from(SGES), 0);
            if run.rng.once_in(3) {
                let count = run.rng.below(u64::from(INLINE) + 1);
                let bytes: Vec<u8> = (0..count).map(|_| run.rng.next() as u8).collect();
                inline = Some(bytes);
            }
            let len = inline.as_ref().map_or(any, |bytes| bytes.len() as u32);
            let (stag, offset) = place(run, peer, len, REMOTE_WRITE);
            let receives = ready_to_receive(run, peer.0, connection);
            if run.rng.once_in(4) && (receives || run.fault(10)) {
                let immediate = (run.rng.next() as u32).to_ne_bytes();
                Work::WriteImmediate { stag, offset, immediate }
            } else {
                Work::Write { stag, offset }
            }
        }
        5..=9 => {
            if !ready_to_receive(run, peer.0, connection) && !run.fault(10) {
                return receive(run, peer.0, connection);
            }
            (sges, _) = elements(run, own, u64::from(SGES), 0);
            let invalidate = if run.rng.once_in(8) { Some(target(run, peer)) } else { None };
            let invalidate = invalidate.filter(|stag| *stag != 0x100 || run.fault(10));
            Work::Send { invalidate }
        }
        10..=11 => {
            let len;
            (sges, len) = elements(run, own, 1, LOCAL_WRITE);
            let (stag, offset) = place(run, peer, len, REMOTE_READ);
            Work::Read { stag, offset }
        }
        12 => {
            let (lkey, addr) = place(run, own, 8, LOCAL_WRITE);
            sges = vec![Sge { addr, len: 8, lkey }];
            let (stag, offset) = place(run, peer, 8, REMOTE_ATOMIC);
            let operation = operation(run);
            let offset = if run.fault(30) { offset } else { offset & !7 };
            Work::Atomic { stag, offset, operation }
        }
        13 => bind(run, own),
        14 => fast_register(run, own),
        _ => {
            let stag = target(run, own);
            if stag == 0x100 && !run.fault(10) {
                return Ok(());
            }
            Work::LocalInvalidate { stag }
        }
    };
    let flags = Flags {
        signaled: !run.rng.once_in(3),
        solicited: run.rng.once_in(3),
        fence: run.rng.once_in(8),
        local_fence: run.rng.once_in(12),
    };
    post_work(run, side, connection, work, sges, inline, flags)
}

/// An atomic operation, with masks or without.
fn operation(run: &mut Run) -> Operation {
    let (add, mask) = (run.rng.next(), run.rng.next() & run.rng.next());
    match run.rng.below(4) {
        0 => Operation::fetch_add(add),
        1 => Operation::FetchAdd { add, mask },
        2 => Operation::compare_swap(run.rng.below(3), run.rng.next()),
        _ => {
            // Of a few bits, so that they are often equal.
            let (compare, compare_mask) = (run.rng.next(), 1 << run.rng.below(64));
            Operation::CompareSwap { compare, compare_mask, swap: add, swap_mask: mask }
        }
    }
}

/// The domain of a queue pair.
fn domain(run: &Run, side: usize, connection: usize) -> usize {
    run.hosts[side].model.qps[connection].pd
}

fn post_work(
    run: &mut Run,
    side: usize,
    connection: usize,
    work: Work,
    sges: Vec<Sge>,
    inline: Option<Vec<u8>>,
    flags: Flags,
) -> Result<(), String> {
    run.ids += 1;
    let id = run.ids;
    run.say(|| format!("{side}.{connection} post {id} {work:x?} {sges:x?} {flags:?}"));
    let host = &mut run.hosts[side];
    let payload = match &inline {
        Some(bytes) => Payload::Inline(bytes),
        None => Payload::Sges(&sges),
    };
    let name = host.model.names.qps[connection];
    let is = host.rnic.post_send(name, &SendRequest { wr_id: id, work, payload, flags });
    let len = inline.as_ref().map_or(sges.iter().map(|sge| sge.len).sum(), |of| of.len() as u32);
    let wr = Wr { id, work, sges, inline, flags, len, at: At::Posted, msn: 0 };
    let of = &mut host.model.qps[connection];
    let expected = match of.phase {
        Phase::Open if of.sq.len() == DEPTH => Err(Error::Full),
        Phase::Open => {
            of.sq.push_back(wr);
            Ok(())
        }
        Phase::Closing => Err(Error::State),
        Phase::Gone => Err(Error::Invalid),
        Phase::Failing(_) | Phase::Over => {
            let completion = host.model.ended(connection, &wr, Status::Flushed);
            host.model.complete_send(connection, completion);
            Ok(())
        }
    };
    if is != expected {
        return Err(format!("post: {is:?}, not {expected:?}"));
    }
    run.compare(side, connection)
}

fn next_key(stag: u32) -> u32 {
    stag & !0xff | stag.wrapping_add(1) & 0xff
}

/// A region or window of a side's that is so; rarely any.
fn like(run: &mut Run, side: usize, is: impl Fn(&Region) -> bool) -> Option<u32> {
    let any = run.fault(8);
    let regions = run.hosts[side].model.regions.iter().filter(|region| any || is(region));
    let stags: Vec<u32> = regions.map(|region| region.stag).collect();
    if stags.is_empty() { None } else { Some(run.rng.pick(&stags)) }
}

/// More receives are posted than messages are on their way for them.
fn ready_to_receive(run: &Run, side: usize, connection: usize) -> bool {
    let model = &run.hosts[side].model;
    let of = &model.qps[connection];
    let posted = if of.srq { model.srq.len() } else { of.rq.len() };
    let takes = |wr: &&Wr| matches!(wr.work, Work::Send { .. } | Work::WriteImmediate { .. });
    let sender = &run.hosts[1 - side].model.qps[connection];
    of.waits || posted > sender.sq.iter().filter(takes).count() + run.messages_to(side, connection)
}

fn bind(run: &mut Run, (side, pd): (usize, usize)) -> Work {
    let is_free = |region: &Region| match region.kind {
        Kind::Window(kind) => region.pd == pd && (kind == WindowKind::One || !region.valid),
        _ => false,
    };
    let window = like(run, side, is_free);
    let len = if run.rng.once_in(5) { 0 } else { 1 + run.rng.below(2000) };
    let (region, offset) = place(run, (side, pd), len as u32, WINDOW_BIND | LOCAL_WRITE);
    let is_fit = window.is_some() && region != 0x100;
    if !is_fit && !run.fault(10) {
        return Work::Write { stag: 0, offset: 0 };
    }
    let is_two = |region: &Region| matches!(region.kind, Kind::Window(WindowKind::Two));
    let window = window.unwrap_or(0x100);
    let model = &run.hosts[side].model;
    let empties_two = len == 0 && model.find(window).is_some_and(|at| is_two(&model.regions[at]));
    let len = if empties_two { 1 } else { len };
    let rights = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    let (a, b) = (run.rng.pick(&rights), run.rng.pick(&rights));
    Work::Bind(Bind { window: next_key(window), region, offset, len, access: a.and(b) })
}

fn fast_register(run: &mut Run, (side, pd): (usize, usize)) -> Work {
    let is_free = |region: &Region| {
        matches!(region.kind, Kind::Fast { .. }) && !region.valid && region.pd == pd
    };
    let Some(stag) = like(run, side, is_free) else { return Work::Write { stag: 0, offset: 0 } };
    let memory = memory(run, side);
    let len = 1 + run.rng.below(BYTES);
    let access = if run.rng.once_in(4) { Access::LOCAL_WRITE } else { Access::ALL };
    let iova = memory.0 << 20;
    Work::FastRegister(FastRegister { stag: next_key(stag), iova, len, access, memory })
}

/// What can be invalidated; 0x100 if there is nothing.
fn target(run: &mut Run, (side, pd): (usize, usize)) -> u32 {
    let is = |region: &Region| {
        let kind = matches!(region.kind, Kind::Fast { .. } | Kind::Window(WindowKind::Two));
        kind && region.valid && region.pd == pd && region.access & !LOCAL_WRITE != 0
    };
    like(run, side, is).unwrap_or(0x100)
}

pub(crate) fn receive(run: &mut Run, side: usize, connection: usize) -> Result<(), String> {
    let srq = run.hosts[side].model.qps[connection].srq;
    // A shared queue is of the first domain.
    let of = (side, if srq { 0 } else { domain(run, side, connection) });
    let (mut sges, _) = elements(run, of, u64::from(SGES), LOCAL_WRITE);
    // Mostly large enough.
    if !run.fault(12) {
        let (lkey, addr) = place(run, of, BYTES as u32 / 2, LOCAL_WRITE);
        let long = Sge { addr, len: BYTES as u32 / 2, lkey };
        sges.truncate(usize::from(SGES) - 1);
        sges.push(long);
    }
    run.ids += 1;
    let id = run.ids;
    let host = &mut run.hosts[side];
    let request = RecvRequest { wr_id: id, sges: &sges };
    let recv = Recv { id, sges: sges.clone() };
    let (is, expected) = if srq {
        let is = host.rnic.post_srq_recv(host.model.names.srq, &request);
        let is_full = host.model.srq.len() == DEPTH;
        if !is_full {
            host.model.srq.push_back(recv);
        }
        (is, if is_full { Err(Error::Full) } else { Ok(()) })
    } else {
        let name = host.model.names.qps[connection];
        let is = host.rnic.post_recv(name, &request);
        let of = &mut host.model.qps[connection];
        let expected = match of.phase {
            Phase::Open | Phase::Closing if of.rq.len() == DEPTH => Err(Error::Full),
            Phase::Open | Phase::Closing => {
                of.rq.push_back(recv);
                Ok(())
            }
            Phase::Gone => Err(Error::Invalid),
            Phase::Failing(_) | Phase::Over => {
                let (wr_id, status) = (id, Status::Flushed);
                let completion = Completion { wr_id, qp: name, status, ..Completion::default() };
                host.model.complete_receive(connection, completion, false);
                Ok(())
            }
        };
        (is, expected)
    };
    if is != expected {
        return Err(format!("post_recv: {is:?}, not {expected:?}"));
    }
    run.compare(side, connection)
}

fn arm(run: &mut Run, side: usize) {
    let (which, solicited) = (run.rng.below(2) as usize, run.rng.once_in(2));
    let limit = run.rng.below(6) as usize;
    let host = &mut run.hosts[side];
    host.rnic.arm_cq(host.model.names.cqs[which], solicited).unwrap();
    let cq = &mut host.model.cqs[which];
    cq.armed = Some(solicited && cq.armed != Some(false));
    host.rnic.arm_srq(host.model.names.srq, limit as u32).unwrap();
    host.model.srq_limit = limit;
}

/// The application writes into its own memory.
fn scribble(run: &mut Run, side: usize) {
    let host = &run.hosts[side];
    if host.handles == 0 {
        return;
    }
    let handle = 1 + run.rng.below(host.handles);
    let at = run.rng.below(BYTES - 8) as usize;
    let bytes = run.rng.next().to_ne_bytes();
    let host = &mut run.hosts[side];
    for memory in [&mut host.ram.buffers, &mut host.model.memory] {
        if let Some(buffer) = memory.get_mut(&handle) {
            buffer[at..at + 8].copy_from_slice(&bytes);
        }
    }
}

fn set_emss(run: &mut Run, side: usize, connection: usize, emss: usize) {
    let host = &mut run.hosts[side];
    if !host.model.qps[connection].connected {
        return;
    }
    host.rnic.set_emss(host.model.names.qps[connection], emss);
    let markers = run.markers_out(side, connection);
    run.hosts[side].model.qps[connection].mulpdu = super::run::mulpdu(emss, markers);
}

fn close(run: &mut Run, side: usize, connection: usize) -> Result<(), String> {
    let host = &mut run.hosts[side];
    let is = host.rnic.disconnect(host.model.names.qps[connection]);
    let of = &mut host.model.qps[connection];
    let expected = match of.phase {
        Phase::Open | Phase::Closing => {
            of.phase = Phase::Closing;
            Ok(())
        }
        Phase::Gone => Err(Error::Invalid),
        _ => Err(Error::State),
    };
    if is == expected { Ok(()) } else { Err(format!("disconnect: {is:?}, not {expected:?}")) }
}

/// The application ends a queue pair at once.
fn abort(run: &mut Run, side: usize, connection: usize) -> Result<(), String> {
    run.say(|| format!("{side}.{connection} abort"));
    let host = &mut run.hosts[side];
    let is = host.rnic.modify(host.model.names.qps[connection], State::Err);
    if host.model.qps[connection].phase == Phase::Gone {
        return if is == Err(Error::Invalid) { Ok(()) } else { Err(format!("modify: {is:?}")) };
    }
    let model = &mut host.model;
    if matches!(model.qps[connection].phase, Phase::Open | Phase::Closing) {
        model.flush(connection, None, None);
    }
    model.qps[connection].phase = Phase::Over;
    run.compare(side, connection)
}
