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
            (Some(relay), Of::Error) => {
                let len = read_len(4)?;
                value[..4].copy_from_slice(&relay.take_error().to_ne_bytes());
                len
            }
            (Some(_), Of::None(error)) => return Err(Fault::Error(error)),
            (None, of) => {
                let ended = self.relays.ended(cookie).ok_or(Fault::Kernel)?;
                if of != Of::Error {
                    return Err(Fault::Kernel);
                }
                let len = read_len(4)?;
                value[..4].copy_from_slice(&ended.take_error(socket).to_ne_bytes());
                len
            }
        };
        caller.write(room.at, &value[..len])?;
        caller.write(room.len_at, &(len as i32).to_ne_bytes())?;
        Ok(Done::With(0))
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
