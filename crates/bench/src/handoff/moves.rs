//! What moving connections costs: how long one stands still, how many move in a second, and what others notice.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::program::Work;
use super::testbed::{Program, Testbed};
use super::{Case, Options, Place, Reading, quantile, report_runs};
use crate::sink::io;
use crate::{Error, Report};

/// Bytes that the program has not read when its connection moves.
const QUEUED: [usize; 4] = [0, 4_096, 65_536, 1 << 20];
/// After how long it is asked again that connections move.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The most that the kernel lets a connection have unread: room for the largest of them, and its overhead.
const RCVBUF: &str = "4096 16777216 33554432";

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let all = QUEUED.len() + options.repetitions;
    for (done, queued) in QUEUED.into_iter().enumerate() {
        report.progress(done, all, &format!("moves with {queued} bytes"));
        for (to, mut stops) in one(options, queued)? {
            stops.sort_unstable();
            let run = vec![
                Reading::new("stop_time", "us", quantile(&stops, 0.5) / 1e3),
                Reading::new("p99_stop_time", "us", quantile(&stops, 0.99) / 1e3),
            ];
            let varied = vec![("to", to.name().into()), ("queued", queued.into())];
            report_runs(Case::Handoff, &varied, &[run], report);
        }
    }
    let mut runs = [Vec::new(), Vec::new()];
    let mut others = Vec::new();
    for repetition in 0..options.repetitions {
        report.progress(QUEUED.len() + repetition, all, &format!("{} at once", options.idle));
        let (per_second, noticed) = many(options)?;
        for (runs, per_second) in runs.iter_mut().zip(per_second) {
            runs.push(vec![Reading::new("per_second", "1/s", per_second)]);
        }
        others.push(noticed);
    }
    for (to, runs) in [Place::Nic, Place::Os].into_iter().zip(&runs) {
        let varied = vec![("to", to.name().into()), ("connections", options.idle.into())];
        report_runs(Case::Handoff, &varied, runs, report);
    }
    report_runs(Case::Handoff, &vec![("connections", options.idle.into())], &others, report);
    Ok(())
}

/// One connection moves again and again: how long it stood still each time, in nanoseconds.
fn one(options: &Options, queued: usize) -> Result<[(Place, Vec<u64>); 2], Error> {
    let testbed = Testbed::new(options, 1)?;
    // New connections of the server's take it from here.
    let path = "/proc/sys/net/ipv4/tcp_rmem";
    testbed.hosts.server.run(|| std::fs::write(path, RCVBUF))?.map_err(io("set tcp_rmem"))?;
    let mut program = testbed.program(Place::Nic, "by_hand", (Work::Idle, 1, 1))?;
    let to = program.to;
    let connect = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(to)?;
        stream.write_all(&vec![0x55; queued])?;
        Ok(stream)
    };
    let stream = testbed.hosts.client.run(connect)?.map_err(io("connect"))?;
    program.accepted()?;
    let mut stops = [(Place::Nic, Vec::new()), (Place::Os, Vec::new())];
    for _ in 0..options.moves {
        for (place, times) in &mut stops {
            times.push(testbed.moved(*place)?);
        }
    }
    drop((stream, program));
    testbed.stop()?;
    Ok(stops)
}

impl Testbed {
    /// Moves the only connection. How long it stood still.
    fn moved(&self, to: Place) -> Result<u64, Error> {
        let (count, time) = match to {
            Place::Nic => ("stops_to_nic", "stopped_to_nic_ns"),
            Place::Os => ("stops_to_os", "stopped_to_os_ns"),
        };
        let before = [count, time].map(|name| self.counter(name));
        self.move_until("a move", to, || self.counter(count) > before[0])?;
        Ok(self.counter(time) - before[1])
    }

    /// Asks for all connections to move until that is so.
    fn move_until(&self, what: &str, to: Place, is_so: impl Fn() -> bool) -> Result<(), Error> {
        let mut asked: Option<Instant> = None;
        self.wait(what, || {
            if is_so() {
                return true;
            }
            // Those that were accepted or moved just now may not be known yet.
            if asked.is_none_or(|at| at.elapsed() > ASK_AGAIN) {
                asked = Some(Instant::now());
                self.ask_to_move(to);
            }
            false
        })
    }
}

/// Many move at once: how many in a second, to the NIC and back, and how long a byte of another program's takes there and
/// back meanwhile.
fn many(options: &Options) -> Result<([f64; 2], Vec<Reading>), Error> {
    let connections = options.idle;
    let testbed = Testbed::new(options, connections)?;
    let mut program = testbed.program(Place::Nic, "by_hand", (Work::Idle, connections, 1))?;
    let mut clients = testbed.idle_clients(&program, connections)?;
    program.accepted()?;
    clients.accepted()?;
    let times = [Place::Nic, Place::Os].map(|place| testbed.move_all(place, connections));
    let [to_nic, to_os] = times;
    let per_second = [to_nic?, to_os?];
    let (quiet, busy) = notice(&testbed, options, connections)?;
    drop((clients, program));
    testbed.stop()?;
    let noticed = vec![
        Reading::new("others_p99_rtt", "us", quiet),
        Reading::new("others_p99_rtt_during_moves", "us", busy),
    ];
    Ok((per_second, noticed))
}

impl Testbed {
    /// Moves all connections. How many in a second.
    fn move_all(&self, to: Place, connections: usize) -> Result<f64, Error> {
        let name = match to {
            Place::Nic => "stops_to_nic",
            Place::Os => "stops_to_os",
        };
        let (before, begun) = (self.counter(name), Instant::now());
        self.move_until("moving all", to, || self.counter(name) - before >= connections as u64)?;
        Ok(connections as f64 / begun.elapsed().as_secs_f64())
    }
}

/// Round trips of another program's, 99 of 100 of them, in microseconds: while nothing moves, and while all do.
fn notice(testbed: &Testbed, options: &Options, connections: usize) -> Result<(f64, f64), Error> {
    let asked = |program: Program| -> Result<f64, Error> {
        let mut times = testbed.ask(program.to, options.duration)?;
        times.sort_unstable();
        Ok(quantile(&times, 0.99) / 1e3)
    };
    let echo = || testbed.program(Place::Os, "none", (Work::Echo, 1, 1));
    let quiet = asked(echo()?)?;
    let is_over = AtomicBool::new(false);
    let busy = std::thread::scope(|scope| {
        let moves = scope.spawn(|| -> Result<(), Error> {
            while !is_over.load(Ordering::Relaxed) {
                testbed.move_all(Place::Nic, connections)?;
                testbed.move_all(Place::Os, connections)?;
            }
            Ok(())
        });
        let busy = echo().and_then(asked);
        is_over.store(true, Ordering::Relaxed);
        moves.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        busy
    })?;
    Ok((quiet, busy))
}
