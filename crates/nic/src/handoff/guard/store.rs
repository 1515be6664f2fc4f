//! What a service manager keeps of the NIC's connections, should wharf and its guard be killed at once: the descriptors
//! that a guard is given, each under a name, and the [`Inventory`] that says what they mean. The next wharf is given
//! them, and does what the guard would have done.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sys::foreign::Foreign;
use sys::notify::Notify;

use super::Survivors;
use super::inventory::Inventory;
use super::message::Message;

/// Bytes of all names: they are given to the next wharf in one variable of its environment, which is 128 KB at most
/// (`MAX_ARG_STRLEN`, execve(2)).
const NAMES_MAX: usize = 100_000;
/// Descriptors that wait for a service manager that does not read.
const WAITING_MAX: usize = 1024;
/// How long it may take to read what it is told at the end.
const PATIENCE: Duration = Duration::from_secs(1);

/// The name of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Name {
    Mirror,
    Host,
    /// Of a session: its memory, what wakes its process, and what tells that somebody has its connections.
    Session(u32, Part),
    /// A socket, by the place of its record.
    Place(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Part {
    Memory,
    Wake,
    Alive,
}

const PARTS: [Part; 3] = [Part::Memory, Part::Wake, Part::Alive];

/// The name of an inventory, which is to be kept before anything that it says.
pub const INVENTORY: &str = "inventory";

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Mirror => f.write_str("mirror"),
            Name::Host => f.write_str("host"),
            Name::Session(number, Part::Memory) => write!(f, "m{number:x}"),
            Name::Session(number, Part::Wake) => write!(f, "w{number:x}"),
            Name::Session(number, Part::Alive) => write!(f, "a{number:x}"),
            Name::Place(place) => write!(f, "c{place:x}"),
        }
    }
}

impl Name {
    fn parse(text: &str) -> Option<Name> {
        if let Some(name) = [Name::Mirror, Name::Host].into_iter().find(|n| n.to_string() == text) {
            return Some(name);
        }
        let (kind, number) = text.split_at_checked(1)?;
        let number = u32::from_str_radix(number, 16).ok()?;
        let name = match kind {
            "m" => Name::Session(number, Part::Memory),
            "w" => Name::Session(number, Part::Wake),
            "a" => Name::Session(number, Part::Alive),
            "c" => Name::Place(number),
            _ => return None,
        };
        (name.to_string() == text).then_some(name)
    }

    /// Bytes of it, with what separates it from the next.
    fn len(self) -> usize {
        self.to_string().len() + 1
    }
}

/// The way to a service manager, which is never waited for: what it does not read at once is sent later.
#[derive(Debug)]
pub struct ToStore {
    notify: Notify,
    inventory: Arc<Inventory>,
    /// What it keeps, or is about to.
    kept: HashSet<Name>,
    names: usize,
    /// `None` for what it is to keep no more.
    waiting: VecDeque<(Name, Option<Foreign<OwnedFd>>)>,
    is_full: bool,
}

impl ToStore {
    /// To the one that is notified so.
    pub fn new(notify: Notify, inventory: Arc<Inventory>) -> Self {
        let (kept, waiting) = (HashSet::new(), VecDeque::new());
        ToStore { notify, inventory, kept, names: 0, waiting, is_full: false }
    }

