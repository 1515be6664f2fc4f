//! Addresses of wharf's own beside this machine's, and what is served there.

use std::net::IpAddr;

use clap::{Args, ValueEnum};
use nic::tcp::{Address, Addresses, Own, Role, Service, Work};

use crate::args::address;
use crate::error::Error;
use crate::tcp::PROBES;

/// A service of wharf's own TCP; see `wharf tcp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ServiceName {
    /// Send back what comes (RFC 862)
    Echo,
    /// Read what comes, and answer nothing (RFC 863)
    Discard,
    /// Send as fast as possible; what comes is read
    Source,
}

/// What `wharf up` serves by itself.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServeArgs {
    /// An address of wharf's own TCP beside this machine's, with the length of its network's prefix. This
    /// machine reaches it by the host interface, others by the wire
    #[arg(long, value_name = "ADDRESS/LEN", requires_all = ["service", "port"], value_parser = address)]
    address: Vec<Address>,
    /// The service of these addresses
    #[arg(long, value_enum, value_name = "NAME", requires = "address")]
    service: Option<ServiceName>,
    /// TCP port of the service
    #[arg(long, value_name = "N", requires = "address",
          value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Where the service's packets for other networks go; one for IPv4, one for IPv6
    #[arg(long, value_name = "ADDRESS", requires = "address")]
    gateway: Vec<IpAddr>,
    /// Use the addresses at once, without duplicate address detection, which takes a second
    #[arg(long, requires = "address")]
    no_dad: bool,
}

impl ServeArgs {
    /// What is to be served; `None` if nothing is.
    pub(crate) fn own(&self) -> Result<Option<Own>, Error> {
        let (Some(service), Some(port)) = (self.service, self.port) else { return Ok(None) };
        let addresses = Addresses::new(self.address.clone(), self.gateway.clone())
            .map_err(|error| Error::Usage(error.to_string()))?;
        let service = match service {
            ServiceName::Echo => Service::Echo,
            ServiceName::Discard => Service::Discard,
            ServiceName::Source => Service::Source,
        };
        Ok(Some(Own {
            addresses,
            probes: if self.no_dad { 0 } else { PROBES },
            role: Role::Listen { port },
            work: Work { service, bytes: None, verify: false },
            run: None,
        }))
    }

    /// For the line that tells what runs.
    pub(crate) fn describe(&self) -> String {
        let (Some(service), Some(port)) = (self.service, self.port) else { return String::new() };
        let service = service.to_possible_value().map(|value| value.get_name().to_owned());
        let own: Vec<String> = self.address.iter().map(ToString::to_string).collect();
        format!(", {} on {} port {port}", service.unwrap_or_default(), own.join(" "))
    }
}
