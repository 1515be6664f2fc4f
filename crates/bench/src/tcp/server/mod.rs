//! Servers: what a client finds at [`SERVER`](super::testbed::SERVER).

pub(super) mod kernel;
#[cfg(feature = "peers")]
mod smoltcp;
pub(super) mod wharf;

use std::any::Any;
use std::net::SocketAddr;

use nic::config::WireMode;

use super::system::System;
use super::testbed::{SERVER, Testbed};
use crate::Error;

/// What is done with a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Service {
    /// What comes is read.
    Sink,
    /// As much is sent as goes.
    Source,
    /// What comes is sent back.
    Echo,
}

/// Where it listens.
pub(super) const PORT: u16 = 7000;

/// A server at work, until it is dropped.
pub(super) struct Server {
    /// Its notices.
    pub(super) notices: Vec<String>,
    _running: Box<dyn Any>,
}

impl Server {
    /// Starts one for as many connections at a time; `mode` is that of wharf on a veth without offloads.
    pub(super) fn start(
        testbed: &Testbed,
        system: System,
        service: Service,
        connections: u32,
        mode: WireMode,
    ) -> Result<Server, Error> {
        match system {
            System::Kernel => {
                kernel::address(testbed)?;
                let server = kernel::Server::start(testbed, SERVER.into(), service)?;
                Ok(Server { notices: Vec::new(), _running: Box::new(server) })
            }
            System::Wharf => {
                let endpoint = wharf::serve(testbed, service, mode)?;
                let mut notices = endpoint.notices().to_vec();
                notices.push(format!("reached by {}", endpoint.port()));
                Ok(Server { notices, _running: Box::new(endpoint) })
            }
            System::Smoltcp => smoltcp(testbed, service, connections),
        }
    }

    /// Where it is.
    pub(super) fn at() -> SocketAddr {
        SocketAddr::from((SERVER, PORT))
    }
}

#[cfg(feature = "peers")]
fn smoltcp(testbed: &Testbed, service: Service, connections: u32) -> Result<Server, Error> {
    let server = smoltcp::Server::start(testbed, service, connections)?;
    Ok(Server { notices: Vec::new(), _running: Box::new(server) })
}

#[cfg(not(feature = "peers"))]
fn smoltcp(_: &Testbed, _: Service, _: u32) -> Result<Server, Error> {
    let why = "it was not built in: build with --features peers".to_owned();
    Err(Error::Failed { system: "smoltcp", why })
}
