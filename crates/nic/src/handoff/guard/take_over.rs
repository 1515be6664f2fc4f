//! The NIC has died: its connections go back to the kernel, and their applications hear of it.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use handoff::RestoreReason;
use handoff::mirror::{Memory, Record, read};
use handoff::ring::splice;
use handoff::session::status::{self, Place, Status, Why};
use sys::tcp::repair;
use tcp::repair::Repair;

use super::side_by_side::side_by_side;
use super::{Inventory, Survivors, Taken};
use crate::handoff::process::SharedProcess;
use crate::lane::handoff::link::{Process, shared};
use crate::lane::handoff::recover::{Unrecovered, recover};
use crate::lane::handoff::told::ToKernel;
use crate::lane::handoff::wake_waiters;
use crate::repair::to_kernel;

/// `ECONNRESET` (errno(3)).
const ECONNRESET: u16 = 104;
/// So long it is waited for memory of the kernel's, for all connections together: nothing comes or goes meanwhile.
const FOR_MEMORY: Duration = Duration::from_secs(5);
/// How often it is tried.
const AGAIN: Duration = Duration::from_millis(10);
/// Segments that the kernel sends at once on a connection that it has been given (`TCP_INIT_CWND`).
const INITIAL_WINDOW: u32 = 10;
/// By how much they are shorter than others if they tell of what came out of order (RFC 2018 section 3).
const SACK_OPTION: u32 = 36;

/// What has become of the NIC's connections.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Connections that the kernel has again.
    restored: usize,
    /// Why others are lost, a line each.
    lost: Vec<String>,
    paused: Vec<Paused>,
    sessions: HashMap<u32, SharedProcess>,
    kept: Kept,
}

/// What a service manager keeps of the same, if it does, and what keeps others from putting that back meanwhile.
#[derive(Debug, Default)]
struct Kept(Option<(Inventory, File)>);

impl Kept {
    /// Whatever becomes of it now, nobody else is to put it back.
    fn erase(&self, place: u32) {
        if let Kept(Some((inventory, _))) = self {
            inventory.erase(place);
        }
    }
}

/// A connection that the kernel has again, and that sends nothing yet.
#[derive(Debug)]
struct Paused {
    place: u32,
    taken: Taken,
    parts: repair::Parts,
}

impl Outcome {
    /// Addresses and routes are where they belong by now: the connections go on, and their applications hear of it.
    /// Returns how many that are, and why others are lost.
    pub fn resume(&mut self) -> (usize, Vec<String>) {
        let Outcome { restored, lost, paused, sessions, kept } = self;
        let until = Instant::now() + FOR_MEMORY;
        let resumed = side_by_side(paused.iter().collect(), |Paused { place, taken, parts }| {
            let process = sessions.get(&taken.session)?;
            // Before it goes on: from then on its record is old.
            kept.erase(*place);
            let resumed = resume(taken, parts, until);
            match &resumed {
                Ok(()) => tell(process, taken, self::restored()),
                Err(_) => lose(process, taken),
            }
            Some(resumed.map_err(|why| lost_to(parts.remote, why)))
        });
        for resumed in resumed.into_iter().flatten() {
            *restored += usize::from(resumed.is_ok());
            lost.extend(resumed.err());
        }
        // The applications have the memory mapped for as long as they live. It can wait; they do.
        for Paused { taken, .. } in paused.drain(..) {
            sessions
                .get(&taken.session)
                .into_iter()
                .for_each(|process| process.give_back(taken.cid));
        }
        (self.restored, std::mem::take(&mut self.lost))
    }

    /// All is as it was: what a service manager keeps of it is of no use any more.
    pub fn finish(self) {
        if let Kept(Some((inventory, _))) = &self.kept {
            inventory.finish();
        }
    }
}

