//! A proxy that moves bytes from one connection to another: haproxy by splice(2), with its connections at the kernel and at
//! the NIC, and with `wharf run --splice`, by which the NIC goes on to move them itself. How much goes through, and what a
//! byte costs host and NIC. These two share a CPU, and what the client's host does has another, as if that were a machine of
//! its own.

mod haproxy;

use std::thread::sleep;
use std::time::Duration;

use self::haproxy::BEHIND;
use super::cpu::Cpu;
use super::testbed::{CLIENT_THREADS, Testbed};
use super::{Case, Options, Place, Reading, Varied, report_runs};
use crate::load::streams::{Direction, Streams, listen};
use crate::throughput::median;
use crate::{Error, Report};

/// Descriptors of this process for each connection of the proxy's: the NIC's for it and for the one behind it, and that
/// one's other end.
pub(super) const DESCRIPTORS: usize = 3;
/// Part of the time that is not measured.
const WARM_UP: u32 = 4;
/// How long a run is measured at least: several times as long as the NIC moves bytes until haproxy does so again.
const AT_LEAST: Duration = Duration::from_secs(1);
/// Times that the NIC moves more bytes, and that it takes less CPU time for a byte.
const WANTED: f64 = 2.0;
/// So many of 100 bytes the NIC has to have moved itself where it is to do so: the fewer a connection carries in a quarter
/// of a second, the more of them haproxy moves in between.
const MOVED_PERCENT: f64 = 10.0;

const HOST_AND_NIC: &str = "host_and_nic_cpu_per_gigabyte";
const THROUGHPUT: &str = "throughput";

/// Who has the connections, and who moves bytes between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The kernel has them, and haproxy moves.
    Os,
    /// The NIC has them, and haproxy moves.
    Nic,
    /// The NIC does both.
    Spliced,
}

impl Way {
    /// All, in the order in which they take turns.
    const ALL: [Way; 3] = [Way::Os, Way::Nic, Way::Spliced];

    const fn place(self) -> Place {
        match self {
            Way::Os => Place::Os,
            Way::Nic | Way::Spliced => Place::Nic,
        }
    }

    const fn moved_by(self) -> &'static str {
        match self {
            Way::Os | Way::Nic => "haproxy",
            Way::Spliced => "nic",
        }
    }

    fn varied(self, connections: usize) -> Varied {
        vec![
            ("where", self.place().name().into()),
            ("moved_by", self.moved_by().into()),
            ("connections", connections.into()),
        ]
    }
}

/// The runs of one way.
type Runs = Vec<Vec<Reading>>;

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let all = options.proxied.len() * options.repetitions * Way::ALL.len();
    let (mut done, mut doubt) = (0, None::<String>);
    for &connections in &options.proxied {
        let mut runs = [const { Runs::new() }; Way::ALL.len()];
        for _ in 0..options.repetitions {
            for (way, runs) in Way::ALL.into_iter().zip(&mut runs) {
                let (place, by) = (way.place().name(), way.moved_by());
                let what = format!("{connections} connections, {place}, moved by {by}");
                report.progress(done, all, &what);
                done += 1;
                let Some(readings) = run(options, connections, way, &mut doubt)? else {
                    report.notice("splice is left out: haproxy is not there");
                    return Ok(());
                };
                runs.push(readings);
            }
        }
        for (way, runs) in Way::ALL.into_iter().zip(&runs) {
            report_runs(Case::Splice, &way.varied(connections), runs, report);
        }
        let [kernel, _, spliced] = &runs;
        compare(connections, &ratios(kernel, spliced), report);
    }
    if let Some(doubt) = doubt {
        report.notice(&doubt);
    }
    Ok(())
}

/// Of each repetition, how many times as much went through as by haproxy at the kernel, and how many times less CPU time a
/// byte took.
fn ratios(kernel: &Runs, spliced: &Runs) -> Runs {
    let value = |run: &Vec<Reading>, of: &str| run.iter().find(|r| r.metric == of).map(|r| r.value);
    let ratios = |(kernel, spliced): (&Vec<Reading>, &Vec<Reading>)| {
        let more = value(spliced, THROUGHPUT)? / value(kernel, THROUGHPUT)?;
        let less = value(kernel, HOST_AND_NIC)? / value(spliced, HOST_AND_NIC)?;
        Some(vec![
            Reading::new("times_throughput", "", more),
            Reading::new("times_less_cpu", "", less),
        ])
    };
    kernel.iter().zip(spliced).filter_map(ratios).collect()
}

fn compare(connections: usize, ratios: &Runs, report: &mut dyn Report) {
    report_runs(Case::Splice, &Way::Spliced.varied(connections), ratios, report);
    let of = |at: usize| median(ratios.iter().filter_map(|run| run.get(at)).map(|r| r.value));
    report.notice(&format!(
        "splice, connections {connections}: {:.2} times the throughput of haproxy by the kernel's splice, and {:.2} times \
         less CPU time of host and NIC a byte; {WANTED} times are wanted of both",
        of(0),
        of(1)
    ));
}

