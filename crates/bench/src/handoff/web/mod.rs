//! A web server whose connections the kernel runs or the NIC: nginx with SPECweb99's static files, and where it is asked
//! for that with dynamic content, as section 5 of "TCP Offload through Connection Handoff" has it. How much it delivers,
//! and what a packet costs host and NIC.

mod client;
mod files;
mod nginx;
mod page;
mod request;
mod responder;

use std::thread::sleep;
use std::time::Duration;

use self::client::Clients;
use self::files::Files;
use self::responder::Responder;
pub use self::responder::respond;
use super::packet::{self, Doubts, Spent, are_enough};
use super::testbed::Testbed;
use super::{Case, Options, Place, Reading, Varied, report_runs};
use crate::sink::io;
use crate::{Error, Report};

/// How long it takes until clients have their rate, and the NIC has found out how many connections it has time for.
const SETTLES: Duration = Duration::from_secs(3);

/// How the server is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Connections at a time.
    pub connections: usize,
    /// Files or pages that each asks for before it is closed.
    pub requests: u32,
    /// Bits a second that each receives at most.
    pub rate: Option<u64>,
    /// One-way delay of the path, in each direction.
    pub one_way: Duration,
    /// Whether wharf's worker and the server share a CPU.
    pub together: bool,
    /// Whether 30 of 100 requests are for dynamic content.
    pub dynamic: bool,
}

impl Load {
    /// Five requests of a connection, as Ruan and Pai have it.
    const FREE: Load = Load {
        connections: 1_024,
        requests: 5,
        rate: None,
        one_way: Duration::ZERO,
        together: false,
        dynamic: false,
    };

    /// What each connection of a client of SPECweb99's receives at most.
    const RATE: Option<u64> = Some(400_000);

    /// The 64 clients of the paper's Figures 7 and 8 (section 5.1), which are not said to have a rate.
    pub const PROTOTYPE: Load = Load { connections: 64, ..Load::FREE };

    /// The 256 clients of the paper's Figure 1 (section 2), which are not said to be far away.
    pub const STACK: Load = Load { connections: 256, rate: Load::RATE, ..Load::FREE };

    /// The 1,024 clients of section 5.2, with its rate through a path of 20 ms there and back.
    const SIMULATED: Load =
        Load { rate: Load::RATE, one_way: Duration::from_millis(10), ..Load::FREE };

    /// The paper's 64 clients of section 5.1, as fast as can be, and with connections that last; as many as in section 5.2,
    /// also where wharf and the server share a CPU, and with the paper's rate; and these with dynamic content, as fast as
    /// can be and with the rate.
    pub const ALL: [Load; 7] = [
        Load::PROTOTYPE,
        Load { requests: 1_000, ..Load::PROTOTYPE },
        Load::FREE,
        Load { together: true, ..Load::FREE },
        Load::SIMULATED,
        Load { dynamic: true, ..Load::FREE },
        Load { dynamic: true, ..Load::SIMULATED },
    ];

    fn varied(&self, way: Way) -> Varied {
        vec![
            ("where", way.name().into()),
            ("connections", self.connections.into()),
            ("requests_each", self.requests.into()),
            ("rate", self.rate.into()),
            ("one_way_ms", (self.one_way.as_millis() as u64).into()),
            ("dynamic", self.dynamic.into()),
            ("cpus", if self.together { "shared" } else { "apart" }.into()),
        ]
    }
}

/// Who runs the connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// The kernel.
    Os,
    /// wharf, all of them from the moment on in which they are accepted.
    Nic,
    /// wharf, those that are likely to be worth it, as long as it has time for them: what is so by default.
    Policies,
}

impl Way {
    const fn place(self) -> Place {
        match self {
            Way::Os => Place::Os,
            Way::Nic | Way::Policies => Place::Nic,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Way::Policies => "policies",
            Way::Os | Way::Nic => self.place().name(),
        }
    }

    const fn policy(self) -> &'static str {
        match self {
            Way::Policies => "learned",
            Way::Os | Way::Nic => "at_accept",
        }
    }
}

