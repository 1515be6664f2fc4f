//! Frames at a steady rate, in both directions at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use std::os::fd::AsFd;
use sys::frames::FramePool;
use sys::interface;
use sys::packet::{BATCH, Config, Message, PacketSocket};
use sys::poll::poll;

use super::wan::{ENDS, Wan};
use crate::Error;
use crate::link::DEGEN;
use crate::sink::io;

/// IEEE 802: for experiments, on whose frames no stack has a say.
const ETHERTYPE: u16 = 0x88b5;
const HEADER: usize = 14;
/// Frames that are sent together: all but the first are sent a little later than they say.
const TOGETHER: u64 = 4;
/// How long after the last frame was to arrive it is waited for those that are late.
const AFTERMATH: Duration = Duration::from_millis(300);
/// Frames sent before those that count, in each direction: all is warm by then.
const WARM_UP: u64 = 2_000;
/// To send so many frames takes less, in nanoseconds, unless it is interrupted.
const INTERRUPTED: u64 = 40_000;
/// How late a sender may be until it gives up catching up, in nanoseconds.
const BEHIND: u64 = 2_000_000;
const NO_VNET: [u8; sys::packet::VNET_HDR_LEN] = [0; sys::packet::VNET_HDR_LEN];
const ENOBUFS: i32 = 105;

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Frames in each direction.
    pub(super) packets: u64,
    /// Frames a second in each direction.
    pub(super) rate: u32,
    /// Bytes of a frame.
    pub(super) len: usize,
}

/// What arrived on one side.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    /// Frames, those that came twice counted twice.
    pub(super) frames: u64,
    /// How long each was in flight, in nanoseconds, and its number.
    pub(super) delays: Vec<(u64, u64)>,
    first: u64,
    last: u64,
}

impl Taken {
    /// Frames a second, from the first to the last.
    pub(super) fn rate(&self) -> f64 {
        self.frames.saturating_sub(1) as f64 * 1e9
            / self.last.saturating_sub(self.first).max(1) as f64
    }
}

/// The outcome of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What arrived on the left and on the right.
    pub(super) taken: [Taken; 2],
    /// Time that degen was on a CPU, in per cent of one, while frames were sent.
    pub(super) cpu: f64,
    /// Numbers of the frames with which the sender itself was interrupted, in order: they may have
    /// waited between their stamp and the wire.
    pub(super) interrupted: Vec<u64>,
}

/// Sends and receives; `delay` is how long frames are delayed at least, in nanoseconds.
pub(super) fn run(wan: &Wan, plan: Plan, delay: u64) -> Result<Outcome, Error> {
    let senders = sockets(wan, &Config { send_only: true, ..Config::default() })?;
    let stamps = Config { stamps: true, receive_buffer: 64 << 20, ..Config::default() };
    let receivers = sockets(wan, &stamps)?;
    let enough = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&enough);
    let capacity = plan.packets as usize;
    let receiving: JoinHandle<std::io::Result<[Taken; 2]>> = std::thread::Builder::new()
        .name("receiver".to_owned())
        .spawn(move || receive(receivers, capacity, &stop))
        .map_err(io("start a receiver"))?;
    let (cpu, began) = (sys::process::threads_cpu(DEGEN), sys::clock::now());
    let sending = std::thread::Builder::new().name("sender".to_owned());
    let sending = sending.spawn(move || send(senders, plan)).map_err(io("start a sender"))?;
    let sent = sending.join().map_err(|_| failed("the sender panicked"))?;
    let cpu = sys::process::threads_cpu(DEGEN).saturating_sub(cpu) as f64;
    let cpu = 100.0 * cpu / sys::clock::now().saturating_sub(began).max(1) as f64;
    std::thread::sleep(Duration::from_nanos(delay) + AFTERMATH);
    enough.store(true, Ordering::Release);
    let taken = receiving.join().map_err(|_| failed("the receiver panicked"))?;
    let interrupted = sent.map_err(io("send frames"))?;
    Ok(Outcome { taken: taken.map_err(io("receive frames"))?, cpu, interrupted })
}

fn failed(why: &str) -> Error {
    Error::Failed { system: "degen", why: why.to_owned() }
}

fn sockets(wan: &Wan, config: &Config) -> Result<[PacketSocket; 2], Error> {
    let open = |side: usize| -> Result<PacketSocket, Error> {
        let open = || -> Result<PacketSocket, Error> {
            let index = interface::index(ENDS[side])?;
            PacketSocket::open(index, *config).map_err(io("open a packet socket"))
        };
        wan.hosts[side].run(open)?
    };
    Ok([open(0)?, open(1)?])
}

