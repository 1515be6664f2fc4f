//! Addresses, routes and neighbours of an interface, saved to be applied to another one and back.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io;

use super::address::{self, Address, Destination};
use super::interface::Interface;
use super::neighbour::{self, Neighbour};
use super::route::{self, Route};
use crate::{Error, Result, clock};

/// First bytes of [`Saved::to_bytes`]; the digit is the version.
const MAGIC: &[u8; 8] = b"WHARFSV2";

/// Addresses, routes and neighbours of an interface, in the kernel's own messages.
///
/// Not saved: IPv6 link-local addresses, which the kernel makes for each interface, routes that the kernel
/// makes (see [`route::list`]), neighbours that it has resolved (see [`neighbour::list`]), and policy rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// The name of the interface.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// When it was saved ([`clock::since_boot`]), from which lifetimes run on.
    pub saved_at: u64,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<Address>,
    /// The routes through it.
    pub routes: Vec<Route>,
    /// Its static neighbours.
    pub neighbours: Vec<Neighbour>,
}

/// The part of a saved state that an interface has refused.
#[derive(Debug)]
pub struct Refused {
    /// All that was refused.
    pub saved: Saved,
    /// The error for the first.
    pub error: Error,
}

impl Saved {
    /// Reads the addresses, routes and neighbours of the interface with this index.
    pub fn save(index: u32) -> Result<Self> {
        let name = Interface::by_index(index)?.name;
        let mut addresses = address::list(index)?;
        addresses.retain(|address| !address.is_ipv6_link_local());
        let routes = route::list(index)?;
        let neighbours = neighbour::list(index)?;
        Ok(Self { name, index, saved_at: clock::since_boot(), addresses, routes, neighbours })
    }