/// All connections at the kernel, and at the NIC.
pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    compare(Case::Web, &[Way::Os, Way::Nic], options, report)
}

/// The same beside those that policies give the NIC ("Connection Handoff Policies for TCP Offload Network Interfaces", Kim
/// and Rixner, OSDI 2006).
pub(super) fn policies(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    compare(Case::Policies, &[Way::Os, Way::Nic, Way::Policies], options, report)
}

fn compare(
    case: Case,
    ways: &[Way],
    options: &Options,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let site = Site::write()?;
    let all = options.loads.len() * options.repetitions * ways.len();
    let (mut done, mut doubts) = (0, Doubts::default());
    for load in &options.loads {
        let mut runs = vec![Vec::new(); ways.len()];
        for _ in 0..options.repetitions {
            for (&way, runs) in ways.iter().zip(&mut runs) {
                let what = format!("{} web clients, {}", load.connections, way.name());
                report.progress(done, all, &what);
                done += 1;
                let Some(readings) = site.run(options, load, way, &mut doubts)? else {
                    doubts.tell(report);
                    return Ok(());
                };
                runs.push(readings);
            }
        }
        for (&way, runs) in ways.iter().zip(&runs) {
            report_runs(case, &load.varied(way), runs, report);
        }
    }
    doubts.tell(report);
    Ok(())
}

/// What a web server has to offer, until this ends.
#[derive(Debug)]
pub(super) struct Site {
    files: Files,
}

impl Site {
    pub(super) fn write() -> Result<Site, Error> {
        let root = std::env::temp_dir().join(format!("wharf-bench-web-{}", std::process::id()));
        let files = Files::write(&root).map_err(io("write a web server's files"))?;
        Ok(Site { files })
    }

    /// `None`, and a doubt, if there is no nginx.
    pub(super) fn run(
        &self,
        options: &Options,
        load: &Load,
        way: Way,
        doubts: &mut Doubts,
    ) -> Result<Option<Vec<Reading>>, Error> {
        let testbed = Testbed::at_a_distance(options, load.connections, load.one_way)?;
        if way == Way::Policies {
            testbed.under_control()?;
        }
        testbed.without_offloads()?;
        let start = || Responder::start(&testbed, self.files.root());
        let responder = load.dynamic.then(start).transpose()?;
        let place = (way.place(), way.policy());
        let Some(nginx) = nginx::start(&testbed, place, &self.files, load.dynamic)? else {
            doubts.without_web = true;
            return Ok(None);
        };
        let programs: Vec<u32> =
            [nginx.id()].into_iter().chain(responder.as_ref().map(Responder::id)).collect();
        if load.together {
            programs.iter().try_for_each(|program| testbed.join(*program))?;
        }
        let handoffs = || testbed.counter("handoffs");
        let clients = testbed.aside(|| Clients::start(&testbed.hosts, nginx.to, load))?;
        sleep(SETTLES);
        let read = || {
            let [bytes, answers] = clients.got();
            let cpu = nginx.cpu() + responder.as_ref().map_or(0, Responder::cpu);
            (Spent::of(&testbed, bytes, cpu), answers, handoffs())
        };
        let before = read();
        sleep(options.duration);
        let after = read();
        let counts = packet::look(&testbed, &programs, options.duration, doubts);
        clients.end()?;
        // Those that last are there already but for some that have just ended, or others come for those.
        let are_there = are_enough(testbed.at_nic(), load.connections);
        if way == Way::Nic && after.2 == before.2 && !are_there {
            return Err(testbed.stayed());
        }
        drop((nginx, responder));
        testbed.stop()?;
        let mut readings = after.0.since(&before.0, &counts, options.duration, doubts);
        let per_second = |count: u64| count as f64 / options.duration.as_secs_f64();
        readings.push(Reading::new("requests", "1/s", per_second(after.1 - before.1)));
        readings.push(Reading::new("handoffs", "1/s", per_second(after.2 - before.2)));
        Ok(Some(readings))
    }
}