/// `None` if there is no haproxy.
fn run(
    options: &Options,
    connections: usize,
    way: Way,
    doubt: &mut Option<String>,
) -> Result<Option<Vec<Reading>>, Error> {
    // Each has another one behind it.
    let testbed = Testbed::new(options, 2 * connections)?;
    let Some(proxy) = haproxy::start(&testbed, way, connections)? else { return Ok(None) };
    testbed.join(proxy.id())?;
    if let Err(error) = testbed.client_receives_aside() {
        *doubt = Some(format!("splice: what the client receives is in wharf's CPU time: {error}"));
    }
    let streams = testbed.aside(|| {
        let listener = listen(&testbed.hosts.client, BEHIND)?;
        let between = (proxy.to, &listener);
        Streams::between(&testbed.hosts, between, Direction::Send, connections, CLIENT_THREADS)
    })?;
    let moved = || testbed.counter("spliced_bytes");
    if way.place() == Place::Nic {
        testbed.wait("handing off", || testbed.at_nic() >= 2 * connections)?;
    }
    if way == Way::Spliced {
        testbed.wait("that the NIC moves bytes", || moved() > 0)?;
    }
    let duration = options.duration.max(AT_LEAST);
    sleep(duration / WARM_UP);
    let (before, moved_before) = (Cpu::read(&testbed, proxy.cpu()), moved());
    let begun = sys::clock::now();
    streams.begin(begun);
    sleep(duration);
    let (after, moved_after) = (Cpu::read(&testbed, proxy.cpu()), moved());
    let now = sys::clock::now();
    let left = way.place() == Place::Nic && testbed.at_nic() < 2 * connections;
    let left = left.then(|| testbed.stayed());
    let received = streams.end(now)?;
    if let Some(error) = left {
        return Err(error);
    }
    drop(proxy);
    testbed.stop()?;
    let bytes = received.iter().map(|one| one.bytes).sum::<u64>();
    let share = moved_percent(way, bytes, moved_after - moved_before)?;
    let Cpu { program, kernel, worker, softirq, all } = after.since(before);
    // Nanoseconds a byte are seconds a gigabyte.
    let each = |time: u64| time as f64 / bytes.max(1) as f64;
    let seconds = (now - begun) as f64 / 1e9;
    Ok(Some(vec![
        Reading::new(THROUGHPUT, "bit/s", bytes as f64 * 8.0 / seconds),
        Reading::new(HOST_AND_NIC, "s/GB", each(program + worker + softirq)),
        Reading::new("host_cpu_per_gigabyte", "s/GB", each(program + kernel)),
        Reading::new("nic_cpu_per_gigabyte", "s/GB", each(worker.saturating_sub(kernel))),
        Reading::new("cpu_per_gigabyte", "s/GB", each(all)),
        Reading::new("moved_by_nic", "%", share),
    ]))
}

/// How many of 100 bytes that went through the NIC has moved itself: an error where those are few that should be most.
fn moved_percent(way: Way, bytes: u64, moved: u64) -> Result<f64, Error> {
    let percent = 100.0 * moved as f64 / bytes.max(1) as f64;
    if way == Way::Spliced && percent < MOVED_PERCENT {
        let why =
            format!("the NIC moved {moved} bytes by itself of {bytes} that haproxy passed on");
        return Err(Error::Failed { system: "wharf", why });
    }
    Ok(percent)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_the_nic_moved_little_is_an_error() {
        assert_eq!(moved_percent(Way::Spliced, 100, 97).unwrap(), 97.0);
        assert_eq!(moved_percent(Way::Nic, 100, 0).unwrap(), 0.0);
        let error = moved_percent(Way::Spliced, 1_000, 20).unwrap_err().to_string();
        assert!(error.contains("20 bytes by itself of 1000"), "{error}");
    }

    #[test]
    fn ratios_are_of_the_same_repetition_and_larger_is_better() {
        let run = |throughput, cpu| {
            vec![
                Reading::new(THROUGHPUT, "bit/s", throughput),
                Reading::new(HOST_AND_NIC, "s/GB", cpu),
            ]
        };
        let kernel = vec![run(4.0, 2.0), run(2.0, 4.0)];
        let spliced = vec![run(8.0, 0.5), run(6.0, 1.0)];
        let all = ratios(&kernel, &spliced);
        let values: Vec<Vec<f64>> =
            all.iter().map(|run| run.iter().map(|r| r.value).collect()).collect();
        assert_eq!(values, [[2.0, 4.0], [3.0, 4.0]]);
    }
}
