//! A running endpoint: its port opened, its thread started, and what may be asked of it.

use std::io;
use std::sync::Arc;

use super::open::{self, Held, Link, Place};
use crate::app::Report;
use crate::config::Config;
use crate::counters::{Entry, Published};
use crate::degen;
use crate::engines::{Engines, Own, Told};
use crate::error::Error;
use crate::lane::trace::Trace;
use crate::running::{Start, Wan, Workers};

/// What an endpoint is to be.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it is.
    pub place: Place,
    /// The host that it is. There are no probes on an interface that is made for it, which has no other hosts.
    pub own: Own,
    /// `tcp.*`, and how it waits; `lro.*` and `wire.*` on a wire, `host.*` behind an interface.
    pub config: Config,
    /// A WAN in front of it, whose forward direction is that of what the endpoint sends.
    pub wan: Option<degen::Settings>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Endpoint {
    name: String,
    port: String,
    workers: Workers,
    /// What they have counted, once they have ended.
    counted: Vec<Entry>,
    told: Told,
    wan: Option<Arc<degen::Handle>>,
    notices: Vec<String>,
    /// Dropped after the threads have ended.
    held: Option<Held>,
}

impl Endpoint {
    /// Opens the port, in the network namespace of the calling thread, and starts the workers. Its addresses
    /// are in use when this returns: on a wire that takes as many seconds as there are probes.
    ///
    /// # Errors
    /// See [`Error`]; nothing is left behind.
    pub fn start(plan: Plan) -> Result<Endpoint, Error> {
        Self::start_traced(plan, None)
    }

    /// The same with a trace of one connection.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_traced(plan: Plan, trace: Option<Trace>) -> Result<Endpoint, Error> {
        let Plan { place, mut own, mut config, wan } = plan;
        let mut notices = Vec::new();
        let Link { port, held, mac, mtu, name: described } =
            open::open(&place, &config, wan.is_some(), &mut notices)?;
        if wan.is_some() && port.len() > 1 {
            let (name, workers) = (place.name().to_owned(), port.len());
            return Err(Error::SeveralWans { name, workers });
        }
        let wan = wan.as_ref().map(Wan::new).transpose().map_err(Error::Worker)?;
        if let Place::Host { .. } = place {
            own.probes = 0;
            // A kernel sends what it has whole.
            config.lro.enable &= wan.is_some();
        }
        let (engines, told) = Engines::new(own, &config, (mac, mtu), port.len());
        let engines = engines.with_trace(trace);
        let start = Start {
            config: &config,
            mtu,
            wan: wan.as_ref(),
            engines: Some(&engines),
            handoff: Vec::new(),
        };
        let workers = port.start(start)?;
        // From here on, a worker that has ended tells by that that it will not tell.
        drop(engines);
        let mut endpoint = Endpoint {
            name: place.name().to_owned(),
            port: described,
            workers,
            counted: Vec::new(),
            told,
            wan: wan.map(|wan| wan.handle),
            notices,
            held: Some(held),
        };
        endpoint.told.wait(endpoint.workers.len()).map_err(|duplicate| {
            // It ends with what was just said.
            let _ = endpoint.stop();
            Error::Duplicate { name: endpoint.name.clone(), duplicate }
        })?;
        Ok(endpoint)
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is reached by: `TAP`, `AF_XDP native, copy`, ...
    pub fn port(&self) -> &str {
        &self.port
    }

    /// What did not go as well as it might have, and why; one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// All counters, summed over the workers.
    pub fn counters(&self) -> Vec<Entry> {
        let mut all = match self.workers.is_empty() {
            true => self.counted.clone(),
            false => Published::total(self.workers.iter().map(|(handle, _)| handle.published())),
        };
        if let Some(wan) = &self.wan {
            all.extend(wan.snapshot().entries(["degen.forward", "degen.reverse"]));
        }
        all
    }

    /// The WAN in front of it, if there is one.
    pub fn wan(&self) -> Option<&degen::Handle> {
        self.wan.as_deref()
    }

    /// The connections that have ended since this was last asked; none of those of
    /// [`Service::Discard`](crate::app::Service::Discard).
    pub fn reports(&self) -> impl Iterator<Item = Report> + '_ {
        self.told.reports.try_iter()
    }

    /// Whether it has ended by itself: everything is done, or its port has become useless.
    pub fn is_finished(&self) -> bool {
        self.workers.iter().any(|(_, thread)| thread.is_finished()) || self.workers.is_empty()
    }

    /// Looks whether what arrives still comes by the queues that are read. To be called now and then, in
    /// the network namespace that it was started in.
    ///
    /// # Errors
    /// It does not, and what to do about it.
    pub fn look_at_queues(&self) -> Result<(), Error> {
        self.held.as_ref().map_or(Ok(()), Held::look_at_queues)
    }

    /// Resets the connections that are left, and closes the port. The counters stay.
    ///
    /// # Errors
    /// What made it end before it was told to.
    pub fn stop(&mut self) -> io::Result<()> {
        self.workers.iter().for_each(|(handle, _)| handle.stop());
        let mut ended = Ok(());
        let handles: Vec<_> = self.workers.iter().map(|(handle, _)| Arc::clone(handle)).collect();
        for (_, thread) in self.workers.drain(..) {
            let failed = || Err(io::Error::other("the endpoint panicked"));
            ended = ended.and(thread.join().unwrap_or_else(|_| failed()));
        }
        if !handles.is_empty() {
            self.counted = Published::total(handles.iter().map(|handle| handle.published()));
        }
        self.held = None;
        ended
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // `stop` tells why it ended.
        let _ = self.stop();
    }
}
