//! `bulk`, `rr` and `connect`: clients of a kernel and servers of each kind, over real links.

use super::client::{self, Client};
use super::cores;
use super::server::{Server, Service};
use super::steering::receive_apart;
use super::system::Contender;
use super::testbed::Testbed;
use super::turns::{Contest, hold};
use super::{Case, Options};
use crate::{Error, Report};

/// Measures how fast data goes in and out.
pub(super) fn bulk(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let contenders: Vec<Contender> =
        Contender::PLAIN.into_iter().chain(Contender::OFFLOADS).collect();
    let contest = |what| Contest {
        case: Case::Bulk,
        what,
        connections: 1,
        metric: ("throughput", "bit/s"),
        beside: Some(("cpu_per_gigabyte", "s/GB")),
        contenders: contenders.clone(),
    };
    run(&[contest("in"), contest("out")], options, report)
}

/// Measures how often a byte goes there and back.
pub(super) fn request_response(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let contest = |connections| Contest {
        case: Case::Rr,
        what: "1 byte",
        connections,
        metric: ("rate", "1/s"),
        beside: Some(("cpu_each", "us")),
        contenders: Contender::PLAIN.into(),
    };
    run(&[contest(1), contest(64)], options, report)
}

/// Measures how often connections are opened and closed.
pub(super) fn connect(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let contest = |connections| Contest {
        case: Case::Connect,
        what: "1 byte",
        connections,
        metric: ("rate", "1/s"),
        beside: Some(("cpu_each", "us")),
        contenders: Contender::PLAIN.into(),
    };
    run(&[contest(1), contest(8)], options, report)
}

fn run(contests: &[Contest], options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let mut reported: Vec<String> = Vec::new();
    if options.own_cpus && cores::Cores::choose().is_none() {
        return Err(Error::Usage("it takes two CPUs, one for each host".to_owned()));
    }
    hold(contests, options, report, |contest, contender, _, report| {
        let (client, service, unit, each) = match (contest.case, contest.what) {
            (Case::Bulk, "in") => (Client::Send, Service::Sink, 8.0, 1e9),
            (Case::Bulk, _) => (Client::Receive, Service::Source, 8.0, 1e9),
            (Case::Connect, _) => (Client::Connect, Service::Echo, 1.0, 1e6),
            _ => (Client::PingPong, Service::Echo, 1.0, 1e6),
        };
        let testbed = Testbed::new(contender.link, options.own_cpus)?;
        let server =
            Server::start(&testbed, contender.system, service, contest.connections, options.mode)?;
        let apart = receive_apart(&testbed, contender.system);
        let apart = apart.err().map(|error| format!("a host receives on the other's CPU: {error}"));
        for notice in server.notices.iter().chain(&apart) {
            let words =
                format!("{} on {}: {notice}", contender.system.name(), contender.link.name());
            if !reported.contains(&words) {
                report.notice(&words);
                reported.push(words);
            }
        }
        let outcome = client::measure(&testbed, client, contest.connections, options.duration)?;
        Ok((outcome.rate * unit, outcome.cpu * each))
    })
}
