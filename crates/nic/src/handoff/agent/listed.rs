//! What somebody who asks is told of connections.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::tcp::FourTuple;
use ::tcp::repair::Repair;
use handoff::machine::Where;
use handoff::session::status::Why;
use sys::netlink::sockets::{self, Socket};
use sys::netlink::{Connection, Protocol};
use sys::process::PeerCredentials;

use super::at_kernel::Known;
use crate::lane::handoff::figures::Figures;
use crate::lane::handoff::link::{ToWorker, Way};

/// How long a worker may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
const MICROSECOND: u64 = 1_000;

/// A connection of a program: one that the NIC runs, one that is on its way, or one that the kernel has.
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
    /// Why it is at the kernel, if it was offered.
    pub why: Option<Why>,
    /// How it stands; `None` on its way.
    pub figures: Option<Figures>,
    /// Bytes that the peer had acknowledged, and that had come in order, before its current stay at the kernel or at the NIC.
    pub carried: [u64; 2],
}

impl Listed {
    /// Bytes that the peer has acknowledged, over all stays; `None` if they are not known.
    pub fn sent(&self) -> Option<u64> {
        self.figures?.sent.map(|sent| sent.saturating_add(self.carried[0]))
    }

    /// Bytes that have come in order, over all stays; `None` if they are not known.
    pub fn received(&self) -> Option<u64> {
        self.figures?.received.map(|received| received.saturating_add(self.carried[1]))
    }

    /// Whether the NIC runs it.
    pub fn is_at_nic(&self) -> bool {
        self.place == Where::Nic
    }

    /// One that the kernel has, as that shows it.
    pub(crate) fn at_kernel(
        path: FourTuple,
        owner: PeerCredentials,
        why: Option<Why>,
        shown: &Socket,
    ) -> Self {
        let figures = Repair::state_from_kernel(shown.state).map(|state| Figures {
            state,
            sent: Some(shown.sent),
            received: Some(shown.received),
            rtt: u64::from(shown.rtt) * MICROSECOND,
            cwnd: shown.cwnd,
        });
        let (pid, uid, carried) = (owner.pid, owner.uid, [0; 2]);
        Listed { path, pid, uid, cid: None, place: Where::Os, why, figures, carried }
    }
}

/// Its ends.
pub(crate) fn path_of(shown: &Socket) -> FourTuple {
    FourTuple { local: shown.local, remote: shown.remote }
}

/// The connections that the kernel has of these processes, by their number and user, each once, and how many processes it
/// did not tell of: the caller must have the right to trace them (ptrace(2)). The placeholder of a connection that a NIC runs
/// looks like one of them. To be called in the network namespace of the NIC.
pub fn of_processes(processes: &BTreeMap<i32, u32>) -> (Vec<Listed>, usize) {
    let there = at_kernel().unwrap_or_default().into_values();
    let mut by_inode: HashMap<u32, Socket> = there.map(|shown| (shown.inode, shown)).collect();
    let (mut all, mut untold) = (Vec::new(), 0);
    for (pid, uid) in processes {
        let owner = PeerCredentials { pid: *pid, uid: *uid, gid: 0 };
        match sys::process::socket_inodes(*pid as u32) {
            Ok(inodes) => {
                let of_process = inodes.iter().filter_map(|inode| by_inode.remove(inode));
                let listed = |shown| Listed::at_kernel(path_of(&shown), owner, None, &shown);
                all.extend(of_process.map(listed));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => untold += 1,
            // It has ended.
            Err(_) => {}
        }
    }
    (all, untold)
}

/// The connections that the kernel has, by what tells them apart; `None` if it does not say.
pub(crate) fn at_kernel() -> Option<HashMap<u64, Socket>> {
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

/// What the agent knows of connections.
#[derive(Default, Debug)]
pub(crate) struct List {
    /// Those that the NIC runs, and those on their way.
    pub(crate) listed: Vec<Listed>,
    /// Those that the kernel has as they were refused or have come back, and some that are gone.
    pub(crate) known: Vec<Known>,
    /// The processes that offer connections.
    pub(crate) owners: Vec<PeerCredentials>,
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
