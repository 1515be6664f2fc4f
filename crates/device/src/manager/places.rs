//! How many connections may wait for an answer: those that have come, and that nobody has accepted or rejected yet. Others
//! stay with the kernel, whose queue has the length that the application has asked for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;

use super::{Around, Manager, Phase};

/// What a listener has at least: programs may have several requests before they answer the first, however short a queue
/// they ask for.
const LEAST: u32 = 64;
/// And at most.
const MOST: u32 = 1024;
/// The part of the device's descriptors that such connections of one process may take: others are served, too.
const SHARE: u64 = 8;
/// And the part that no connection takes which comes by itself: sessions begin with them.
const KEPT_BACK: u64 = 8;
/// If the limit is not known: what Linux begins with.
const FILES: u64 = 1024;

fn files() -> u64 {
    sys::process::open_files_allowed().unwrap_or(FILES)
}

/// Places for connections, each of which is free again when its [`Place`] is dropped.
#[derive(Debug)]
pub(super) struct Places {
    taken: Rc<()>,
    most: usize,
}

/// One of a listener's places, and of its process's.
#[derive(Debug)]
pub(super) struct Place {
    _of_listener: Rc<()>,
    _of_process: Rc<()>,
}

impl Default for Places {
    /// Those of a process.
    fn default() -> Self {
        let most = files() / SHARE;
        Places { taken: Rc::new(()), most: usize::try_from(most).unwrap_or(usize::MAX) }
    }
}

impl Places {
    /// Those of a listener that asks for a queue of this length.
    pub(super) fn of_listener(backlog: u32) -> Self {
        Places { taken: Rc::new(()), most: backlog.clamp(LEAST, MOST) as usize }
    }

    pub(super) fn taken(&self) -> usize {
        Rc::strong_count(&self.taken) - 1
    }

    pub(super) fn are_taken(&self) -> bool {
        self.taken() >= self.most
    }

    /// One of these, which are a process's, and of its listener's.
    pub(super) fn take(&self, of_listener: &Places) -> Place {
        let [_of_process, _of_listener] = [self, of_listener].map(|of| Rc::clone(&of.taken));
        Place { _of_listener, _of_process }
    }
}

/// Whether there are only those descriptors left that are kept back for sessions, or none.
pub(super) fn are_few_left(of: impl AsFd) -> bool {
    let most = files() - files() / KEPT_BACK;
    // A new one has the lowest number that is free.
    let free: io::Result<_> = of.as_fd().try_clone_to_owned();
    free.map_or(true, |free| u64::try_from(free.as_raw_fd()).is_ok_and(|free| free >= most))
}

impl Manager {
    /// Whether a listener that had no place left has one.
    pub(crate) fn has_places_again(&self) -> bool {
        self.full.iter().any(|id| self.has_place(*id))
    }

    fn has_place(&self, id: u32) -> bool {
        let phase = self.ids.get(&id).map(|of| &of.phase);
        let is_taken = matches!(phase, Some(Phase::Listening(_, of)) if of.are_taken());
        !is_taken && !self.places.are_taken()
    }

    /// Listeners that have one again accept.
    pub(crate) fn look_again(&mut self, around: &mut Around<'_>) {
        for id in std::mem::take(&mut self.full) {
            if !self.has_place(id) {
                self.full.push(id);
            } else if self.ids.get(&id).is_some_and(|of| of.due.is_some()) {
                self.rested(around, id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpStream};
    use std::time::{Duration, Instant};

    use rdma::mpa::Config;
    use sys::epoll::Epoll;

    use super::super::{IDS_MAX, errno};
    use super::*;
    use crate::outlet::{Kind, Outlets};
    use crate::token::Token;

    struct Lab {
        manager: Manager,
        epoll: Epoll,
        outlets: Outlets,
    }

    impl Lab {
        fn around<'a>(epoll: &'a Epoll, outlets: &'a mut Outlets) -> Around<'a> {
            let (mpa, peer_timeout) = (Config::default(), crate::PEER_TIMEOUT);
            Around { epoll, outlets, now: 0, mpa, peer_timeout }
        }

        /// Does what is ready until `is_so`.
        fn until(&mut self, is_so: impl Fn(&Manager) -> bool) {
            let begun = Instant::now();
            while !is_so(&self.manager) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{}", asked(&self.manager));
                self.epoll.wait(100).unwrap();
                self.turn();
            }
        }

        fn turn(&mut self) {
            let ready: Vec<Token> = self.epoll.ready().map(Token::from).collect();
            let Lab { manager, epoll, outlets } = self;
            let mut around = Self::around(epoll, outlets);
            for token in ready {
                if let Token::Id(id) = token {
                    assert!(manager.turn(&mut around, id).is_none());
                }
            }
            if manager.has_places_again() {
                manager.look_again(&mut around);
            }
        }
    }

    fn asked(manager: &Manager) -> usize {
        manager.ids.values().filter(|of| matches!(of.phase, Phase::Asked(..))).count()
    }

    #[test]
    fn connections_that_say_nothing_have_so_many_places_and_no_identifiers() {
        const BACKLOG: u32 = 80;
        const PLACES: usize = BACKLOG as usize;
        // A process's places are a part of its descriptors.
        sys::process::allow_most_open_files().unwrap();
        let (manager, outlets) = (Manager::default(), Outlets::default());
        let mut lab = Lab { manager, epoll: Epoll::new().unwrap(), outlets };
        let (events, _theirs) = lab.outlets.add(Kind::Connections).unwrap();
        let listener = lab.manager.create(events).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        lab.manager.bind(listener, any).unwrap();
        let mut around = Lab::around(&lab.epoll, &mut lab.outlets);
        let at = lab.manager.listen(&mut around, listener, BACKLOG).unwrap();
        let connect = || TcpStream::connect(at).unwrap();
        let mut peers: Vec<TcpStream> = (0..50).map(|_| connect()).collect();
        lab.until(|manager| asked(manager) == 50);
        peers.extend((0..70).map(|_| connect()));
        lab.until(|manager| asked(manager) == PLACES);
        // The others wake nobody.
        lab.epoll.wait(0).unwrap();
        assert_eq!(lab.epoll.ready().count(), 0);
        assert_eq!(asked(&lab.manager), PLACES);
        // Once in a while it is looked whether there is a place, and noted once that there is none.
        for _ in 0..3 {
            lab.manager.rested(&mut Lab::around(&lab.epoll, &mut lab.outlets), listener);
            lab.epoll.wait(1_000).unwrap();
            lab.turn();
        }
        assert_eq!(lab.manager.full, [listener]);
        // The application has all of its identifiers; one listens.
        for _ in 1..IDS_MAX {
            lab.manager.create(events).unwrap();
        }
        assert_eq!(lab.manager.create(events), Err(errno::ENOMEM));
        lab.manager.ids.retain(|_, of| !matches!(of.phase, Phase::Idle));
        // Forty go, and forty of those that waited come.
        let newest = lab.manager.last;
        peers.drain(..40);
        lab.until(|manager| {
            asked(manager) == PLACES && manager.ids.keys().filter(|id| **id > newest).count() == 40
        });
    }
}
