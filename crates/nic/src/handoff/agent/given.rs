//! What an agent makes of what processes say: for tests and fuzzing.

use std::collections::HashMap;
use std::fs::File;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock};
use std::thread;

use handoff::command::OsControl;
use handoff::machine::{ToNic, ToOs};
use handoff::policy::Policy;
use handoff::session::{Layout, MESSAGE_LEN, Message};
use handoff::{Cid, RestoreReason};
use sys::packets::PacketSocket;
use wire::FlowHash;

use super::ways::Ways;
use super::{Agent, Host, Link, PerUser};
use crate::handle::Wake;
use crate::handoff::Listener;
use crate::lane::handoff::link::{State, ToAgent, ToWorker, Way};
use crate::lane::handoff::records::{Beginnings, Mirror};
use crate::steer::Lookup;

const CONNECTIONS: u32 = 8;
const LAYOUT: Layout =
    Layout { workers: 1, commands: 4, connections: CONNECTIONS, send: 4096, receive: 4096 };

struct Deaf;

impl Wake for Deaf {
    fn wake(&self) {}
}

/// One for all that is tried.
static AGENT: LazyLock<Option<(Agent, String)>> = LazyLock::new(start);
static STARTED: AtomicU32 = AtomicU32::new(0);

fn start() -> Option<(Agent, String)> {
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let name = format!("wharf-given/{}/{number}", std::process::id());
    let (link, to_agent) = Link::new().ok()?;
    let (sender, told) = channel();
    thread::spawn(move || take_all(&told, &to_agent));
    let mirror = Mirror::new(CONNECTIONS).ok()?;
    let (_, claims) = Lookup::new(FlowHash::from_seed(1), CONNECTIONS as usize);
    let way = Way::new(sender, Arc::new(Deaf));
    let interface = sys::interface::index("lo").ok()?;
    let agent = Agent::start(
        Listener::named(&name).ok()?,
        LAYOUT,
        link,
        (Ways::new(vec![(way, Arc::default())], claims), Beginnings::new(mirror.clone())),
        (mirror, None),
        (
            Host::new(interface, true).ok()?,
            PerUser { connections: 0, sessions: 0 },
            &Policy::default(),
        ),
    );
    Some((agent.ok()?, name))
}

/// A NIC that takes whatever is offered.
fn take_all(told: &Receiver<ToWorker>, to_agent: &Way<ToAgent>) {
    let mut all: HashMap<_, (u16, Option<State>)> = HashMap::new();
    let say = |key, tag, told| to_agent.tell(ToAgent::Told { key, tag, told });
    while let Ok(message) = told.recv() {
        match message {
            ToWorker::Offer { key, epoch, .. } => {
                all.insert(key, (epoch.tag(), None));
                say(key, epoch.tag(), ToOs::Control(OsControl::Allocated));
            }
            ToWorker::Told { key, tag, told: ToNic::Handoff(state) } => {
                all.insert(key, (tag, Some(state)));
                say(key, tag, ToOs::Control(OsControl::HandedOff));
            }
            ToWorker::Told { key, tag, told: ToNic::Restore(reason) } => {
                let state = all.remove(&key).and_then(|(_, state)| state);
                say(key, tag, ToOs::Restore(reason, state));
            }
            ToWorker::End { session, .. } => {
                let ended: Vec<_> =
                    all.keys().filter(|key| key.session == session).copied().collect();
                for key in ended {
                    let tag = all.remove(&key).map_or(0, |(tag, _)| tag);
                    say(key, tag, ToOs::Control(OsControl::Deallocated));
                }
            }
            _ => {}
        }
    }
}

/// A process that says this, some of it by the protocol, with descriptors of all kinds, and goes. The agent goes on.
pub fn messages(bytes: &[u8]) {
    // Without netlink there is none.
    let Some((agent, name)) = &*AGENT else { return };
    let Some(socket) = connect(name) else { return };
    let mut rest = bytes;
    while let Some((how, behind)) = rest.split_first_chunk::<4>() {
        let [kind, cid, with, len] = *how;
        let (cid, reason) = (Cid(u32::from(cid % 10)), RestoreReason::from_code(cid));
        let message = match kind % 8 {
            0 => Message::Hello,
            1..=3 => Message::Offer(cid, 0, with > 200),
            4 if with % 2 == 0 => Message::RestoreAll(reason.unwrap_or_default()),
            4 => Message::Restore(cid, reason.unwrap_or_default()),
            5 => Message::Close(cid),
            6 => Message::Welcome(handoff::session::Welcome { layout: LAYOUT, interface: 1 }),
            _ => {
                let (message, more) =
                    behind.split_at(behind.len().min(usize::from(len) % (2 * MESSAGE_LEN)));
                rest = more;
                if say(&socket, message, with).is_none() {
                    break;
                }
                continue;
            }
        };
        rest = behind;
        if say(&socket, &message.encode(), with).is_none() {
            break;
        }
    }
    drop(socket);
    let _ = agent.list();
    assert!(!agent.is_finished(), "the agent has ended");
}

fn connect(name: &str) -> Option<PacketSocket> {
    let address = SocketAddr::from_abstract_name(name).ok()?;
    let socket = PacketSocket::connect(&address).ok()?;
    // Most begin so.
    socket.send(&Message::Hello.encode(), &[]).ok()?;
    Some(socket)
}

fn say(socket: &PacketSocket, message: &[u8], with: u8) -> Option<()> {
    let descriptors: Vec<OwnedFd> =
        (0..with % 3).filter_map(|at| descriptor(with / 3 + at)).collect();
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    socket.send(message, &descriptors).ok()
}

fn descriptor(which: u8) -> Option<OwnedFd> {
    let listens = || TcpListener::bind("127.0.0.1:0");
    match which % 5 {
        0 | 1 => {
            let listener = listens().ok()?;
            TcpStream::connect(listener.local_addr().ok()?).ok().map(OwnedFd::from)
        }
        2 => listens().ok().map(OwnedFd::from),
        3 => UdpSocket::bind("127.0.0.1:0").ok().map(OwnedFd::from),
        _ => File::open("/dev/null").ok().map(OwnedFd::from),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_agent_bears_any_process(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            super::messages(&bytes);
        }
    }
}