impl Survivors {
    /// Puts the NIC's connections back into the kernel, while the host's interface still has their addresses. It goes
    /// when this returns, or is to be deleted. Nothing is sent before [`Outcome::resume`]. `None` if another process has
    /// put all back, which is waited for if it is at it.
    ///
    /// # Errors
    /// `TimedOut` if that does not end.
    pub fn take_over(self) -> io::Result<Option<Outcome>> {
        let Survivors { mirror, host, sessions, taken, inventory } = self;
        let kept = inventory.map(|inventory| inventory.lock().map(|lock| (inventory, lock)));
        let kept = Kept(kept.transpose()?);
        if kept.0.as_ref().is_some_and(|(inventory, _)| inventory.is_finished()) {
            return Ok(None);
        }
        let mut outcome = Outcome { sessions, kept, ..Outcome::default() };
        let host = host.map(|(tap, mac)| ToKernel::new(tap, mac));
        let Some((memory, places)) = mirror else { return Ok(Some(outcome)) };
        let memory = Memory::new(memory.words(), places);
        // Before the first is put back.
        taken.iter().for_each(|(_, taken)| finish_splice(&outcome.sessions, taken));
        let Outcome { sessions, kept, .. } = &outcome;
        let until = Instant::now() + FOR_MEMORY;
        let became = side_by_side(taken.into_iter().collect(), |(place, taken)| {
            let record = memory.record(place).and_then(|area| read(area).ok());
            let record = record.filter(|record| record.agreed.cid == taken.cid);
            let process = sessions.get(&taken.session);
            let became = process.map_or(Became::Nothing, |process| {
                restore(process, record, &taken, (host.as_ref(), until))
            });
            if let Became::Lost(_) = became {
                kept.erase(place);
            }
            if !matches!(became, Became::Paused(_)) {
                // wharf may have died while it was in repair mode, whatever the memory of its application says.
                taken.release();
            }
            (place, taken, became)
        });
        for (place, taken, became) in became {
            match became {
                Became::Nothing => {}
                Became::Kernels => outcome.restored += 1,
                Became::Paused(parts) => {
                    outcome.paused.push(Paused { place, taken, parts: *parts });
                }
                Became::Lost(why) => outcome.lost.push(why),
            }
        }
        Ok(Some(outcome))
    }
}

/// What a connection of the NIC's has become.
enum Became {
    /// It was over, or never the NIC's.
    Nothing,
    /// The kernel has never lost it.
    Kernels,
    /// The kernel has it, and sends nothing yet.
    Paused(Box<repair::Parts>),
    /// Why.
    Lost(String),
}

/// The kernel has a connection again, by its record, if there is one.
fn restore(
    process: &SharedProcess,
    record: Option<Record>,
    taken: &Taken,
    (host, until): (Option<&ToKernel>, Instant),
) -> Became {
    if is_over(process, taken) {
        return Became::Nothing;
    }
    let Some(record) = record else {
        return match without_record(process, taken) {
            Some(true) => Became::Kernels,
            Some(false) => Became::Lost("a connection is lost that had no record".to_owned()),
            None => Became::Nothing,
        };
    };
    match put_back(&record, process, taken, until) {
        Ok((state, parts)) => {
            if let Some(host) = host {
                host.tell(&host.segments(&state));
            }
            Became::Paused(Box::new(parts))
        }
        Err(why) => {
            lose(process, taken);
            Became::Lost(lost_to(record.agreed.remote, why))
        }
    }
}

fn lost_to(remote: SocketAddr, why: impl Display) -> String {
    format!("the connection to {remote} is lost: {why}")
}

/// What wharf was moving to another connection when it died is all in one of their rings.
fn finish_splice(sessions: &HashMap<u32, SharedProcess>, taken: &Taken) {
    let shared = sessions.get(&taken.session).and_then(|process| shared(process));
    let Some(shared) = shared else { return };
    if let Some(area) = shared.area(taken.cid)
        && let Ok(ring) = area.receive()
    {
        splice::finish(ring, area.notes(), |cid| shared.area(cid)?.send().ok());
    }
}

/// Whether its application sees it at the kernel, or has seen its end: it may have given it up, as nobody came for long.
fn is_over(process: &SharedProcess, taken: &Taken) -> bool {
    let area = shared(process).and_then(|shared| shared.area(taken.cid));
    match area.map(|area| Status::decode(area.status().load(Ordering::Acquire)).place) {
        Some(Place::Free | Place::Os) => true,
        Some(Place::Ended) => {
            // It is unconnected then, or was.
            let _ = repair::discard(&taken.socket, taken.reuses_address());
            true
        }
        Some(Place::Offered | Place::Moving | Place::Nic) | None => false,
    }
}

fn restored() -> Status {
    Status { why: Some(Why::Restored(RestoreReason::Killed)), ..Status::at(Place::Os) }
}

/// The kernel has it, or nothing is left of it. Returns which, of one whose application waits for that.
fn without_record(process: &SharedProcess, taken: &Taken) -> Option<bool> {
    let area = shared(process).and_then(|shared| shared.area(taken.cid))?;
    let status = Status::decode(area.status().load(Ordering::Acquire));
    match status.place {
        Place::Free | Place::Os | Place::Ended => None,
        // It was on its way, and has never left the kernel.
        Place::Offered | Place::Moving if is_intact(taken) => {
            tell(process, taken, restored());
            Some(true)
        }
        Place::Offered | Place::Moving | Place::Nic => {
            lose(process, taken);
            Some(false)
        }
    }
}

/// Whether the kernel has never lost it, which is out of repair mode then.
fn is_intact(taken: &Taken) -> bool {
    repair::is_placeholder(&taken.socket, taken.reuses_address()).is_ok_and(|is| !is)
}

