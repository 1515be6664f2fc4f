//! Connections of programs, as an operator sees and moves them.

use std::collections::HashMap;

use ::tcp::FourTuple;
use handoff::machine::Where;
use sys::netlink::sockets::{self, Socket};
use sys::netlink::{Connection, Protocol};

use super::Nic;
use crate::handoff::agent::Agent;
use crate::handoff::{Listed, Selection};

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

    /// How many connections the NIC runs.
    pub fn handed_off(&self) -> usize {
        let (all, _) = self.agent().as_ref().map(Agent::list).unwrap_or_default();
        all.iter().filter(|one| one.is_at_nic()).count()
    }

    /// These connections go back to the kernel, if the NIC runs them or is about to; how many that are.
    pub fn hand_to_os(&self, which: Selection) -> usize {
        self.agent().as_ref().map_or(0, |agent| agent.restore(which))
    }

    /// Asks the programs that `wharf run` has started to hand over these connections; how many programs are asked. They do
    /// when they make a call, or wait.
    pub fn hand_to_nic(&self, which: Selection) -> usize {
        self.agent().as_ref().map_or(0, |agent| agent.pick(which))
    }

    /// Where the connection with these ends is; `None` if neither the NIC nor the kernel has it. To be called as
    /// [`connections`](Self::connections).
    pub fn place_of(&self, path: &FourTuple) -> Option<Where> {
        let (all, _) = self.agent().as_ref().map(Agent::list).unwrap_or_default();
        if let Some(found) = all.iter().find(|one| one.path == *path) {
            return Some(found.place);
        }
        let is_it = |socket: &Socket| (socket.local, socket.remote) == (path.local, path.remote);
        at_kernel()?.values().any(is_it).then_some(Where::Os)
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
