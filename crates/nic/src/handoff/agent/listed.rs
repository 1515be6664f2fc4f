//! What somebody who asks is told of connections.

use std::collections::HashMap;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::tcp::FourTuple;
use ::tcp::repair::Repair;
use handoff::machine::Where;
use handoff::session::status::Why;
use sys::netlink::sockets::Socket;

use super::at_kernel::Known;
use crate::lane::handoff::figures::Figures;
use crate::lane::handoff::link::{ToWorker, Way};

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
const MICROSECOND: u64 = 1_000;

/// A connection of a program: one that the NIC runs, one that is on its way, or one that the kernel has as it was refused
/// or has come back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its ends.
    pub path: FourTuple,
    /// The process that has it, as seen from wharf.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its number in the process's session; `None` at the kernel.
    pub cid: Option<u32>,
    /// Where it is.
    pub place: Where,
    /// Why it is at the kernel.
    pub why: Option<Why>,
    /// How it stands; `None` on its way.
    pub figures: Option<Figures>,
}

impl Listed {
    /// Whether the NIC runs it.
    pub fn is_at_nic(&self) -> bool {
        self.place == Where::Nic
    }

    /// One that the kernel has, as that shows it.
    pub(crate) fn at_kernel(known: &Known, shown: &Socket) -> Self {
        let figures = Repair::state_from_kernel(shown.state).map(|state| Figures {
            state,
            sent: None,
            received: None,
            rtt: u64::from(shown.rtt) * MICROSECOND,
            cwnd: shown.cwnd,
        });
        Listed {
            path: known.path,
            pid: known.owner.pid,
            uid: known.owner.uid,
            cid: None,
            place: Where::Os,
            why: Some(known.why),
            figures,
        }
    }
}

/// Which connections are to move: all, unless it says more.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Selection {
    /// The one with these ends.
    pub path: Option<FourTuple>,
    /// Those of this process, as seen from wharf.
    pub pid: Option<i32>,
}

/// The way to ask the workers how connections stand.
#[derive(Clone, Debug)]
pub(crate) struct Inquiry {
    workers: Vec<Way<ToWorker>>,
    /// One asks at a time, so that a turn answers one.
    turn: Arc<Mutex<()>>,
}

impl Inquiry {
    pub(super) fn new(workers: Vec<Way<ToWorker>>) -> Self {
        Inquiry { workers, turn: Arc::default() }
    }

    /// The figures of all connections that the NIC runs. A worker that has ended, or does nothing, gives none.
    pub(crate) fn figures(&self) -> HashMap<FourTuple, Figures> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = HashMap::new();
        for worker in &self.workers {
            let mut next = Some(0);
            while let Some(from) = next {
                let (to, told) = mpsc::channel();
                worker.tell(ToWorker::Figures { from, to });
                let Ok(page) = told.recv_timeout(PATIENCE) else { break };
                all.extend(page.all);
                next = page.next;
            }
        }
        all
    }
}
