//! What a buffer of the program's, filled without the receive ring, would save: `ch_nic_post` of "TCP Offload through
//! Connection Handoff" (Table 1).
//!
//! A worker on one CPU has 64 KB in frames of 1,448 bytes of payload, for a program on another. By the ring, the worker
//! copies them there, and the program from there to its buffer. Posted, the worker writes them to the program's buffer, which
//! it reaches by `/proc/PID/mem`. Both times the program then reads its buffer once. It prints the time that each of the two
//! took, without that in which it waited for the other, and the sum: medians in nanoseconds a call of 64 KB.
//!
//! Run on a quiet machine with two CPUs as `cargo run --release -p sys --example post [CALLS]`.

use std::error::Error;
use std::hint::black_box;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use sys::affinity;
use sys::process_memory::ProcessMemory;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CALL: usize = 65_536;
const PAYLOAD: usize = 1_448;
/// A frame and its headers, where the worker has it.
const FRAME: usize = 2_048;
/// As many as a worker has on their way: more than its second-level cache holds.
const FRAMES: usize = 2_048;
/// Rings that go round between the two.
const RINGS: usize = 4;

/// What the two say to each other.
enum Told {
    /// A part of the ring, with bytes or with room.
    Ring(Box<[u8]>),
    /// The address of a buffer, or that it has been filled.
    Posted(u64),
}

fn main() -> Result<()> {
    let calls = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse::<usize>())?;
    println!("{:<8}{:>12}{:>12}{:>12}", "by", "worker ns", "program ns", "sum ns");
    for (name, is_posted) in [("ring", false), ("post", true), ("ring", false), ("post", true)] {
        let (worker, program) = run(calls, is_posted)?;
        println!("{name:<8}{worker:>12}{program:>12}{:>12}", worker + program);
    }
    Ok(())
}

/// Medians of the worker's time for a call, and of the program's.
fn run(calls: usize, is_posted: bool) -> Result<(u64, u64)> {
    let (to_worker, from_program) = channel();
    let (to_program, from_worker) = channel();
    let worker = thread::spawn(move || worker(calls, &from_program, &to_program));
    let program = thread::spawn(move || program(calls, is_posted, &from_worker, &to_worker));
    let join = |thread: thread::JoinHandle<Result<Vec<u64>>>| {
        thread.join().map_err(|_| "a thread panicked".into()).flatten().map(median)
    };
    Ok((join(worker)?, join(program)?))
}

fn worker(calls: usize, from: &Receiver<Told>, to: &Sender<Told>) -> Result<Vec<u64>> {
    affinity::pin(1)?;
    let memory = ProcessMemory::new(ProcessMemory::own()?)?;
    let pool = vec![1_u8; FRAME * FRAMES];
    let mut frames = pool.chunks_exact(FRAME).map(|frame| &frame[FRAME - PAYLOAD..]).cycle();
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let told = wait(from)?;
        let since = Instant::now();
        let mut rest = CALL;
        let parts: Vec<&[u8]> = std::iter::from_fn(|| {
            let part = frames.next().filter(|_| rest > 0)?;
            let part = &part[..part.len().min(rest)];
            rest -= part.len();
            Some(part)
        })
        .collect();
        let answer = match told {
            Told::Ring(mut ring) => {
                let mut room = &mut ring[..];
                for part in parts {
                    let (into, behind) = room.split_at_mut(part.len());
                    into.copy_from_slice(part);
                    room = behind;
                }
                Told::Ring(ring)
            }
            Told::Posted(address) => {
                let written = memory.write(address, &parts)?;
                assert_eq!(written, CALL);
                Told::Posted(address)
            }
        };
        times.push(nanoseconds(since));
        to.send(answer)?;
    }
    Ok(times)
}

fn program(
    calls: usize,
    is_posted: bool,
    from: &Receiver<Told>,
    to: &Sender<Told>,
) -> Result<Vec<u64>> {
    affinity::pin(0)?;
    let mut buffer = vec![0_u8; CALL];
    let address = buffer.as_mut_ptr().expose_provenance() as u64;
    if !is_posted {
        (0..RINGS).try_for_each(|_| to.send(Told::Ring(vec![0; CALL].into())))?;
    }
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        if is_posted {
            to.send(Told::Posted(address))?;
        }
        let told = wait(from)?;
        let since = Instant::now();
        if let Told::Ring(ring) = &told {
            buffer.copy_from_slice(ring);
        }
        // Another has written there.
        let sum: u64 = black_box(&mut buffer[..]).iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(sum, CALL as u64);
        times.push(nanoseconds(since));
        if let Told::Ring(_) = told {
            // The worker may have ended.
            let _ = to.send(told);
        }
    }
    Ok(times)
}

/// As a worker that spins, and a program whose next bytes are there.
fn wait(from: &Receiver<Told>) -> Result<Told> {
    loop {
        match from.try_recv() {
            Ok(told) => return Ok(told),
            Err(std::sync::mpsc::TryRecvError::Empty) => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
}

fn nanoseconds(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all[all.len() / 2]
}
