//! Processes that want a session: how many may have one, and those that have not said Hello yet.
//!
//! A session takes descriptors and memory, and any user may begin some. So a user has a quota, root and the user that runs
//! wharf have places of their own, and a process that is not heard of within [`HELLO_TIMEOUT`] loses its place. Nothing is
//! made for a process before its Hello.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use handoff::session::{MESSAGE_LEN, Message};
use sys::foreign::Foreign;
use sys::packets::PacketSocket;
use sys::process::{self, Owner, PeerCredentials};

use crate::lane::handoff::AgentCounts;

/// Processes at a time that have a session or want one: each takes six descriptors or more.
pub(super) const SESSIONS_MAX: usize = 1024;
/// Places of these for root and the user that runs wharf alone.
const RESERVED: usize = 64;
/// How long after its connect a process may say Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the log has a line about processes that have no session.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// A process that has connected and has no session.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) socket: Foreign<PacketSocket>,
    pub(super) peer: PeerCredentials,
    since: Instant,
}

/// First message of a new client.
#[derive(Debug)]
pub(super) enum Said {
    Nothing,
    Hello(Newcomer),
    /// It has gone, or said something else, which is the reason here. Its socket leaves the set of those that are waited
    /// for.
    Gone(Newcomer, Option<String>),
}

/// Reason why a process has no session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotAdmitted {
    /// Its user has as many as the quota allows.
    User,
    /// All places are taken that its user may have.
    All,
}

/// Limits the number of sessions, and closes clients that send no Hello.
#[derive(Debug)]
pub(super) struct Admission {
    /// Most sessions of a user.
    per_user: u32,
    /// Places that are taken, by user.
    users: HashMap<u32, u32>,
    taken: usize,
    /// By number of the session that they would have.
    newcomers: HashMap<u32, Newcomer>,
    /// The same in the order in which they came. Some have a session by now, or have gone.
    order: VecDeque<(Instant, u32)>,
    counts: AgentCounts,
    logged: Option<Instant>,
}

impl Admission {
    /// No user but root and wharf's own has more than `per_user` sessions; 0 for no such bound.
    pub(super) fn new(per_user: u32) -> Self {
        Admission {
            per_user: if per_user == 0 { u32::MAX } else { per_user },
            users: HashMap::new(),
            taken: 0,
            newcomers: HashMap::new(),
            order: VecDeque::new(),
            counts: AgentCounts::default(),
            logged: None,
        }
    }

