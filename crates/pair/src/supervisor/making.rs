//! Calls that make connections: accept(2) and connect(2).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use sys::poll::Interest;
use sys::seccomp::Waiting;
use sys::stream::{self, Name};

use super::{ACCEPT, CONNECT, Supervisor};
use crate::accepts::{self, Parked};
use crate::call::Room;
use crate::caller::{Caller, Done, Fault};
use crate::connects::{self, Connecting, Standing};
use crate::relay::Relay;
use crate::relays::Cookie;
use crate::theirs::Theirs;

impl Supervisor {
    /// That there is a pair for the next connection.
    fn prepare(&mut self) -> Result<(), Fault> {
        if self.pair.is_none() {
            self.pair = Some(UnixStream::pair()?);
        }
        Ok(())
    }

    /// A pair.
    fn take_pair(&mut self) -> Result<(UnixStream, UnixStream), Fault> {
        self.prepare()?;
        self.pair.take().ok_or(Fault::Error(libc::ENFILE))
    }

    pub(super) fn accept(
        &mut self,
        waiting: Waiting,
        (socket, cookie): (Theirs, Cookie),
        peer: Room,
        flags: i32,
    ) -> Result<Done, Fault> {
        let is_sane = flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) == 0;
        if !is_sane || !accepts::is_listener(&socket) || !self.has_room() {
            return Err(Fault::Kernel);
        }
        if !Caller::new(&self.listener, waiting).can_have_descriptors()? {
            // As the kernel's does, before it takes a connection: the listener stays ready.
            return Err(Fault::Error(libc::EMFILE));
        }
        self.prepare()?;
        match self.accepts.next(cookie, &socket) {
            Ok(accepted) => self.give_accepted(waiting, (socket, cookie), accepted, (peer, flags)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if stream::is_nonblocking(&socket)? {
                    return Err(Fault::Error(libc::EAGAIN));
                }
                let until = accepts::deadline(&socket, libc::SO_RCVTIMEO);
                self.waits_until(until);
                let parked = Parked { waiting, peer, flags, socket, cookie, until };
                self.next += 1;
                self.epoll.add(&parked.socket, ACCEPT | self.next)?;
                self.accepts.parked.insert(self.next, parked);
                Ok(Done::Elsewhere)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The program gets an end of a pair for a connection.
    fn give_accepted(
        &mut self,
        waiting: Waiting,
        listener: (Theirs, Cookie),
        (tcp, name): (Theirs, Name),
        (peer, flags): (Room, i32),
    ) -> Result<Done, Fault> {
        let caller = Caller::new(&self.listener, waiting);
        if peer.at != 0
            && let Err(fault) = caller.write_name(peer, &name)
        {
            if fault == Fault::Gone {
                self.keep_accepted(listener, (tcp, name));
            }
            return Err(fault);
        }
        let (pair, theirs) = self.take_pair()?;
        let relay = Relay::new(own(tcp)?, (pair, &theirs), false)?;
        stream::set_nonblocking(&theirs, flags & libc::SOCK_NONBLOCK != 0)?;
        self.relays.expect(waiting.thread);
        let caller = Caller::new(&self.listener, waiting);
        match caller.give(&theirs, flags & libc::SOCK_CLOEXEC != 0) {
            Ok(fd) => {
                self.relays.add(&self.epoll, relay, &theirs, (waiting.thread, fd));
                Ok(Done::Elsewhere)
            }
            Err(fault) => {
                self.keep_accepted(listener, (Theirs::new(relay.into_tcp()), name));
                Err(fault)
            }
        }
    }

    /// A connection is kept for the next call.
    fn keep_accepted(&mut self, listener: (Theirs, Cookie), accepted: (Theirs, Name)) {
        let due = self.accepts.keep(listener, accepted);
        self.waits_until(Some(due));
    }

    /// Something has come for a call that waits at a listener.
    pub(super) fn try_accept(&mut self, number: u64) {
        let Some(parked) = self.accepts.parked.get(&number) else { return };
        let (waiting, asked) = (parked.waiting, (parked.peer, parked.flags));
        let result = if !self.listener.waits(waiting.id) {
            Err(Fault::Gone)
        } else if !self.has_room() {
            Err(Fault::Kernel)
        } else if let Err(fault) = self.prepare() {
            Err(fault)
        } else {
            let Some(parked) = self.accepts.parked.remove(&number) else { return };
            match self.accepts.next(parked.cookie, &parked.socket) {
                Ok(accepted) => {
                    let _ = self.epoll.remove(&parked.socket);
                    self.give_accepted(waiting, (parked.socket, parked.cookie), accepted, asked)
                }
                Err(error) => {
                    self.accepts.parked.insert(number, parked);
                    if error.kind() == io::ErrorKind::WouldBlock {
                        // Another call has got it.
                        return;
                    }
                    Err(error.into())
                }
            }
        };
        self.unpark(number);
        Caller::new(&self.listener, waiting).end(result);
    }

    /// A call waits no more at its listener, which others have open.
    fn unpark(&mut self, number: u64) {
        if let Some(parked) = self.accepts.parked.remove(&number) {
            let _ = self.epoll.remove(&parked.socket);
        }
    }

    pub(super) fn connect(
        &mut self,
        waiting: Waiting,
        fd: i32,
        (socket, cookie): (Theirs, Cookie),
        (to, len): (u64, i32),
    ) -> Result<Done, Fault> {
        if let Some(result) = self.connects.take_owed(cookie) {
            return Ok(self.tell_connect(waiting, cookie, result));
        }
        let last = self.connects.take_last(&waiting, cookie);
        self.relays.look_at(&self.epoll, cookie);
        if let Some(relay) = self.relays.of(cookie) {
            if relay.take_news() {
                let result = Ok(Done::With(0));
                if !Caller::new(&self.listener, waiting).end(result) {
                    self.connects.owe(cookie, result);
                }
                return Ok(Done::Elsewhere);
            }
            return match (relay.is_connecting(), last) {
                (false, Some(_)) => Ok(Done::With(0)),
                (true, Some(result)) => result,
                (true, None) => Err(Fault::Error(libc::EALREADY)),
                (false, None) => Err(Fault::Error(libc::EISCONN)),
            };
        }
        if let Some(ended) = self.relays.ended(cookie) {
            let error = ended.take_error(&socket);
            let error = if error == 0 { libc::EISCONN } else { error };
            return Ok(self.tell_connect(waiting, cookie, Err(Fault::Error(error))));
        }
        let room = usize::try_from(len).ok().filter(|len| *len <= stream::NAME_MAX);
        let Some(room) = room.filter(|_| accepts::is_tcp(&socket)) else {
            return Err(Fault::Kernel);
        };
        if let Some(number) = self.connects.of(cookie) {
            // The call was interrupted, and is made anew, or another thread waits, too.
            if let Some(connecting) = self.connects.all.get_mut(&number) {
                connecting.calls.push((waiting, fd));
            }
            return Ok(Done::Elsewhere);
        }
        if let Some(result) = last {
            return result;
        }
        if !self.has_room()
            || connects::standing(&socket)? != Standing::None
            || connects::is_deferred(&socket)
        {
            return Err(Fault::Kernel);
        }
        let mut bytes = [0; stream::NAME_MAX];
        Caller::new(&self.listener, waiting).read(to, &mut bytes[..room])?;
        let name = Name::of_bytes(&bytes[..room]).ok_or(Fault::Kernel)?;
        if !matches!(name.family(), Some(libc::AF_INET | libc::AF_INET6)) {
            return Err(Fault::Kernel);
        }
        let is_nonblocking = stream::is_nonblocking(&socket)?;
        if is_nonblocking {
            let caller = Caller::new(&self.listener, waiting);
            if self.connects.sets.have(&caller, fd)? {
                return Err(Fault::Kernel);
            }
        }
        self.prepare()?;
        let is_connected = match connects::connect(&socket, &name, is_nonblocking) {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => return Ok(self.tell_connect(waiting, cookie, Err(error.into()))),
        };
        if is_connected || is_nonblocking {
            let how = (is_nonblocking, !is_connected);
            let put = self.put_connected((waiting, fd), (socket, cookie), how);
            let there = put.ok().flatten().unwrap_or(cookie);
            let result = match is_connected {
                true => Ok(Done::With(0)),
                false => Err(Fault::Error(libc::EINPROGRESS)),
            };
            return Ok(self.tell_connect(waiting, there, result));
        }
        let until = accepts::deadline(&socket, libc::SO_SNDTIMEO);
        self.waits_until(until);
        self.next += 1;
        self.epoll.add_for(&socket, CONNECT | self.next, Interest::Write)?;
        let calls = vec![(waiting, fd)];
        let connecting = Connecting { calls, socket, cookie, to: name, until };
        self.connects.all.insert(self.next, connecting);
        Ok(Done::Elsewhere)
    }

    /// A call has this result, or the one that is made in its place will have it.
    fn tell_connect(
        &mut self,
        waiting: Waiting,
        cookie: Cookie,
        result: Result<Done, Fault>,
    ) -> Done {
        if !Caller::new(&self.listener, waiting).end(result) {
            self.connects.owe(cookie, result);
        } else if matches!(result, Ok(_) | Err(Fault::Error(libc::EINPROGRESS))) {
            self.connects.told(&waiting, cookie, result);
        }
        Done::Elsewhere
    }

    /// The program's socket is an end of a pair from now on, if it is where it was. Returns which; with `None`, or an error, the
    /// program has its own, and the connection is the kernel's.
    fn put_connected(
        &mut self,
        (waiting, fd): (Waiting, i32),
        (socket, cookie): (Theirs, Cookie),
        (is_nonblocking, is_connecting): (bool, bool),
    ) -> Result<Option<Cookie>, Fault> {
        // Another thread may have closed it meanwhile, and have opened another file that has this number now.
        let caller = Caller::new(&self.listener, waiting);
        if Cookie::of(&caller.file(fd)?)? != cookie {
            return Ok(None);
        }
        // One that does not wait was looked for before.
        if !is_nonblocking && self.connects.sets.have(&caller, fd)? {
            return Ok(None);
        }
        let (pair, theirs) = self.take_pair()?;
        let relay = Relay::new(own(socket)?, (pair, &theirs), is_connecting)?;
        stream::set_nonblocking(&theirs, is_nonblocking)?;
        self.relays.expect(waiting.thread);
        let put = Caller::new(&self.listener, waiting).put(&theirs, fd);
        if let Err(fault) = put {
            // It has its own socket still.
            let tcp = Theirs::new(relay.into_tcp());
            stream::set_nonblocking(&tcp, is_nonblocking)?;
            return Err(fault);
        }
        self.relays.add(&self.epoll, relay, &theirs, (waiting.thread, fd));
        Ok(Some(Cookie::of(&theirs)?))
    }

    /// The socket of a call that waited is connected: the program gets an end of a pair. Returns the socket that it has then,
    /// and what it is told; `None` if the call has ended, and the socket is as it was for the one that is made again.
    fn connected(
        &mut self,
        call: (Waiting, i32),
        (socket, cookie): (Theirs, Cookie),
        to: &Name,
    ) -> Option<(Cookie, Result<Done, Fault>)> {
        let done = Ok(Done::With(0));
        match self.put_connected(call, (socket, cookie), (false, false)) {
            Err(Fault::Gone) => None,
            Ok(Some(there)) => {
                // As one that waits would say it: from now on a library in front of libc may have the connection elsewhere.
                let said =
                    self.relays.of(there).map(|relay| connects::connect(relay.tcp(), to, true));
                Some((there, said.unwrap_or(Ok(())).map_err(Fault::from).and(done)))
            }
            Ok(None) | Err(_) => Some((cookie, done)),
        }
    }

    /// A connection for which a call waits is established, or will not be.
    pub(super) fn try_connect(&mut self, number: u64) {
        let Some(connecting) = self.connects.all.get_mut(&number) else { return };
        // A call that is made anew is the kernel's.
        let outcome = connecting.waits(&self.listener).then(|| {
            let Connecting { socket, to, .. } = &*connecting;
            connects::outcome(socket, to)
        });
        let is_open = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if outcome.as_ref().is_some_and(|outcome| outcome.as_ref().is_err_and(is_open)) {
            return;
        }
        let Some(connecting) = self.connects.all.remove(&number) else { return };
        // It is the relay's to wait for.
        let _ = self.epoll.remove(&connecting.socket);
        let Connecting { calls, socket, cookie, to, .. } = connecting;
        let Some((outcome, (first, others))) = outcome.zip(calls.split_first()) else { return };
        let (told, theirs) = match outcome {
            Ok(()) => (self.connected(*first, (socket, cookie), &to), Ok(Done::With(0))),
            // The first is told of the error, and that there was one the others.
            Err(error) => {
                (Some((cookie, Err(error.into()))), Err(Fault::Error(libc::ECONNABORTED)))
            }
        };
        if let Some((there, result)) = told {
            self.tell_connect(first.0, there, result);
        }
        for (waiting, _) in others {
            Caller::new(&self.listener, *waiting).end(theirs);
        }
    }

    /// Calls that were interrupted wait no more, nor do those that have waited long enough.
    pub(super) fn look_after(&mut self) {
        self.looked = Instant::now();
        let now = self.looked;
        let listener = &self.listener;
        let is_late = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        let is_done = |one: &Parked| is_late(one.until) || !listener.waits(one.waiting.id);
        let done = self.accepts.parked.iter().filter(|(_, one)| is_done(one));
        let done: Vec<_> = done.map(|(number, one)| (*number, one.waiting)).collect();
        for (number, waiting) in done {
            Caller::new(&self.listener, waiting).end(Err(Fault::Error(libc::EAGAIN)));
            self.unpark(number);
        }
        self.accepts.look_after();
        let listener = &self.listener;
        let is_done = |_: &u64, one: &mut Connecting| is_late(one.until) || !one.waits(listener);
        let done: Vec<_> = self.connects.all.extract_if(.., is_done).collect();
        for (_, connecting) in done {
            let _ = self.epoll.remove(&connecting.socket);
            for (waiting, _) in connecting.calls {
                Caller::new(&self.listener, waiting).end(Err(Fault::Error(libc::EINPROGRESS)));
            }
        }
        let connects = self.connects.all.values().filter_map(|one| one.until);
        self.due = connects.chain(self.accepts.due()).min();
    }
}

/// A socket that is the supervisor's from now on.
fn own(socket: Theirs) -> Result<OwnedFd, Fault> {
    socket.into_own().ok_or(Fault::Gone)
}