    /// Whether there is nothing to move.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.routes.is_empty() && self.neighbours.is_empty()
    }

    /// Removes all of it from the interface from which it was saved. It is no error if a part is gone
    /// already; if a part cannot be removed the rest still is, and the first error is returned.
    pub fn remove(&self) -> Result<()> {
        let mut result = Ok(());
        for neighbour in &self.neighbours {
            result = result.and(neighbour::remove(neighbour));
        }
        // In reverse, so that a route is removed before the one by which its gateway is reached, and a
        // secondary address before its primary.
        for route in self.routes.iter().rev() {
            result = result.and(route::remove(route));
        }
        for address in self.addresses.iter().rev() {
            result = result.and(address::remove(address));
        }
        result
    }

    /// Adds all of it to the interface with this index: the one from which it was saved, or another. It is no
    /// error if a part exists already, so this can be repeated; if a part cannot be added the rest still is, and
    /// the first error is returned. An interface that is down has no routes, and takes none: the kernel removed
    /// those that it had, so that this is no error either.
    ///
    /// Finite lifetimes continue from when they were saved; what has expired since is left out.
    pub fn apply(&self, index: u32) -> Result<()> {
        self.put(index, &[])?.map_or(Ok(()), |refused| Err(refused.error))
    }

    /// As [`apply`](Self::apply), where this is newer than the addresses `there` (from [`address::list`]):
    /// they get the lifetimes of this. Returns what was refused.
    pub fn refresh(&self, index: u32, there: &[Address]) -> Result<Option<Refused>> {
        self.put(index, there)
    }

    fn put(&self, index: u32, there: &[Address]) -> Result<Option<Refused>> {
        let Interface { name, up: is_up, .. } = Interface::by_index(index)?;
        let unless_down = |put: Result<()>| match put {
            Err(error) if !is_up && error.is_down() => Ok(()),
            put => put,
        };
        let to = Destination { index, name: &name, from: &self.name };
        let elapsed = clock::since_boot().saturating_sub(self.saved_at) / 1_000_000_000;
        let elapsed = u32::try_from(elapsed).unwrap_or(u32::MAX);
        // The kernel lists IPv4 addresses in the order in which they were added, IPv6 ones newest first, and
        // takes the first that fits as the source of a packet: both lists are to be as they were.
        let (v4, v6): (Vec<_>, Vec<_>) =
            self.addresses.iter().partition(|address| address.ip().is_ipv4());
        let mut refused =
            Self { addresses: vec![], routes: vec![], neighbours: vec![], ..self.clone() };
        let mut result = Ok(());
        for address in v4.into_iter().chain(v6.into_iter().rev()) {
            let present = there.iter().find(|present| present.is_same(address));
            let put = match present {
                Some(present) => address::refresh(address, &to, elapsed, present),
                None => address::restore(address, &to, elapsed),
            };
            let put = unless_down(put);
            if put.is_err() {
                refused.addresses.push(address.clone());
            }
            result = result.and(put);
        }
        for neighbour in &self.neighbours {
            let put = unless_down(neighbour::restore(neighbour, index));
            if put.is_err() {
                refused.neighbours.push(neighbour.clone());
            }
            result = result.and(put);
        }
        if is_up {
            let routes = self.apply_routes(index, elapsed, &mut refused.routes);
            result = result.and(routes.map_err(|error| error.on(&*name)));
        }
        Ok(result.err().map(|error| Refused { saved: refused, error }))
    }

    /// A route is accepted only if its gateway can be reached by earlier routes: tried until a round adds
    /// none. The rest is added to `refused`.
    fn apply_routes(&self, index: u32, elapsed: u32, refused: &mut Vec<Route>) -> Result<()> {
        let mut waiting: Vec<&Route> = self.routes.iter().collect();
        // Those without a gateway first; within each half the order stays, which is the kernel's.
        waiting.sort_by_key(|route| route.gateway().is_some());
        loop {
            let before = waiting.len();
            let mut result = Ok(());
            waiting.retain(|route| {
                let added = route::restore(route, self.index, index, elapsed);
                let failed = added.is_err();
                if result.is_ok() {
                    result = added;
                }
                failed
            });
            if waiting.is_empty() {
                return Ok(());
            }
            if waiting.len() == before {
                waiting.retain(|route| {
                    route::restore_onlink(route, self.index, index, elapsed).is_err()
                });
                refused.extend(waiting.iter().map(|route| (*route).clone()));
                return if waiting.is_empty() { Ok(()) } else { result };
            }
        }
    }

    /// This without what is identical in `other`.
    pub fn without(&self, other: &Saved) -> Self {
        Self {
            addresses: difference(&self.addresses, &other.addresses),
            routes: difference(&self.routes, &other.routes),
            neighbours: difference(&self.neighbours, &other.neighbours),
            name: self.name.clone(),
            ..*self
        }
    }

    /// Puts routes that a router has advertised behind those that the kernel makes of the next advertisement,
    /// for an interface on which it does so: if it found one of ours without its own mark, it would ignore
    /// the whole advertisement (`ndisc_router_discovery`).
    pub fn behind_advertised(mut self) -> Self {
        self.routes = self.routes.iter().map(Route::behind_advertised).collect();
        self
    }

    /// Routes of this that have a next-hop object in `before`, but none here because they were moved to
    /// another interface, become those of `before` again: the object belongs to the interface to which they
    /// return.
    pub fn with_objects_of(mut self, before: &Saved) -> Self {
        let mut by_object: HashMap<_, &Route> = HashMap::new();
        for old in before.routes.iter().filter(|old| old.has_object()) {
            if let Some(words) = old.without_object(before.index, self.index) {
                by_object.entry(words).or_insert(old);
            }
        }
        if by_object.is_empty() {
            return self;
        }
        for route in &mut self.routes {
            let words = route.without_object(self.index, self.index);
            if let Some(old) = words.and_then(|words| by_object.get(&words)) {
                *route = (*old).clone();
            }
        }
        self
    }

    /// This as bytes for another process on the same machine, which reads them by
    /// [`from_bytes`](Self::from_bytes).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&self.index.to_ne_bytes());
        bytes.extend_from_slice(&self.saved_at.to_ne_bytes());
        put(&mut bytes, self.name.as_bytes());
        put_all(&mut bytes, self.addresses.iter().map(Address::message));
        put_all(&mut bytes, self.routes.iter().map(Route::message));
        put_all(&mut bytes, self.neighbours.iter().map(Neighbour::message));
        bytes
    }

    /// Parses bytes of [`to_bytes`](Self::to_bytes); `InvalidData` if they are anything else.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        parse(bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "not a saved set of addresses and routes")
        })
    }
}

/// What is in `all` and not in `known`. Routing tables are large, so each item is looked up once.
fn difference<T: Clone + Eq + Hash>(all: &[T], known: &[T]) -> Vec<T> {
    let known: HashSet<&T> = known.iter().collect();
    all.iter().filter(|one| !known.contains(one)).cloned().collect()
}

