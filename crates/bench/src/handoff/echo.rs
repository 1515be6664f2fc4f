//! One byte there and back, of a program whose connection the kernel runs or the NIC.

use super::program::Work;
use super::testbed::Testbed;
use super::{Case, Options, Place, Reading, quantile, report_runs};
use crate::{Error, Report};

/// CPUs that nobody shares who does not sleep: wharf's, the program's, and the client's.
const AWAKE_CPUS: usize = 3;

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let mut ways = vec![Work::Echo];
    if sys::affinity::count() >= AWAKE_CPUS {
        ways.push(Work::EchoAwake);
    } else {
        report.notice(&format!("echo without sleeping is left out: it needs {AWAKE_CPUS} CPUs"));
    }
    let all = ways.len() * options.repetitions * Place::ALL.len();
    let mut done = 0;
    for work in ways {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..options.repetitions {
            for (place, runs) in Place::ALL.into_iter().zip(&mut runs) {
                report.progress(done, all, &format!("{}, {}", work.name(), place.name()));
                done += 1;
                runs.push(run(options, work, place)?);
            }
        }
        for (place, runs) in Place::ALL.into_iter().zip(&runs) {
            let varied =
                vec![("where", place.name().into()), ("sleeps", (work == Work::Echo).into())];
            report_runs(Case::Echo, &varied, runs, report);
        }
    }
    Ok(())
}

fn run(options: &Options, work: Work, place: Place) -> Result<Vec<Reading>, Error> {
    let testbed = Testbed::new(options, 1)?;
    let program = testbed.program(place, "at_accept", (work, 1, 1))?;
    let handoffs = testbed.counter("handoffs");
    let mut times = testbed.ask(program.to, options.duration)?;
    if place == Place::Nic && testbed.counter("handoffs") == handoffs {
        return Err(testbed.stayed());
    }
    drop(program);
    testbed.stop()?;
    times.sort_unstable();
    Ok(vec![
        Reading::new("median_rtt", "us", quantile(&times, 0.5) / 1e3),
        Reading::new("p99_rtt", "us", quantile(&times, 0.99) / 1e3),
    ])
}
