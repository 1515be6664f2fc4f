//! Connections of programs, as an operator sees and moves them.

use ::tcp::FourTuple;
use handoff::machine::Where;
use sys::process::PeerCredentials;

use super::Nic;
use crate::handoff::agent::{Agent, Known, List, at_kernel, path_of};
use crate::handoff::{Listed, Selection};

impl Nic {
    /// The connections that the NIC runs, those on their way there or back, and those that the kernel has as they were
    /// refused or have come back. To be called in the network namespace that the NIC was started in.
    pub fn connections(&self) -> Vec<Listed> {
        // What takes time is asked without keeping others from the agent.
        let asked = self.agent().as_ref().map(|agent| (agent.list(), agent.inquiry()));
        let Some((List { listed: mut all, known, .. }, inquiry)) = asked else { return Vec::new() };
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
                Some(shown) => {
                    let Known { path, owner, why, carried, .. } = *known;
                    let listed = Listed::at_kernel(path, owner, Some(why), shown);
                    all.push(Listed { carried, ..listed });
                }
                None => gone.push(known.cookie),
            }
        }
        if let Some(agent) = self.agent().as_ref().filter(|_| !gone.is_empty()) {
            agent.forget(gone);
        }
        all
    }

    /// The processes that may offer connections.
    pub fn programs(&self) -> Vec<PeerCredentials> {
        self.agent().as_ref().map(Agent::list).unwrap_or_default().owners
    }

    /// How many connections the NIC runs.
    pub fn handed_off(&self) -> usize {
        let List { listed, .. } = self.agent().as_ref().map(Agent::list).unwrap_or_default();
        listed.iter().filter(|one| one.is_at_nic()).count()
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
        let List { listed, .. } = self.agent().as_ref().map(Agent::list).unwrap_or_default();
        if let Some(found) = listed.iter().find(|one| one.path == *path) {
            return Some(found.place);
        }
        at_kernel()?.values().any(|shown| path_of(shown) == *path).then_some(Where::Os)
    }
}