fn put(bytes: &mut Vec<u8>, block: &[u8]) {
    bytes.extend_from_slice(&(block.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(block);
}

fn put_all<'a>(bytes: &mut Vec<u8>, blocks: impl ExactSizeIterator<Item = &'a [u8]>) {
    bytes.extend_from_slice(&(blocks.len() as u32).to_ne_bytes());
    blocks.for_each(|block| put(bytes, block));
}

fn parse(bytes: &[u8]) -> Option<Saved> {
    let mut rest = bytes.strip_prefix(MAGIC)?;
    let index = take_u32(&mut rest)?;
    let saved_at = u64::from_ne_bytes(take(&mut rest, 8)?.try_into().ok()?);
    let name = String::from_utf8(take_block(&mut rest)?).ok()?;
    let addresses = take_all(&mut rest, Address::new)?;
    let routes = take_all(&mut rest, Route::new)?;
    let neighbours = take_all(&mut rest, Neighbour::new)?;
    let saved = Saved { name, index, saved_at, addresses, routes, neighbours };
    rest.is_empty().then_some(saved)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    super::number(take(rest, 4)?)
}

fn take_block(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let length = take_u32(rest)?;
    take(rest, length as usize).map(<[u8]>::to_vec)
}

fn take_all<T>(rest: &mut &[u8], new: fn(Vec<u8>) -> Option<T>) -> Option<Vec<T>> {
    let count = take_u32(rest)?;
    (0..count).map(|_| take_block(rest).and_then(new)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved() -> Saved {
        let mut address = vec![2, 24, 0x80, 0, 3, 0, 0, 0];
        super::super::append(&mut address, 2, &[10, 0, 0, 1]);
        let mut route = vec![2, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        super::super::append(&mut route, libc::RTA_OIF, &[3, 0, 0, 0]);
        let mut neighbour = vec![2, 0, 0, 0, 3, 0, 0, 0, 0x80, 0, 0, 0];
        super::super::append(&mut neighbour, 1, &[10, 0, 0, 9]);
        Saved {
            name: "eth0".to_owned(),
            index: 3,
            saved_at: 1 << 40,
            addresses: vec![Address::new(address).unwrap()],
            routes: vec![Route::new(route.clone()).unwrap(), Route::new(route).unwrap()],
            neighbours: vec![Neighbour::new(neighbour).unwrap()],
        }
    }

    /// A route through interface 3 or another, with a next-hop object or without.
    fn route(destination: u8, through: u32, object: Option<u32>) -> Route {
        let mut message = vec![2, 8, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
        super::super::append(&mut message, libc::RTA_DST, &[destination, 0, 0, 0]);
        if let Some(object) = object {
            super::super::append(&mut message, 30, &object.to_ne_bytes());
        }
        super::super::append(&mut message, libc::RTA_GATEWAY, &[10, 0, 0, 1]);
        super::super::append(&mut message, libc::RTA_OIF, &through.to_ne_bytes());
        Route::new(message).unwrap()
    }

    #[test]
    fn routes_get_their_next_hop_objects_back() {
        let before = Saved { routes: vec![route(20, 3, Some(7)), route(30, 3, None)], ..saved() };
        let moved = Saved {
            index: 9,
            routes: vec![route(30, 9, None), route(20, 9, None), route(40, 9, None)],
            ..saved()
        };
        let back = moved.clone().with_objects_of(&before).routes;
        assert_eq!(back, [route(30, 9, None), route(20, 3, Some(7)), route(40, 9, None)]);
        assert_eq!(moved.clone().with_objects_of(&saved()), moved);
    }

    #[test]
    fn without_keeps_what_is_not_in_the_other() {
        let both = Saved { routes: vec![route(30, 3, None), route(20, 3, None)], ..saved() };
        let other = Saved { routes: vec![route(20, 3, None)], addresses: vec![], ..saved() };
        let rest = both.without(&other);
        assert_eq!(rest.routes, [route(30, 3, None)]);
        assert_eq!((rest.addresses, rest.neighbours), (saved().addresses, vec![]));
        assert!(both.without(&both).is_empty());
    }

    #[test]
    fn bytes_give_back_what_was_saved() {
        assert_eq!(Saved::from_bytes(&saved().to_bytes()).unwrap(), saved());
    }

    #[test]
    fn anything_shorter_longer_or_other_is_refused() {
        let bytes = saved().to_bytes();
        for length in 0..bytes.len() {
            assert!(Saved::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        assert!(Saved::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
        assert!(Saved::from_bytes(&[0xff; 64]).is_err());
    }

    #[test]
    fn a_wrong_count_does_not_allocate() {
        let mut bytes = saved().to_bytes();
        let count = MAGIC.len() + 4 + 8 + 4 + "eth0".len();
        bytes[count..count + 4].fill(0xff);
        assert!(Saved::from_bytes(&bytes).is_err());
    }
}