    /// Takes a place for a process that has connected. Its session would have this number, which no other has.
    pub(super) fn admit(
        &mut self,
        number: u32,
        socket: Foreign<PacketSocket>,
        peer: PeerCredentials,
        now: Instant,
    ) -> Result<BorrowedFd<'_>, NotAdmitted> {
        if let Err(why) = self.take(peer.uid) {
            let count = match why {
                NotAdmitted::User => &mut self.counts.refused_user,
                NotAdmitted::All => &mut self.counts.refused_all,
            };
            *count += 1;
            self.log(|| {
                let PeerCredentials { pid, uid, .. } = peer;
                match why {
                    NotAdmitted::User => tracing::warn!(
                        "connections of process {pid} stay with the kernel: user {uid} has as many sessions as \
                         handoff.sessions_per_uid allows; raise it, or set 0 for no bound"
                    ),
                    NotAdmitted::All => tracing::warn!(
                        "connections of process {pid} of user {uid} stay with the kernel: {SESSIONS_MAX} processes \
                         may have a session, {RESERVED} of them of root and of wharf's user alone"
                    ),
                }
            });
            return Err(why);
        }
        self.order.push_back((now, number));
        let newcomer =
            self.newcomers.entry(number).insert_entry(Newcomer { socket, peer, since: now });
        Ok(newcomer.into_mut().socket.as_fd())
    }

    fn take(&mut self, user: u32) -> Result<(), NotAdmitted> {
        let is_entitled = matches!(process::owner(user), Owner::Root | Owner::Own);
        let most = if is_entitled { SESSIONS_MAX } else { SESSIONS_MAX - RESERVED };
        if self.taken >= most {
            return Err(NotAdmitted::All);
        }
        let of_user = self.users.entry(user).or_default();
        if !is_entitled && *of_user >= self.per_user {
            return Err(NotAdmitted::User);
        }
        *of_user += 1;
        self.taken += 1;
        Ok(())
    }

    /// A session of this user, or what was to be one, is over.
    pub(super) fn leave(&mut self, user: u32) {
        self.taken -= 1;
        if let Some(count) = self.users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&user);
            }
        }
    }

    /// Whether a newcomer has this number.
    pub(super) fn has(&self, number: u32) -> bool {
        self.newcomers.contains_key(&number)
    }

    /// Reads what the newcomer of this number has said. One that has said Hello, or has gone, is none any more, and its place
    /// stays taken until [`leave`](Self::leave).
    pub(super) fn read(&mut self, number: u32) -> Said {
        let Some(newcomer) = self.newcomers.get(&number) else { return Said::Nothing };
        let mut bytes = [0; MESSAGE_LEN];
        let broken = match newcomer.socket.receive_foreign(&mut bytes, newcomer.peer.uid) {
            Ok((0, _)) => None,
            Ok((len, descriptors)) => match Message::decode(&bytes[..len]) {
                Ok(Message::Hello) if descriptors.is_empty() => {
                    return self.newcomers.remove(&number).map_or(Said::Nothing, Said::Hello);
                }
                Ok(_) => Some("it did not begin with Hello alone".to_owned()),
                Err(error) => Some(error.to_string()),
            },
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return Said::Nothing;
            }
            Err(error) => Some(error.to_string()),
        };
        let gone = self.newcomers.remove(&number);
        gone.map_or(Said::Nothing, |newcomer| Said::Gone(newcomer, broken))
    }

    /// Takes out a newcomer that has not said Hello in time. Its place stays taken until [`leave`](Self::leave).
    pub(super) fn next_silent(&mut self, now: Instant) -> Option<Newcomer> {
        while let Some((since, number)) = self.order.front().copied() {
            let is_it = self.newcomers.get(&number).is_some_and(|one| one.since == since);
            if is_it && now.saturating_duration_since(since) < HELLO_TIMEOUT {
                return None;
            }
            self.order.pop_front();
            if is_it {
                self.counts.silent += 1;
                return self.newcomers.remove(&number);
            }
        }
        None
    }

    /// When [`next_silent`](Self::next_silent) is to be called, at the latest.
    pub(super) fn due(&self, now: Instant) -> Option<Duration> {
        let (since, _) = self.order.front()?;
        Some((*since + HELLO_TIMEOUT).saturating_duration_since(now))
    }

    /// A process has broken the protocol of its socket, for this reason.
    pub(super) fn is_broken(&mut self, peer: PeerCredentials, why: &str) {
        self.counts.broken += 1;
        let PeerCredentials { pid, uid, .. } = peer;
        self.log(|| tracing::warn!("process {pid} of user {uid} said what it may not: {why}"));
    }

    /// Sockets in repair mode were released so far, of this many connections.
    pub(super) fn counts(&self, unrepaired: u64) -> AgentCounts {
        AgentCounts { sessions: self.taken as u64, unrepaired, ..self.counts }
    }

    /// Writes a line to the log, if there was none for a while: any user may cause as many as it likes.
    fn log(&mut self, write: impl FnOnce()) {
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_EVERY) {
            self.logged = Some(Instant::now());
            write();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    const USER: u32 = 4_242;
    const OTHER: u32 = 4_243;

    fn credentials(uid: u32) -> PeerCredentials {
        PeerCredentials { pid: 1, uid, gid: 1 }
    }

    /// A process connects: its end, if it is admitted.
    fn connect(
        admission: &mut Admission,
        number: u32,
        uid: u32,
        now: Instant,
    ) -> Result<PacketSocket, NotAdmitted> {
        let (own, theirs) = PacketSocket::pair().unwrap();
        admission.admit(number, Foreign::new(own, uid), credentials(uid), now)?;
        Ok(theirs)
    }

    #[test]
    fn a_user_has_no_more_sessions_than_the_quota() {
        let (mut admission, now) = (Admission::new(3), Instant::now());
        let all: Vec<_> = (0..3).map(|n| connect(&mut admission, n, USER, now).unwrap()).collect();
        assert_eq!(connect(&mut admission, 3, USER, now).err(), Some(NotAdmitted::User));
        let other = connect(&mut admission, 3, OTHER, now).unwrap();
        // Root has no quota.
        let roots: Vec<_> = (4..10).map(|n| connect(&mut admission, n, 0, now).unwrap()).collect();
        all[0].send(&Message::Hello.encode(), &[]).unwrap();
        let Said::Hello(newcomer) = admission.read(0) else { panic!("no Hello") };
        assert_eq!(connect(&mut admission, 10, USER, now).err(), Some(NotAdmitted::User));
        admission.leave(newcomer.peer.uid);
        assert!(connect(&mut admission, 10, USER, now).is_ok());
        let counts = admission.counts(0);
        assert_eq!((counts.sessions, counts.refused_user, counts.refused_all), (10, 2, 0));
        drop((all, other, roots));
    }

    #[test]
    fn ordinary_users_leave_places_to_root() {
        let (mut admission, now) = (Admission::new(0), Instant::now());
        let places = (SESSIONS_MAX - RESERVED) as u32;
        // Without sockets, of which a test may not have so many.
        (0..places).for_each(|number| admission.take(USER + number % 3).unwrap());
        assert_eq!(connect(&mut admission, 0, OTHER, now).err(), Some(NotAdmitted::All));
        (0..RESERVED).for_each(|_| admission.take(0).unwrap());
        assert_eq!(connect(&mut admission, 0, 0, now).err(), Some(NotAdmitted::All));
        admission.leave(0);
        assert_eq!(connect(&mut admission, 0, OTHER, now).err(), Some(NotAdmitted::All));
        assert!(connect(&mut admission, 0, 0, now).is_ok());
        assert_eq!(admission.counts(0).refused_all, 3);
    }

    #[test]
    fn who_says_nothing_in_time_loses_the_place() {
        let (mut admission, begin) = (Admission::new(0), Instant::now());
        let after = |seconds| begin + Duration::from_secs(seconds);
        let first = connect(&mut admission, 0, USER, begin).unwrap();
        let second = connect(&mut admission, 1, USER, after(1)).unwrap();
        let third = connect(&mut admission, 2, OTHER, after(2)).unwrap();
        second.send(&Message::Hello.encode(), &[]).unwrap();
        assert!(matches!(admission.read(1), Said::Hello(_)));
        assert!(matches!(admission.read(0), Said::Nothing));
        assert!(admission.next_silent(after(4)).is_none());
        assert_eq!(admission.due(after(4)), Some(Duration::from_secs(1)));
        let silent = admission.next_silent(after(5)).unwrap();
        assert_eq!(silent.peer.uid, USER);
        admission.leave(USER);
        assert!(admission.next_silent(after(6)).is_none());
        // The number is another's, which came later.
        let fourth = connect(&mut admission, 0, USER, after(6)).unwrap();
        drop(third);
        let Said::Gone(gone, None) = admission.read(2) else { panic!("it is there") };
        admission.leave(gone.peer.uid);
        assert!(admission.next_silent(after(10)).is_none());
        assert!(admission.next_silent(after(11)).is_some());
        admission.leave(USER);
        let counts = admission.counts(0);
        assert_eq!((counts.sessions, counts.silent), (1, 2));
        drop((first, fourth));
    }

    #[test]
    fn who_begins_with_anything_but_hello_is_gone() {
        let (mut admission, now) = (Admission::new(0), Instant::now());
        let offer = Message::Offer(handoff::Cid(0), 0, false).encode();
        let hello = Message::Hello.encode();
        for (number, message) in [(0, &offer[..]), (1, b"x"), (2, &[0; 100]), (3, &hello)] {
            let process = connect(&mut admission, number, USER, now).unwrap();
            let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
            process.send(message, &[file.as_fd()]).unwrap();
            assert!(matches!(admission.read(number), Said::Gone(_, Some(_))));
            assert!(!admission.has(number));
        }
    }
}