    /// What a guard is told is to be kept, or no longer. What is kept already stays as it is: each guard is told all.
    pub(super) fn tell(&mut self, message: Message, descriptors: &[BorrowedFd<'_>]) {
        let names = match message {
            Message::Mirror { .. } => vec![Name::Mirror],
            Message::Host { .. } => vec![Name::Host],
            Message::Session { number, .. } => {
                PARTS.map(|part| Name::Session(number, part)).to_vec()
            }
            Message::Take { place, .. } => vec![Name::Place(place)],
            Message::SessionEnd { number } => {
                return PARTS.into_iter().for_each(|part| self.remove(Name::Session(number, part)));
            }
            Message::Gone { place } => {
                self.inventory.erase(place);
                return self.remove(Name::Place(place));
            }
            Message::Inventory => return,
        };
        if names.iter().all(|name| self.kept.contains(name)) {
            return;
        }
        self.inventory.write(message);
        let owner = message.owner();
        names.into_iter().zip(descriptors).for_each(|(name, fd)| self.keep(name, *fd, owner));
    }

    fn keep(&mut self, name: Name, descriptor: BorrowedFd<'_>, owner: u32) {
        if self.names + name.len() > NAMES_MAX || self.waiting.len() >= WAITING_MAX {
            return self.leave_out();
        }
        if self.waiting.is_empty() {
            match self.notify.store(&name.to_string(), descriptor) {
                Ok(()) => return self.is_kept(name),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return self.leave_out(),
            }
        }
        match descriptor.try_clone_to_owned() {
            Ok(own) => {
                self.waiting.push_back((name, Some(Foreign::new(own, owner))));
                self.is_kept(name);
            }
            Err(_) => self.leave_out(),
        }
    }

    fn is_kept(&mut self, name: Name) {
        if self.kept.insert(name) {
            self.names += name.len();
        }
    }

    fn leave_out(&mut self) {
        if !std::mem::replace(&mut self.is_full, true) {
            tracing::warn!(
                "the service manager does not keep all connections: the others are lost if wharf and its \
                 guard are killed at once"
            );
        }
    }

    fn remove(&mut self, name: Name) {
        if !self.kept.remove(&name) {
            return;
        }
        self.names -= name.len();
        // One that was not told yet is not.
        if let Some(at) =
            self.waiting.iter().rposition(|(other, fd)| *other == name && fd.is_some())
        {
            self.waiting.remove(at);
            return;
        }
        if self.waiting.is_empty() && self.notify.remove(&name.to_string()).is_ok() {
            return;
        }
        self.waiting.push_back((name, None));
    }

    /// Whether something waits until it reads.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells it what it had no room for.
    pub(super) fn flush(&mut self) {
        while let Some((name, descriptor)) = self.waiting.front() {
            let told = match descriptor {
                Some(descriptor) => self.notify.store(&name.to_string(), descriptor.as_fd()),
                None => self.notify.remove(&name.to_string()),
            };
            match told {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // One that is gone keeps nothing.
                _ => drop(self.waiting.pop_front()),
            }
        }
    }
}

impl Drop for ToStore {
    /// No connection is on the NIC any more.
    fn drop(&mut self) {
        let since = Instant::now();
        std::mem::take(&mut self.kept)
            .into_iter()
            .for_each(|name| self.waiting.push_back((name, None)));
        self.flush();
        while self.is_behind() && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
            self.flush();
        }
    }
}

/// What a service manager has kept of a wharf that has died with its guard.
#[derive(Debug)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// All was put back since.
    Finished,
    /// Descriptors that say nothing, and why.
    Useless(String),
    /// Connections, perhaps, and what there is of the host's interface.
    Survivors(Survivors),
}

