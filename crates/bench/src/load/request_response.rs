//! One byte there and one back, again and again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::testbed::WORKERS;
use super::{Case, Options, Reading, Readings, Row, System, Testbed};
use crate::Error;
use crate::hosts::SERVER;
use crate::sink::io;

/// An answer that takes so long will not come.
const STALLED: Duration = Duration::from_secs(10);
/// Part of the time that is not measured.
const WARM_UP: u32 = 10;

/// Which CPUs run what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    /// As the kernel sees fit.
    Free,
    /// The client has one, wharf and the server share another.
    Two,
    /// Client, wharf and server have one each.
    Each,
}

impl Placement {
    const ALL: [Placement; 3] = [Placement::Free, Placement::Two, Placement::Each];

    const fn name(self) -> &'static str {
        match self {
            Placement::Free => "free",
            Placement::Two => "two",
            Placement::Each => "each",
        }
    }

    /// The CPUs of client, wharf and server; `None` where the kernel chooses.
    fn cpus(self, all: &[usize]) -> Option<[usize; 3]> {
        match (self, all) {
            (Placement::Two, [one, two, ..]) => Some([*two, *one, *one]),
            (Placement::Each, [one, two, three, ..]) => Some([*two, *one, *three]),
            _ => None,
        }
    }

    fn is_possible(self, all: &[usize]) -> bool {
        self == Placement::Free || self.cpus(all).is_some()
    }
}

/// A row for each placement that this machine has CPUs for.
pub(super) fn rows(options: &Options) -> impl Iterator<Item = Row<'_>> {
    let cpus = sys::affinity::cpus().unwrap_or_default();
    let possible = Placement::ALL.into_iter().filter({
        let cpus = cpus.clone();
        move |placement| placement.is_possible(&cpus)
    });
    possible.map(move |placement| {
        let cpus = placement.cpus(&cpus);
        Row::new(Case::RequestResponse, vec![("cpus", placement.name().into())], move |system| {
            run(options, system, cpus)
        })
    })
}

fn run(options: &Options, system: System, cpus: Option<[usize; 3]>) -> Readings {
    let testbed = Testbed::new(system, options)?;
    if let (Some([_, wharf, _]), Some(thread)) = (cpus, sys::process::thread(WORKERS)) {
        sys::affinity::pin_thread(thread, wharf).map_err(io("pin wharf"))?;
    }
    let listener = testbed.hosts.server.run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
    let listener = listener.map_err(io("listen"))?;
    let to = SocketAddr::from((SERVER, listener.local_addr().map_err(io("listen"))?.port()));
    let server = testbed.hosts.server.spawn(move || serve(&listener, cpus.map(|cpus| cpus[2])))?;
    let duration = options.duration;
    let asked = testbed.hosts.client.run(|| ask(to, duration, cpus.map(|cpus| cpus[0])))?;
    let mut times = asked?;
    server.join().unwrap_or(Ok(Ok(())))?.map_err(io("answer"))?;
    testbed.stop()?;
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    let seconds = times.iter().sum::<u64>() as f64 / 1e9;
    Ok(vec![
        Reading::new("median_rtt", "us", at(0.5)),
        Reading::new("p99_rtt", "us", at(0.99)),
        Reading::new("requests_per_second", "1/s", times.len() as f64 / seconds),
    ])
}

/// Sends each byte back, until the client goes.
fn serve(listener: &TcpListener, cpu: Option<usize>) -> std::io::Result<()> {
    cpu.map_or(Ok(()), sys::affinity::pin)?;
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut byte = [0; 1];
    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
    Ok(())
}

/// The times of all round trips, in nanoseconds; one at least.
pub(crate) fn ask(
    to: SocketAddr,
    duration: Duration,
    cpu: Option<usize>,
) -> Result<Vec<u64>, Error> {
    cpu.map_or(Ok(()), sys::affinity::pin).map_err(io("pin a thread"))?;
    let connect = || -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&to, STALLED)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STALLED))?;
        Ok(stream)
    };
    let mut stream = connect().map_err(io("connect"))?;
    let mut byte = [0x55; 1];
    let mut times = Vec::new();
    let (begun, warm_up) = (Instant::now(), duration / WARM_UP);
    while times.is_empty() || begun.elapsed() < duration + warm_up {
        let since = Instant::now();
        stream.write_all(&byte).map_err(io("send a byte"))?;
        stream.read_exact(&mut byte).map_err(io("wait for an answer"))?;
        if begun.elapsed() > warm_up {
            times.push(since.elapsed().as_nanos() as u64);
        }
    }
    Ok(times)
}
