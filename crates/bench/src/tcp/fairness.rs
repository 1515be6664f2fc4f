//! `fairness`: connections of wharf's and of the kernel's that share a bottleneck.
//!
//! Both send from one host: the kernel from its own address, wharf from behind a TAP, whose packets the
//! kernel forwards. Then come degen, with a rate, a delay and a queue of as many bytes as are in flight,
//! and the client.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ::degen::Config;
use nic::degen::Settings;
use nic::tcp::{Address, Endpoint, Place};
use sys::interface;
use sys::netlink::route::{self, NewRoute};

use super::server::{PORT, Service, kernel, wharf};
use super::testbed::{NEAR, PREFIX_LEN, SERVER, Testbed};
use super::{Case, Options, client, figure};
use crate::throughput::median;
use crate::{Error, Report};

/// Connections of each.
const FLOWS: usize = 8;
/// The bottleneck, in bits per second.
const RATE: u64 = 100_000_000;
/// Half of the round-trip time, in nanoseconds.
const DELAY: u64 = 10_000_000;
/// Bytes that wait at the bottleneck, as many as are in flight: 250,000.
const QUEUE: u32 = (RATE / 8 * (2 * DELAY) / 1_000_000_000) as u32;
/// Until all have found their share.
const WARM_UP: Duration = Duration::from_secs(5);
/// How many times longer than others this is measured: by how much shares go up and down is seconds.
const LONGER: u32 = 10;
/// Where wharf is, and the kernel's address on its interface.
const WHARF: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 2);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 1);
const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 0);
const HOST: &str = "wharf0";

/// Measures some rounds.
pub(super) fn run(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let mut outcomes: Vec<Vec<f64>> = Vec::new();
    for round in 0..options.repetitions {
        let what = format!("{} flows of each, round {}", FLOWS, round + 1);
        report.progress(round, options.repetitions, &what);
        outcomes.push(measure(1 + round as u64, options.duration * LONGER)?);
    }
    let mut figure = |system, metric, unit, of: &dyn Fn(&[f64], &[f64]) -> f64| {
        let of_round = |flows: &Vec<f64>| {
            let (kernel, wharf) = flows.split_at(FLOWS);
            of(kernel, wharf)
        };
        let samples: Vec<f64> = outcomes.iter().map(of_round).collect();
        let value = median(samples.iter().copied());
        let flows = if system == "both" { 2 * FLOWS } else { FLOWS };
        let varied = [
            ("what", "100 Mb/s, 20 ms".into()),
            ("link", "wan".into()),
            ("connections", flows.into()),
        ];
        let case = Case::Fairness.name();
        report.figure(figure(case, system, varied, metric, unit, value, samples));
    };
    figure("both", "jain", "", &|kernel, wharf| jain(&[kernel, wharf].concat()));
    figure("both", "goodput", "bit/s", &|kernel, wharf| 8.0 * (sum(kernel) + sum(wharf)));
    figure("kernel", "jain", "", &|kernel, _| jain(kernel));
    figure("kernel", "goodput", "bit/s", &|kernel, _| 8.0 * sum(kernel));
    figure("wharf", "jain", "", &|_, wharf| jain(wharf));
    figure("wharf", "goodput", "bit/s", &|_, wharf| 8.0 * sum(wharf));
    figure("wharf", "times_kernel", "", &|kernel, wharf| sum(wharf) / sum(kernel));
    Ok(())
}

/// Bytes a second of each connection, those of the kernel first.
fn measure(seed: u64, duration: Duration) -> Result<Vec<f64>, Error> {
    let reverse = Config { delay: DELAY, ..Config::default() };
    let forward = Config { rate: RATE, queue_bytes: QUEUE, ..reverse.clone() };
    let mut settings = Settings { seed: Some(seed), ..Settings::default() };
    settings.configs = [forward, reverse];
    let testbed = Testbed::wan(&settings)?;
    kernel::address(&testbed)?;
    let _kernel = kernel::Server::start(&testbed, SERVER.into(), Service::Source)?;
    let _wharf = behind_kernel(&testbed)?;
    let servers: Vec<SocketAddr> = [SERVER, WHARF]
        .into_iter()
        .flat_map(|server| [SocketAddr::from((server, PORT)); FLOWS])
        .collect();
    client::receive_of(&testbed, &servers, WARM_UP, duration)
}

/// An endpoint whose packets the server's kernel forwards, and the client's way to it.
fn behind_kernel(testbed: &Testbed) -> Result<Endpoint, Error> {
    let endpoint = testbed.server.run(|| -> Result<Endpoint, Error> {
        sys::sysctl::write(&["ipv4", "ip_forward"], "1")?;
        let addresses = vec![Address { ip: ROUTER.into(), prefix_len: PREFIX_LEN }];
        let place = Place::Host { name: HOST.to_owned(), addresses };
        let own = wharf::addresses(WHARF, Some(ROUTER))?;
        wharf::start(place, own, Service::Source, nic::config::Config::default())
    })??;
    testbed.client.run(|| -> sys::Result<()> {
        let way = NewRoute::new(NETWORK.into(), PREFIX_LEN, Some(SERVER.into()));
        route::add(interface::index(NEAR)?, &way)
    })??;
    Ok(endpoint)
}

fn sum(flows: &[f64]) -> f64 {
    flows.iter().sum()
}

/// 1 if all have the same, 1 / n if one has all (Jain, Chiu and Hawe, "A quantitative measure of fairness
/// and discrimination", 1984).
fn jain(flows: &[f64]) -> f64 {
    let squares: f64 = flows.iter().map(|flow| flow * flow).sum();
    sum(flows).powi(2) / (flows.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_is_of_the_share() {
        assert_eq!(jain(&[3.0, 3.0, 3.0, 3.0]), 1.0);
        assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[2.0, 1.0]), 0.9);
    }

    #[test]
    fn as_much_waits_as_is_under_way() {
        assert_eq!(QUEUE, 250_000);
    }
}