/// Its application hears that it is reset. Its peer hears nothing: the kernel has no sequence numbers for that.
fn lose(process: &SharedProcess, taken: &Taken) {
    // It is unconnected then, or was.
    let _ = repair::discard(&taken.socket, taken.reuses_address());
    tell(process, taken, Status { error: ECONNRESET, ..Status::at(Place::Ended) });
}

/// Why a connection is lost.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("{0}")]
    Record(Unrecovered),
    #[error("the kernel does not take it: {0}")]
    Kernel(#[from] io::Error),
}

fn put_back(
    record: &Record,
    process: &SharedProcess,
    taken: &Taken,
    until: Instant,
) -> Result<(Repair, repair::Parts), Lost> {
    let area = shared(process).and_then(|shared| shared.area(taken.cid));
    let area = area.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
    let now = sys::clock::now();
    let state = recover(record, &area, now).map_err(Lost::Record)?;
    let reuse_address = taken.reuses_address();
    let none = || io::Error::from(io::ErrorKind::InvalidData);
    let mut parts = to_kernel(state.clone()).ok_or_else(none)?;
    // The placeholder, with what was written to it past the library; or the connection itself, where wharf died while it
    // put it back. One that the kernel has ended is not taken, but taken back.
    if let Ok(aside) = repair::dissolve(&taken.socket) {
        parts.append_unsent(&aside);
    }
    parts.reuse_address = reuse_address;
    let segment = u32::from(record.moving.mss).saturating_sub(SACK_OPTION);
    if parts.unacknowledged <= INITIAL_WINDOW * segment && !sys::tcp::is_corked(&taken.socket)? {
        // All of it goes out again at once, instead of after a time-out of a second. If a part did not, the peer's
        // acknowledgment of all would be taken for one of what was never sent, again and again.
        parts.unsent = parts.unacknowledged;
    }
    loop {
        match repair::put_back_paused(&taken.socket, &parts) {
            Err(why) if why.kind() == io::ErrorKind::OutOfMemory && Instant::now() < until => {
                thread::sleep(AGAIN);
            }
            put_back => return Ok(put_back.map(|()| (state, parts))?),
        }
    }
}

/// It goes on, with all that it had to send.
fn resume(taken: &Taken, parts: &repair::Parts, until: Instant) -> io::Result<()> {
    let mut left = repair::resume(&taken.socket, parts)?;
    while left > 0 {
        if Instant::now() >= until {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        thread::sleep(AGAIN);
        left = repair::write_rest(&taken.socket, parts, left)?;
    }
    Ok(())
}

fn tell(process: &SharedProcess, taken: &Taken, status: Status) {
    let Some(area) = shared(process).and_then(|shared| shared.area(taken.cid)) else { return };
    status::change(area.status(), status);
    wake_waiters(process, area.waiters(), area.wake());
    process.wake();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::guard::Message;
    use crate::lane::handoff::records::Mirror;
    use handoff::Cid;
    use handoff::session::Layout;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use sys::netns::Namespace;
    use testkit::missing::lacks;

    const LAYOUT: Layout =
        Layout { workers: 1, commands: 64, connections: 4, send: 4096, receive: 4096 };

    fn copies(descriptors: &[BorrowedFd<'_>]) -> Vec<OwnedFd> {
        descriptors.iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect()
    }

    /// wharf dies while a socket is in repair mode, and its program writes what it likes into its memory.
    #[test]
    fn no_socket_stays_in_repair_mode_whatever_its_program_says() {
        let test = || {
            sys::interface::set_up("lo").unwrap();
            for place in [Place::Free, Place::Moving, Place::Nic, Place::Os, Place::Ended] {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let (program, _) = listener.accept().unwrap();
                repair::take(&program).unwrap();
                let (mirror, process) =
                    (Mirror::new(1).unwrap(), SharedProcess::new(LAYOUT, 0).unwrap());
                let area = shared(&process).and_then(|shared| shared.area(Cid(0))).unwrap();
                status::change(area.status(), Status::at(place));
                let mut survivors = Survivors::default();
                survivors.take(Message::Mirror { places: 1 }, copies(&[mirror.as_fd()]));
                let session = Message::Session { number: 3, layout: LAYOUT };
                survivors.take(session, copies(&process.kept()));
                let take =
                    Message::Take { place: 0, session: 3, cid: Cid(0), reuse_address: false };
                survivors.take(take, copies(&[program.as_fd()]));
                let mut outcome = survivors.take_over().unwrap().unwrap();
                outcome.resume();
                assert!(!repair::is_repaired(&program).unwrap(), "{place:?}");
                assert!(program.peer_addr().is_err(), "{place:?}");
            }
        };
        match Namespace::new() {
            Ok(namespace) => namespace.run(test).unwrap(),
            Err(error) => lacks(error),
        }
    }
}
