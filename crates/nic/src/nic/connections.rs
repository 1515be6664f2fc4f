//! Connections of programs, as an operator sees and moves them.

use std::collections::HashMap;

use ::tcp::FourTuple;
use handoff::RestoreReason;
use sys::netlink::sockets::{self, Socket};
use sys::netlink::{Connection, Protocol};

use super::Nic;
use crate::handoff::Listed;
use crate::handoff::agent::Agent;

impl Nic {
    /// The connections that the NIC runs, those on their way there or back, and those that the kernel has as they were
    /// refused or have come back. To be called in the network namespace that the NIC was started in.
    pub fn connections(&self) -> Vec<Listed> {
        // What takes time is asked without keeping others from the agent.
        let asked = self.agent().as_ref().map(|agent| (agent.list(), agent.inquiry()));
        let Some(((mut all, known), inquiry)) = asked else { return Vec::new() };
        if !all.is_empty() {
            let figures = inquiry.figures();
            for listed in &mut all {
                listed.figures = figures.get(&listed.path).copied();
            }
        }
        if known.is_empty() {
            return all;
        }
        let Some(there) = at_kernel() else { return all };
        let mut gone = Vec::new();
        for known in &known {
            match there.get(&known.cookie) {
                Some(shown) => all.push(Listed::at_kernel(known, shown)),
                None => gone.push(known.cookie),
            }
        }
        if let Some(agent) = self.agent().as_ref().filter(|_| !gone.is_empty()) {
            agent.forget(gone);
        }
        all
    }

    /// All connections that the NIC runs go back to the kernel, or the one with these ends; how many that are.
    pub fn hand_to_os(&self, one: Option<FourTuple>) -> usize {
        let agent = self.agent();
        let Some(agent) = &*agent else { return 0 };
        match one {
            Some(path) => usize::from(agent.want_back_one(path)),
            None => {
                let (all, _) = agent.list();
                agent.want_back(RestoreReason::Command);
                all.len()
            }
        }
    }

    /// Asks all programs that `wharf run` has started to hand over what connections they have; how many programs there
    /// are. They do when they make a call, or wait.
    pub fn hand_to_nic(&self) -> usize {
        self.agent().as_ref().map(Agent::pick_all).unwrap_or_default()
    }
}

/// The connections that the kernel has, by what tells them apart; `None` if it does not say.
fn at_kernel() -> Option<HashMap<u64, Socket>> {
    let listed = Connection::open(Protocol::Diag)
        .map_err(|error| error.to_string())
        .and_then(|mut netlink| sockets::list(&mut netlink).map_err(|error| error.to_string()));
    match listed {
        Ok(all) => Some(all.into_iter().map(|socket| (socket.cookie, socket)).collect()),
        Err(error) => {
            tracing::warn!("connections at the kernel are not listed: {error}");
            None
        }
    }
}