/// Sends from both sides in turn. The numbers of the frames with which it was interrupted.
fn send(mut sockets: [PacketSocket; 2], plan: Plan) -> std::io::Result<Vec<u64>> {
    let mut interrupted = Vec::new();
    let _ = sys::process::set_timer_slack(1);
    // Where a frame waits between its stamp and the wire, it is not degen that it waits for.
    let cpus = sys::affinity::cpus()?;
    let _ = cpus.first().map(|cpu| sys::affinity::pin(*cpu));
    let _ = sys::process::run_in_real_time();
    let mut frames = vec![vec![0; plan.len.max(HEADER + 16)]; TOGETHER as usize];
    for frame in &mut frames {
        // Addresses that no interface has, locally administered.
        frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame[12..HEADER].copy_from_slice(&ETHERTYPE.to_be_bytes());
    }
    let interval = TOGETHER * 1_000_000_000 / u64::from(plan.rate.max(1));
    let mut next = sys::clock::now();
    let mut number = 0;
    while number < WARM_UP + plan.packets {
        wait_until(next);
        let count = TOGETHER.min(WARM_UP + plan.packets - number);
        for socket in &mut sockets {
            let numbers = (number..number + count)
                .map(|number| number.checked_sub(WARM_UP).map_or(0, |number| number + 1));
            for (frame, number) in frames.iter_mut().zip(numbers.clone()) {
                frame[HEADER..HEADER + 8].copy_from_slice(&number.to_be_bytes());
            }
            let began = sys::clock::now();
            send_all(socket, &mut frames[..count as usize])?;
            if sys::clock::now().saturating_sub(began) > INTERRUPTED {
                interrupted.extend(numbers);
            }
        }
        number += count;
        next = (next + interval).max(sys::clock::now().saturating_sub(BEHIND));
    }
    interrupted.dedup();
    Ok(interrupted)
}

/// Sends all of them, stamped, however often it takes.
fn send_all(socket: &mut PacketSocket, mut frames: &mut [Vec<u8>]) -> std::io::Result<()> {
    while !frames.is_empty() {
        let now = sys::clock::now();
        for frame in frames.iter_mut() {
            frame[HEADER + 8..HEADER + 16].copy_from_slice(&now.to_be_bytes());
        }
        let message = |frame| Message { vnet: NO_VNET, header: frame, payload: &[] };
        let mut messages = [message(&[]); TOGETHER as usize];
        for (place, frame) in messages.iter_mut().zip(frames.iter()) {
            *place = message(frame);
        }
        match socket.send(&messages[..frames.len()]) {
            Ok(taken) => frames = &mut frames[taken..],
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sleeps for as long as it is worth it.
fn wait_until(time: u64) {
    let now = sys::clock::now();
    if time > now + 5_000 {
        std::thread::sleep(Duration::from_nanos(time - now));
    }
}

/// Receives on both sides until it is enough.
fn receive(
    mut sockets: [PacketSocket; 2],
    capacity: usize,
    enough: &AtomicBool,
) -> std::io::Result<[Taken; 2]> {
    let cpus = sys::affinity::cpus()?;
    let _ = cpus.first().map(|cpu| sys::affinity::pin(*cpu));
    // Or the sender, which is, would never let it.
    let _ = sys::process::run_in_real_time();
    let mut pool = FramePool::new(1024, 2048)?;
    let mut received = Vec::with_capacity(BATCH);
    let mut taken =
        [(); 2].map(|()| Taken { delays: Vec::with_capacity(capacity), ..Taken::default() });
    while !enough.load(Ordering::Acquire) {
        let mut any = false;
        for (socket, taken) in sockets.iter_mut().zip(&mut taken) {
            socket.receive(&mut pool, &mut received, BATCH)?;
            any |= !received.is_empty();
            for frame in received.drain(..) {
                if let Some((number, sent, stamp)) = times(pool.bytes(&frame.frame), frame.stamp) {
                    if taken.frames == 0 {
                        taken.first = stamp;
                    }
                    taken.frames += 1;
                    taken.last = stamp;
                    taken.delays.push((stamp.saturating_sub(sent), number));
                }
                pool.free(frame.frame);
            }
        }
        if any {
            // Stamped by the kernel, they may wait: together they cost less.
            std::thread::sleep(Duration::from_micros(200));
        } else {
            poll(&[sockets[0].as_fd(), sockets[1].as_fd()], Some(10_000_000))?;
        }
    }
    Ok(taken)
}

/// The number of a frame that counts, when it was sent, and when it was received.
fn times(frame: &[u8], stamp: Option<u64>) -> Option<(u64, u64, u64)> {
    let word = |at: usize| Some(u64::from_be_bytes(frame.get(at..at + 8)?.try_into().ok()?));
    let ours = frame.get(12..HEADER)? == ETHERTYPE.to_be_bytes();
    let number = word(HEADER).filter(|number| ours && *number > 0)?;
    Some((number, word(HEADER + 8)?, stamp?))
}
