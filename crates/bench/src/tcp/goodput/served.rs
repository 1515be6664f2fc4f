//! What the peer speaks with: the kernel's TCP, wharf's, or a kernel behind wharf's LRO.

use std::any::Any;

use nic::Nic;
use nic::config::{Config, WireMode};
use nic::tcp::Place;
use sys::netlink::address;

use super::peer::Way;
use crate::Error;
use crate::tcp::server::{Server, Service, kernel, wharf};
use crate::tcp::system::System;
use crate::tcp::testbed::{PREFIX_LEN, SERVER, Testbed};

/// The interface that wharf makes for a kernel behind it.
const HOST: &str = "host0";

/// A server, until it is dropped.
pub(super) struct Served {
    _running: Box<dyn Any>,
}

impl Served {
    /// Which way bytes go, seen from the peer's side.
    pub(super) fn start(
        testbed: &Testbed,
        system: System,
        way: Way,
        config: &Config,
    ) -> Result<Served, Error> {
        let service = if way.is_send() { Service::Sink } else { Service::Source };
        // Even where a new network namespace forwards because this machine does.
        let (wire, config) = (testbed.far.clone(), config.clone().for_a_host(false));
        if system == System::Wharf && way == Way::Lro {
            let nic = testbed.server.run(move || -> Result<Nic, Error> {
                let nic = Nic::start(&wire, HOST, config)?;
                address::add(nic.host().1, SERVER.into(), PREFIX_LEN, true)?;
                Ok(nic)
            })??;
            let server = kernel::Server::start(testbed, SERVER.into(), service)?;
            // In this order they end.
            return Ok(Served { _running: Box::new((server, nic)) });
        }
        if system == System::Wharf {
            let addresses = wharf::addresses(SERVER, None)?;
            let start = || wharf::start(Place::Wire { name: wire }, addresses, service, config);
            return Ok(Served { _running: Box::new(testbed.server.run(start)??) });
        }
        let server = Server::start(testbed, system, service, 1, WireMode::Auto)?;
        Ok(Served { _running: Box::new(server) })
    }
}
