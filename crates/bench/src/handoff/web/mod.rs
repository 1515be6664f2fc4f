//! A web server whose connections the kernel runs or the NIC: nginx with the static files of SPECweb99, as section 5 of
//! "TCP Offload through Connection Handoff" has it. How much it delivers, and what a packet costs host and NIC.

mod client;
mod files;
mod nginx;

use std::thread::sleep;
use std::time::Duration;

use self::client::Clients;
use self::files::Files;
use self::nginx::Nginx;
use super::packet::{self, Doubts, Spent, WARM_UP};
use super::testbed::Testbed;
use super::{Case, Options, Place, Reading, Varied, report_runs};
use crate::sink::io;
use crate::{Error, Report};

/// How the server is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Connections at a time.
    pub connections: usize,
    /// Bits a second that each receives at most.
    pub rate: Option<u64>,
    /// How long a packet is under way, each way.
    pub one_way: Duration,
    /// Whether wharf's worker and the server share a CPU.
    pub together: bool,
}

impl Load {
    const FREE: Load =
        Load { connections: 1_024, rate: None, one_way: Duration::ZERO, together: false };

    /// That of the paper's section 5.2, through a path of 20 ms there and back; the same as fast as can be, the server's CPU
    /// shared with wharf, and with the paper's 64 clients of section 5.1.
    pub const ALL: [Load; 4] = [
        Load { rate: Some(400_000), one_way: Duration::from_millis(10), ..Load::FREE },
        Load::FREE,
        Load { together: true, ..Load::FREE },
        Load { connections: 64, ..Load::FREE },
    ];

    fn varied(&self, place: Place) -> Varied {
        vec![
            ("where", place.name().into()),
            ("connections", self.connections.into()),
            ("rate", self.rate.into()),
            ("one_way_ms", (self.one_way.as_millis() as u64).into()),
            ("cpus", if self.together { "shared" } else { "apart" }.into()),
        ]
    }
}

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let root = std::env::temp_dir().join(format!("wharf-bench-web-{}", std::process::id()));
    let files = Files::write(&root).map_err(io("write a web server's files"))?;
    let all = options.loads.len() * options.repetitions * Place::ALL.len();
    let (mut done, mut doubts) = (0, Doubts::default());
    for load in &options.loads {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..options.repetitions {
            for (place, runs) in Place::ALL.into_iter().zip(&mut runs) {
                let what = format!("{} web clients, {}", load.connections, place.name());
                report.progress(done, all, &what);
                done += 1;
                let Some(readings) = run(options, load, place, &files, &mut doubts)? else {
                    report.notice("the web server is left out: nginx is not there");
                    return Ok(());
                };
                runs.push(readings);
            }
        }
        for (place, runs) in Place::ALL.into_iter().zip(&runs) {
            report_runs(Case::Web, &load.varied(place), runs, report);
        }
    }
    doubts.tell(report);
    Ok(())
}

/// `None` if there is no nginx.
fn run(
    options: &Options,
    load: &Load,
    place: Place,
    files: &Files,
    doubts: &mut Doubts,
) -> Result<Option<Vec<Reading>>, Error> {
    let testbed = Testbed::at_a_distance(options, load.connections, load.one_way)?;
    testbed.without_offloads()?;
    let Some(nginx) = Nginx::start(&testbed, place, files)? else { return Ok(None) };
    if load.together {
        testbed.join(nginx.id())?;
    }
    let handoffs = || testbed.counter("handoffs");
    let clients =
        testbed.aside(|| Clients::start(&testbed.hosts, nginx.to, load.connections, load.rate))?;
    sleep(options.duration / WARM_UP);
    let cpu = || sys::process::process_cpu(nginx.id()).unwrap_or(0);
    let read = || {
        let [bytes, answers] = clients.got();
        (Spent::of(&testbed, bytes, cpu()), answers, handoffs())
    };
    let before = read();
    sleep(options.duration);
    let after = read();
    let counts = packet::look(&testbed, nginx.id(), options.duration, doubts);
    clients.end()?;
    if place == Place::Nic && after.2 == before.2 {
        return Err(testbed.stayed());
    }
    drop(nginx);
    testbed.stop()?;
    let mut readings = after.0.since(&before.0, &counts, options.duration, doubts);
    let per_second = |count: u64| count as f64 / options.duration.as_secs_f64();
    readings.push(Reading::new("requests", "1/s", per_second(after.1 - before.1)));
    readings.push(Reading::new("handoffs", "1/s", per_second(after.2 - before.2)));
    Ok(Some(readings))
}
