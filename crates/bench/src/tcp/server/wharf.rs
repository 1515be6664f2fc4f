//! wharf's TCP: an endpoint on the veth, or behind a TAP.

use std::net::{IpAddr, Ipv4Addr};

use nic::config::{Config, WireMode};
use nic::tcp::{self as endpoint, Address, Addresses, Endpoint, Own, Place, Plan, Role, Work};

use super::{PORT, Service};
use crate::sink::io;
use crate::tcp::cores;
use crate::tcp::system::Link;
use crate::tcp::testbed::{self, CLIENT, NEAR, PREFIX_LEN, SERVER, Testbed};
use crate::{Error, link};

/// An endpoint at the server's end of the testbed's link.
pub(super) fn serve(
    testbed: &Testbed,
    service: Service,
    mode: WireMode,
) -> Result<Endpoint, Error> {
    let (link, core) = (testbed.link, testbed.cores.map(|cores| cores.server));
    if link.is_tap() {
        return testbed.client.run(move || {
            cores::enter(core).map_err(io("pin a thread"))?;
            behind_tap(link, service)
        })?;
    }
    let mut config = Config::default();
    // AF_XDP takes no frame that is longer than the MTU.
    config.wire.mode = if link == Link::VethOffloads { WireMode::Packet } else { mode };
    let place = Place::Wire { name: testbed.far.clone() };
    testbed.server.run(move || {
        // What this thread starts is where it is.
        cores::enter(core).map_err(io("pin a thread"))?;
        start(place, addresses(SERVER, None)?, service, config)
    })?
}

fn behind_tap(link: Link, service: Service) -> Result<Endpoint, Error> {
    let mut config = Config::default();
    if link == Link::Tap {
        // A frame at a time: one segment goes anyhow.
        config.tcp.burst = 0;
    }
    let addresses = vec![Address { ip: CLIENT.into(), prefix_len: PREFIX_LEN }];
    let place = Place::Host { name: NEAR.to_owned(), addresses };
    let endpoint = start(place, self::addresses(SERVER, None)?, service, config)?;
    link::quiet(NEAR);
    if link == Link::Tap {
        testbed::without_offloads(NEAR)?;
    }
    Ok(endpoint)
}

/// An address of an endpoint, and the router for all that is not in its network.
pub(in crate::tcp) fn addresses(
    own: Ipv4Addr,
    gateway: Option<Ipv4Addr>,
) -> Result<Addresses, Error> {
    let address = Address { ip: own.into(), prefix_len: PREFIX_LEN };
    let gateways = gateway.map(IpAddr::from).into_iter().collect();
    Addresses::new(vec![address], gateways)
        .map_err(|error| Error::Failed { system: "wharf", why: error.to_string() })
}

/// An endpoint that serves all that connect, in the network namespace of the calling thread.
pub(in crate::tcp) fn start(
    place: Place,
    addresses: Addresses,
    service: Service,
    config: Config,
) -> Result<Endpoint, Error> {
    let service = match service {
        Service::Sink => endpoint::Service::Discard,
        Service::Source => endpoint::Service::Source,
        Service::Echo => endpoint::Service::Echo,
    };
    Ok(Endpoint::start(Plan {
        place,
        own: Own {
            addresses,
            // The hosts that are measured know each other.
            probes: 0,
            role: Role::Listen { port: PORT },
            work: Work { service, bytes: None, verify: false },
            run: None,
        },
        config,
        wan: None,
    })?)
}
