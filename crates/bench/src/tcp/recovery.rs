//! `recovery`: how much gets through a path that loses packets at random.
//!
//! The server sends, data is lost and acknowledgments are not, each round with another seed that is the
//! same for all. In virtual time the engine sends to itself through the same degen.

use std::time::Duration;

use ::degen::{Config, Probability};
use nic::degen::Settings;

use super::server::{Server, Service};
use super::system::{Contender, Link};
use super::testbed::Testbed;
use super::turns::{Contest, hold};
use super::virtual_time::{self, Way};
use super::{Case, Options, client};
use crate::{Error, Report};

/// Half of the round-trip time, in nanoseconds.
const DELAY: u64 = 10_000_000;
const LOSS: f64 = 1.0;
/// Until windows go up and down around their means.
const WARM_UP: Duration = Duration::from_secs(2);
/// How many times longer than others this is measured: it takes hundreds of losses.
const LONGER: u32 = 10;
/// How much longer still virtual time goes, which costs nothing.
const VIRTUALLY: u32 = 10;

/// Measures one connection, and eight that do not get in each other's way: they share nothing but the
/// chance by which packets are lost.
pub(super) fn run(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let contest = |connections| Contest {
        case: Case::Recovery,
        what: "1 %, 20 ms",
        connections,
        metric: ("goodput", "bit/s"),
        beside: None,
        contenders: Contender::WAN.into(),
    };
    hold(&[contest(1), contest(8)], options, report, |contest, contender, round, _| {
        let seed = 1 + round as u64;
        let [forward, reverse] = ways()?;
        let duration = options.duration * LONGER;
        if contender.link == Link::Virtual {
            let way = Way { forward, reverse, seed };
            let duration = duration * VIRTUALLY;
            let outcome = virtual_time::goodput(&way, contest.connections, WARM_UP, duration)?;
            return Ok((outcome, 0.0));
        }
        let mut settings = Settings { seed: Some(seed), ..Settings::default() };
        settings.configs = [forward, reverse];
        let testbed = Testbed::wan(&settings)?;
        let _server = Server::start(
            &testbed,
            contender.system,
            Service::Source,
            contest.connections,
            options.mode,
        )?;
        let servers = vec![Server::at(); contest.connections as usize];
        let outcome = client::receive_of(&testbed, &servers, WARM_UP, duration)?;
        Ok((outcome.iter().sum::<f64>() * 8.0, 0.0))
    })
}

/// What degen does to data, and to acknowledgments.
fn ways() -> Result<[Config; 2], Error> {
    let not_percent = || Error::Usage(format!("{LOSS} % is not from 0 to 100"));
    let loss = Probability::percent(LOSS).ok_or_else(not_percent)?;
    let reverse = Config { delay: DELAY, ..Config::default() };
    Ok([Config { loss, ..reverse.clone() }, reverse])
}
