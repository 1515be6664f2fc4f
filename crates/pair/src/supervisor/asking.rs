//! What the program asks of its connections, and sets: names and options.

use sys::seccomp::Waiting;
use sys::stream::{self, Name};

use super::Supervisor;
use crate::call::{Key, Room, Whose};
use crate::caller::{Caller, Done, Fault};
use crate::options::{self, Of, VALUE_MAX};
use crate::relay::LINGER;
use crate::relays::Cookie;
use crate::theirs::Theirs;

impl Supervisor {
    pub(super) fn name(
        &mut self,
        waiting: Waiting,
        cookie: Cookie,
        whose: Whose,
        room: Room,
    ) -> Result<Done, Fault> {
        let name = if let Some(relay) = self.relays.of(cookie) {
            match whose {
                Whose::Own => Name::of(relay.tcp())?,
                Whose::Peers => Name::of_peer(relay.tcp())?,
            }
        } else {
            let [own, peers] = self.relays.ended(cookie).ok_or(Fault::Kernel)?.names;
            let name = if whose == Whose::Own { own } else { peers };
            name.ok_or(Fault::Error(libc::ENOTCONN))?
        };
        Caller::new(&self.listener, waiting).write_name(room, &name)?;
        Ok(Done::With(0))
    }

    pub(super) fn option(
        &mut self,
        waiting: Waiting,
        (socket, cookie): (Theirs, Cookie),
        key: Key,
        room: Room,
    ) -> Result<Done, Fault> {
        let of = options::of(key);
        if of == Of::Error {
            return self.error(waiting, (socket, cookie), room);
        }
        self.connects.forget(waiting.thread);
        let mut value = [0; VALUE_MAX];
        let caller = Caller::new(&self.listener, waiting);
        let read_len = |most: usize| {
            let len = caller.read_int(room.len_at)?;
            let len = usize::try_from(len).map_err(|_| Fault::Error(libc::EINVAL))?;
            Ok::<usize, Fault>(len.min(most))
        };
        let len = match (self.relays.of(cookie), of) {
            (_, Of::Pair) => return Err(Fault::Kernel),
            (Some(relay), Of::Tcp) => {
                let len = read_len(VALUE_MAX)?;
                stream::option(relay.tcp(), key.level, key.name, &mut value[..len])?
            }
            (Some(relay), Of::Linger) => {
                value[..LINGER].copy_from_slice(relay.linger());
                read_len(LINGER)?
            }
            (Some(_), Of::None(error)) => return Err(Fault::Error(error)),
            (Some(_), Of::Error) | (None, _) => return Err(Fault::Kernel),
        };
        caller.write(room.at, &value[..len])?;
        caller.write(room.len_at, &(len as i32).to_ne_bytes())?;
        Ok(Done::With(0))
    }

    /// `SO_ERROR`, which is told once: to a call that has it, and not to one that a signal has ended.
    fn error(
        &mut self,
        waiting: Waiting,
        (socket, cookie): (Theirs, Cookie),
        room: Room,
    ) -> Result<Done, Fault> {
        let last = self.connects.take_last(&waiting, cookie);
        let is_live = self.relays.of(cookie).is_some();
        if !is_live && self.relays.ended(cookie).is_none() {
            return Err(Fault::Kernel);
        }
        let caller = Caller::new(&self.listener, waiting);
        let len = caller.read_int(room.len_at)?;
        let len = usize::try_from(len).map_err(|_| Fault::Error(libc::EINVAL))?.min(4);
        let mut error = match self.relays.of(cookie) {
            Some(relay) => relay.take_error(),
            None => self.relays.ended(cookie).map_or(0, |ended| ended.take_error(socket)),
        };
        if let (0, Some(Err(Fault::Error(before)))) = (error, last)
            && caller.read_int(room.at) == Ok(before)
        {
            // It may be the call that a signal has had made again, and finds there what was written for the first.
            error = before;
        }
        let written = caller
            .write(room.at, &error.to_ne_bytes()[..len])
            .and_then(|()| caller.write(room.len_at, &(len as i32).to_ne_bytes()));
        let result = written.map(|()| Done::With(0));
        let is_told = caller.end(result);
        if error == 0 {
            return Ok(Done::Elsewhere);
        }
        if is_told {
            self.connects.told(&waiting, cookie, Err(Fault::Error(error)));
        } else if let Some(relay) = self.relays.of(cookie) {
            relay.put_error(error);
        } else if let Some(ended) = self.relays.ended(cookie) {
            ended.put_error(error);
        }
        Ok(Done::Elsewhere)
    }

    /// The queue of errors: that of TCP is empty, as all that would be put there fails with pairs, and nobody waits for it.
    pub(super) fn errors(&mut self, cookie: Cookie) -> Result<Done, Fault> {
        let is_pair = self.relays.of(cookie).is_some() || self.relays.ended(cookie).is_some();
        Err(if is_pair { Fault::Error(libc::EAGAIN) } else { Fault::Kernel })
    }

    pub(super) fn set_option(
        &mut self,
        waiting: Waiting,
        cookie: Cookie,
        key: Key,
        (at, len): (u64, i32),
    ) -> Result<Done, Fault> {
        let of = options::of(key);
        let Some(relay) = self.relays.of(cookie) else {
            // One that has ended takes all, and nothing comes of it.
            let ended = self.relays.ended(cookie).filter(|_| of != Of::Pair);
            return ended.map(|_| Done::With(0)).ok_or(Fault::Kernel);
        };
        let len = usize::try_from(len).ok().filter(|len| *len <= VALUE_MAX);
        let len = len.ok_or(Fault::Error(libc::EINVAL))?;
        let mut value = [0; VALUE_MAX];
        let value = &mut value[..len];
        match of {
            Of::Pair => return Err(Fault::Kernel),
            Of::None(error) => return Err(Fault::Error(error)),
            Of::Error => return Err(Fault::Error(libc::ENOPROTOOPT)),
            Of::Tcp => {
                Caller::new(&self.listener, waiting).read(at, value)?;
                stream::set_option(relay.tcp(), key.level, key.name, value)?;
            }
            Of::Linger => {
                Caller::new(&self.listener, waiting).read(at, value)?;
                let value = value.first_chunk::<LINGER>().ok_or(Fault::Error(libc::EINVAL))?;
                *relay.linger() = *value;
            }
        }
        Ok(Done::With(0))
    }
}