impl Kept {
    /// Of the descriptors that this wharf was given, by their names.
    pub fn of(passed: Vec<(String, OwnedFd)>) -> Kept {
        if passed.is_empty() {
            return Kept::Nothing;
        }
        let (inventory, rest): (Vec<_>, Vec<_>) =
            passed.into_iter().partition(|(name, _)| name == INVENTORY);
        let Some((_, inventory)) = inventory.into_iter().next() else {
            return Kept::Useless("nothing says what they are".to_owned());
        };
        match Inventory::open(inventory) {
            Ok(inventory) => Kept::by(inventory, rest),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                Kept::Useless("they are of another version".to_owned())
            }
            Err(error) => Kept::Useless(error.to_string()),
        }
    }

    fn by(inventory: Inventory, passed: Vec<(String, OwnedFd)>) -> Kept {
        if inventory.is_finished() {
            return Kept::Finished;
        }
        let mut survivors = Survivors::default();
        let mut sessions = HashMap::<u32, [Option<OwnedFd>; PARTS.len()]>::new();
        for (name, descriptor) in passed {
            let message = match Name::parse(&name) {
                Some(Name::Mirror) => inventory.mirror(),
                Some(Name::Host) => inventory.host(),
                Some(Name::Place(place)) => inventory.taken(place).filter(
                    |message| matches!(message, Message::Take { place: its, .. } if *its == place),
                ),
                Some(Name::Session(number, part)) => {
                    sessions.entry(number).or_default()[part as usize] = Some(descriptor);
                    continue;
                }
                None => continue,
            };
            // What is not written down was over before it was kept no more.
            if let Some(message) = message {
                survivors.take(message, vec![descriptor]);
            }
        }
        for (number, parts) in sessions {
            if let ([Some(memory), Some(wake), Some(alive)], Some(message)) =
                (parts, inventory.session(number))
            {
                survivors.take(message, vec![memory, wake, alive]);
            }
        }
        survivors.inventory = Some(inventory);
        Kept::Survivors(survivors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handoff::process::SharedProcess;
    use crate::lane::handoff::records::Mirror;
    use handoff::Cid;
    use handoff::session::Layout;
    use std::collections::BTreeMap;
    use std::ffi::OsStr;
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use sys::packets::PacketSocket;

    const LAYOUT: Layout =
        Layout { workers: 1, commands: 64, connections: 4, send: 4096, receive: 4096 };

    /// A service manager.
    struct Manager {
        socket: PacketSocket,
        /// `None` of one that has no room for descriptors.
        kept: BTreeMap<String, Option<OwnedFd>>,
        is_poor: bool,
    }

    impl Manager {
        fn new(name: &str) -> (Manager, Notify) {
            let name = format!("wharf-store-{name}-{}", std::process::id());
            let address = SocketAddr::from_abstract_name(&name).unwrap();
            let socket = UnixDatagram::bind_addr(&address).unwrap();
            socket.set_nonblocking(true).unwrap();
            let notify = Notify::to(OsStr::new(&format!("@{name}"))).unwrap();
            let socket = OwnedFd::from(socket).into();
            (Manager { socket, kept: BTreeMap::new(), is_poor: false }, notify)
        }

        fn read(&mut self) {
            let mut bytes = [0; 256];
            while let Ok(received) = self.socket.receive(&mut bytes) {
                let text = std::str::from_utf8(&bytes[..received.len]).unwrap();
                let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap();
                if text.starts_with("FDSTOREREMOVE=1\n") {
                    self.kept.remove(name).unwrap();
                } else {
                    let [descriptor] = received.descriptors.try_into().unwrap();
                    let descriptor = Some(descriptor).filter(|_| !self.is_poor);
                    assert!(self.kept.insert(name.to_owned(), descriptor).is_none(), "{name}");
                }
            }
        }

        fn names(&self) -> String {
            self.kept.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
        }
    }

    fn take(place: u32) -> Message {
        Message::Take { place, session: 3, cid: Cid(2), reuse_address: false }
    }

    #[test]
    fn the_next_wharf_knows_what_the_guard_knew() {
        let (mut manager, notify) = Manager::new("next");
        let inventory = Arc::new(Inventory::new(32).unwrap());
        notify.store(INVENTORY, inventory.as_fd()).unwrap();
        let mut store = ToStore::new(notify, Arc::clone(&inventory));
        let (mirror, process) = (Mirror::new(32).unwrap(), SharedProcess::new(LAYOUT, 0).unwrap());
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let session = Message::Session { number: 3, layout: LAYOUT };
        // Twice, as a second guard is told.
        for _ in 0..2 {
            store.tell(Message::Mirror { places: 32 }, &[mirror.as_fd()]);
            store.tell(session, &process.kept());
            store.tell(take(17), &[socket.as_fd()]);
        }
        store.tell(take(18), &[socket.as_fd()]);
        store.tell(Message::Gone { place: 18 }, &[]);
        manager.read();
        assert_eq!(manager.names(), "a3 c11 inventory m3 mirror w3");
        let duplicate = |(name, fd): (&String, &Option<OwnedFd>)| {
            (name.clone(), fd.as_ref().unwrap().try_clone().unwrap())
        };
        let passed: Vec<_> = manager.kept.iter().map(duplicate).collect();
        let Kept::Survivors(survivors) = Kept::of(passed) else { panic!("they are there") };
        assert_eq!(survivors.mirror.as_ref().map(|(_, places)| *places), Some(32));
        assert_eq!(survivors.sessions.keys().collect::<Vec<_>>(), [&3]);
        let taken = &survivors.taken[&17];
        assert_eq!((survivors.taken.len(), taken.session, taken.cid), (1, 3, Cid(2)));
        // One at a time, and once.
        survivors.take_over().unwrap().unwrap().finish();
        let passed: Vec<_> = manager.kept.iter().map(duplicate).collect();
        assert!(matches!(Kept::of(passed), Kept::Finished));
        let rest: Vec<_> = manager.kept.iter().filter(|(name, _)| *name != INVENTORY).collect();
        assert!(matches!(Kept::of(rest.into_iter().map(duplicate).collect()), Kept::Useless(_)));
        assert!(matches!(Kept::of(Vec::new()), Kept::Nothing));
        store.tell(Message::SessionEnd { number: 3 }, &[]);
        manager.read();
        assert_eq!(manager.names(), "c11 inventory mirror");
        drop(store);
        manager.read();
        assert_eq!(manager.names(), "inventory");
    }

    #[test]
    fn one_that_does_not_read_holds_nothing_up() {
        let (mut manager, notify) = Manager::new("sleeps");
        manager.is_poor = true;
        let mut store = ToStore::new(notify, Arc::new(Inventory::new(20_000).unwrap()));
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        const MANY: u32 = 20_000;
        (0..MANY).for_each(|place| store.tell(take(place), &[socket.as_fd()]));
        assert!(store.is_behind() && store.is_full && store.waiting.len() <= WAITING_MAX);
        // Those that it has not heard of are not told.
        let waited = store.waiting.len();
        let last = (0..MANY).rfind(|place| store.kept.contains(&Name::Place(*place))).unwrap();
        store.tell(Message::Gone { place: last }, &[]);
        assert_eq!(store.waiting.len(), waited - 1);
        store.tell(Message::Gone { place: 0 }, &[]);
        assert_eq!(store.waiting.len(), waited, "it has heard of this one");
        while store.is_behind() {
            manager.read();
            store.flush();
        }
        manager.read();
        let kept: BTreeMap<String, ()> =
            store.kept.iter().map(|name| (name.to_string(), ())).collect();
        assert_eq!(manager.kept.keys().collect::<Vec<_>>(), kept.keys().collect::<Vec<_>>());
        // All names together are bounded.
        for place in 0..MANY {
            store.tell(take(place), &[socket.as_fd()]);
            manager.read();
            store.flush();
        }
        let bytes: usize = manager.kept.keys().map(|name| name.len() + 1).sum();
        assert!((NAMES_MAX - 10..=NAMES_MAX).contains(&bytes), "{bytes}");
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        for number in [0, 9, 0xa, 0xfff, u32::MAX] {
            let sessions = PARTS.map(|part| Name::Session(number, part));
            for name in [Name::Mirror, Name::Host, Name::Place(number)].iter().chain(&sessions) {
                assert_eq!(Name::parse(&name.to_string()), Some(*name));
            }
        }
        for none in ["", "c", "c0g", "c00", "x1", "stored", "c1ffffffff", "é1"] {
            assert_eq!(Name::parse(none), None, "{none}");
        }
    }
}
