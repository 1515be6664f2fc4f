//! The neighbour cache: learned, resolved, and verified again (RFC 826, RFC 1122 section 2.3.2, RFC 4861
//! section 7). Both IP versions are treated alike, as in Linux.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::IpAddr;

use wire::{Mac, VirtioNetHdr};

use crate::Nanos;

const SECOND: Nanos = 1_000_000_000;
/// How long a neighbour's answer is valid (RFC 4861 section 10, REACHABLE_TIME).
const REACHABLE: Nanos = 30 * SECOND;
/// Time between two requests (RFC 4861 section 10, RETRANS_TIMER; RFC 1122 section 2.3.2.1).
const RETRY: Nanos = SECOND;
/// Unanswered requests after which a neighbour is removed (RFC 4861 section 10, MAX_MULTICAST_SOLICIT).
const REQUESTS_MAX: u8 = 3;
/// Most neighbours in the cache.
pub const NEIGHBOURS_MAX: usize = 1024;
/// Most of them that have not answered yet: a scan of the network leaves room for those that have.
const UNRESOLVED_MAX: usize = NEIGHBOURS_MAX / 2;
/// Packets that may wait for one neighbour; the oldest is dropped first (RFC 4861 section 7.2.2).
const WAITING_MAX: usize = 16;
/// Bytes that may wait for all neighbours together.
pub const WAITING_BYTES: usize = 1 << 20;

/// A frame that waits for its neighbour's Ethernet address, which is still to be written.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) vnet: VirtioNetHdr,
    pub(crate) bytes: Vec<u8>,
}

/// Whether the Ethernet address of a neighbour is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Resolved {
    /// It is known.
    At(Mac),
    /// It is being requested: the packet may [wait](Neighbours::hold).
    Asking,
    /// Too many requests are unanswered already.
    TooMany,
}

/// How a neighbour's Ethernet address was learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Learned {
    /// From its request for an address of ours: packets to it will follow.
    FromRequest,
    /// From its reply, or its announcement. It counts only for neighbours that are being resolved, or are
    /// known.
    FromReply {
        /// It overrides the address that was known (the O flag of RFC 4861 section 4.4).
        overrides: bool,
    },
}

#[derive(Debug)]
struct Neighbour {
    /// `None` while it has not answered.
    mac: Option<Mac>,
    /// When a packet was last sent to it.
    used: Nanos,
    state: State,
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its address is valid until then.
    Reachable(Nanos),
    /// Requests still to be sent, and when the next is due.
    Soliciting { left: u8, next: Nanos },
}

/// The neighbour cache.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    /// In order: no key is needed against addresses that are chosen to collide.
    all: BTreeMap<IpAddr, Neighbour>,
    /// The neighbour of the last packet, and until when its address is valid: most packets have the next hop
    /// of the one before.
    last: Option<(IpAddr, Mac, Nanos)>,
    /// How many of them have not answered.
    unresolved: usize,
    /// Bytes of packets that wait, and of those released.
    waiting_bytes: usize,
    /// When the next request is due.
    next: Option<Nanos>,
    /// Packets whose neighbour has answered.
    released: VecDeque<Waiting>,
    /// Packets dropped, as their neighbour did not answer or they had to make room.
    given_up: u64,
}

impl Neighbours {
    /// The Ethernet address of `ip`. Starts to resolve it if it is not known, or no longer valid.
    #[inline]
    pub(crate) fn resolve(&mut self, ip: IpAddr, now: Nanos) -> Resolved {
        match self.last {
            Some((last, mac, until)) if last == ip && now < until => Resolved::At(mac),
            _ => self.look(ip, now),
        }
    }

    fn look(&mut self, ip: IpAddr, now: Nanos) -> Resolved {
        let Some(neighbour) = self.all.get_mut(&ip) else { return self.ask(ip, now) };
        neighbour.used = now;
        match (neighbour.mac, neighbour.state) {
            (Some(mac), State::Reachable(until)) if now < until => {
                self.last = Some((ip, mac, until));
                Resolved::At(mac)
            }
            (Some(mac), state) => {
                if let State::Reachable(_) = state {
                    // It is verified while packets still go to the address that was known.
                    neighbour.state = State::Soliciting { left: REQUESTS_MAX, next: now };
                    self.next = soonest(self.next, now);
                }
                Resolved::At(mac)
            }
            (None, _) => Resolved::Asking,
        }
    }

    #[cold]
    fn ask(&mut self, ip: IpAddr, now: Nanos) -> Resolved {
        if self.unresolved >= UNRESOLVED_MAX || !self.make_room() {
            return Resolved::TooMany;
        }
        let state = State::Soliciting { left: REQUESTS_MAX, next: now };
        let waiting = VecDeque::new();
        self.all.insert(ip, Neighbour { mac: None, used: now, state, waiting });
        self.unresolved += 1;
        self.next = soonest(self.next, now);
        self.debug_check();
        Resolved::Asking
    }

    /// Removes the neighbour that was unused for longest, if the cache is full. Returns whether there is
    /// room.
    fn make_room(&mut self) -> bool {
        if self.all.len() < NEIGHBOURS_MAX {
            return true;
        }
        let resolved = self.all.iter().filter(|(_, neighbour)| neighbour.mac.is_some());
        let oldest = resolved.min_by_key(|(_, neighbour)| neighbour.used).map(|(ip, _)| *ip);
        self.last = None;
        oldest.is_some_and(|ip| self.all.remove(&ip).is_some())
    }

    /// Keeps a frame until its neighbour has answered.
    pub(crate) fn hold(&mut self, ip: IpAddr, vnet: VirtioNetHdr, bytes: Vec<u8>) {
        let room = self.waiting_bytes + bytes.len() <= WAITING_BYTES;
        let Some(neighbour) = self.all.get_mut(&ip).filter(|_| room) else {
            self.given_up += 1;
            return;
        };
        if neighbour.waiting.len() >= WAITING_MAX
            && let Some(oldest) = neighbour.waiting.pop_front()
        {
            self.waiting_bytes -= oldest.bytes.len();
            self.given_up += 1;
        }
        self.waiting_bytes += bytes.len();
        neighbour.waiting.push_back(Waiting { vnet, bytes });
        self.debug_check();
    }

    /// Learns the Ethernet address of a neighbour.
    pub(crate) fn learn(&mut self, ip: IpAddr, mac: Mac, how: Learned, now: Nanos) {
        if !self.all.contains_key(&ip) {
            if how != Learned::FromRequest || !self.make_room() {
                return;
            }
            let state = State::Reachable(now);
            let waiting = VecDeque::new();
            self.all.insert(ip, Neighbour { mac: Some(mac), used: now, state, waiting });
        }
        let Some(neighbour) = self.all.get_mut(&ip) else { return };
        let differs = neighbour.mac.is_some_and(|known| known != mac);
        if differs && how == (Learned::FromReply { overrides: false }) {
            // It does not override the address that is known, but is a reason to verify that.
            neighbour.state = State::Soliciting { left: REQUESTS_MAX, next: now };
            self.next = soonest(self.next, now);
            return;
        }
        self.unresolved -= usize::from(neighbour.mac.is_none());
        neighbour.mac = Some(mac);
        neighbour.state = State::Reachable(now + REACHABLE);
        for mut waiting in neighbour.waiting.drain(..) {
            if let Some(destination) = waiting.bytes.first_chunk_mut() {
                *destination = mac;
            }
            self.released.push_back(waiting);
        }
        self.last = None;
        self.debug_check();
    }

    /// The next frame whose neighbour has answered, with its destination address written.
    pub(crate) fn released(&mut self) -> Option<Waiting> {
        let released = self.released.pop_front()?;
        self.waiting_bytes -= released.bytes.len();
        Some(released)
    }

    /// When a request is due.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.next
    }

    /// Calls `ask` for each neighbour that is to be solicited now, with its last address, if one is known.
    /// Removes those that have not answered, and drops the packets that waited for them.
    pub(crate) fn on_time(&mut self, now: Nanos, mut ask: impl FnMut(IpAddr, Option<Mac>)) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.last = None;
        let (mut soonest, mut bytes, mut unresolved, mut given_up) = (None::<Nanos>, 0, 0, 0);
        self.all.retain(|ip, neighbour| {
            let State::Soliciting { left, next } = &mut neighbour.state else { return true };
            if now >= *next {
                if *left == 0 {
                    given_up += neighbour.waiting.len() as u64;
                    bytes +=
                        neighbour.waiting.iter().map(|waiting| waiting.bytes.len()).sum::<usize>();
                    unresolved += usize::from(neighbour.mac.is_none());
                    return false;
                }
                *left -= 1;
                *next = now + RETRY;
                ask(*ip, neighbour.mac);
            }
            soonest = Some(soonest.map_or(*next, |soonest| soonest.min(*next)));
            true
        });
        self.next = soonest;
        self.waiting_bytes -= bytes;
        self.unresolved -= unresolved;
        self.given_up += given_up;
        self.debug_check();
    }

    /// Panics in a debug build if the cache contradicts itself, or is larger than it may be.
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let (all, unresolved) = (self.all.len(), self.unresolved);
            debug_assert!(all <= NEIGHBOURS_MAX, "{all} neighbours");
            debug_assert!(unresolved <= UNRESOLVED_MAX, "{unresolved} have not answered");
            let silent = self.all.values().filter(|neighbour| neighbour.mac.is_none()).count();
            debug_assert_eq!(silent, unresolved, "neighbours that have not answered");
            self.debug_check_waiting();
            self.debug_check_requests();
        }
    }

    /// The bytes of waiting packets are counted; they wait for a neighbour that has not answered, and within
    /// bounds.
    fn debug_check_waiting(&self) {
        let mut bytes = 0;
        for neighbour in self.all.values() {
            let waiting = &neighbour.waiting;
            debug_assert!(waiting.len() <= WAITING_MAX, "{} wait for one", waiting.len());
            debug_assert!(waiting.is_empty() || neighbour.mac.is_none(), "it has answered");
            bytes += waiting.iter().map(|waiting| waiting.bytes.len()).sum::<usize>();
        }
        bytes += self.released.iter().map(|waiting| waiting.bytes.len()).sum::<usize>();
        debug_assert_eq!(bytes, self.waiting_bytes, "bytes that wait");
        debug_assert!(bytes <= WAITING_BYTES, "{bytes} bytes wait");
    }

    /// No request is forgotten, and the neighbour of the last packet is still in the cache.
    fn debug_check_requests(&self) {
        for neighbour in self.all.values() {
            if let State::Soliciting { next, .. } = neighbour.state {
                debug_assert!(self.next.is_some_and(|first| first <= next), "{next} is forgotten");
            }
        }
        if let Some((ip, mac, _)) = self.last {
            let known = self.all.get(&ip).and_then(|neighbour| neighbour.mac);
            debug_assert_eq!(known, Some(mac), "where {ip} is");
        }
    }

    /// Number of neighbours, resolved or not.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Packets that were dropped because their neighbour did not answer in time, since the beginning.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }
}

/// The earlier of the two: a request that is due already stays due.
fn soonest(next: Option<Nanos>, now: Nanos) -> Option<Nanos> {
    Some(next.map_or(now, |next| next.min(now)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const MAC: Mac = [2, 0, 0, 0, 0, 9];
    const OTHER: Mac = [2, 0, 0, 0, 0, 8];
    const ANSWER: Learned = Learned::FromReply { overrides: true };

    fn ip(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    fn asked(neighbours: &mut Neighbours, now: Nanos) -> Vec<(IpAddr, Option<Mac>)> {
        let mut all = Vec::new();
        neighbours.on_time(now, |ip, mac| all.push((ip, mac)));
        all
    }

    fn frame(number: u8) -> Vec<u8> {
        vec![number; 60]
    }

    #[test]
    fn held_packets_leave_in_order_once_the_neighbour_answers() {
        let mut neighbours = Neighbours::default();
        assert_eq!(neighbours.resolve(ip(1), 5), Resolved::Asking);
        assert_eq!(asked(&mut neighbours, 5), [(ip(1), None)]);
        assert_eq!(asked(&mut neighbours, 5), []);
        for number in 0..WAITING_MAX as u8 + 2 {
            neighbours.hold(ip(1), VirtioNetHdr::default(), frame(number));
        }
        assert_eq!(neighbours.given_up(), 2);
        neighbours.learn(ip(1), MAC, ANSWER, 10);
        for number in 2..WAITING_MAX as u8 + 2 {
            let bytes = neighbours.released().unwrap().bytes;
            assert_eq!((&bytes[..6], &bytes[6..]), (&MAC[..], &frame(number)[6..]));
        }
        assert!(neighbours.released().is_none());
        assert_eq!(neighbours.resolve(ip(1), 10), Resolved::At(MAC));
        assert_eq!((neighbours.waiting_bytes, neighbours.unresolved), (0, 0));
    }

    #[test]
    fn a_neighbour_that_does_not_answer_three_requests_is_removed() {
        let mut neighbours = Neighbours::default();
        neighbours.resolve(ip(1), 0);
        neighbours.hold(ip(1), VirtioNetHdr::default(), frame(0));
        for second in 0..3 {
            assert_eq!(neighbours.next_deadline(), Some(second * SECOND));
            assert_eq!(asked(&mut neighbours, second * SECOND), [(ip(1), None)]);
        }
        assert_eq!(asked(&mut neighbours, 3 * SECOND), []);
        assert_eq!((neighbours.len(), neighbours.given_up()), (0, 1));
        assert_eq!(neighbours.next_deadline(), None);
        assert_eq!((neighbours.waiting_bytes, neighbours.unresolved), (0, 0));
    }

    #[test]
    fn a_neighbour_in_use_is_solicited_again_by_unicast_and_removed_if_it_is_gone() {
        let mut neighbours = Neighbours::default();
        neighbours.learn(ip(1), MAC, Learned::FromRequest, 0);
        assert_eq!(neighbours.resolve(ip(1), REACHABLE - 1), Resolved::At(MAC));
        assert_eq!(neighbours.next_deadline(), None);
        assert_eq!(neighbours.resolve(ip(1), REACHABLE), Resolved::At(MAC));
        assert_eq!(asked(&mut neighbours, REACHABLE), [(ip(1), Some(MAC))]);
        neighbours.learn(ip(1), MAC, ANSWER, REACHABLE + 1);
        assert_eq!(asked(&mut neighbours, REACHABLE + SECOND), []);
        assert_eq!(neighbours.next_deadline(), None);
        neighbours.resolve(ip(1), 3 * REACHABLE);
        for second in 0..4 {
            asked(&mut neighbours, 3 * REACHABLE + second * SECOND);
        }
        assert_eq!(neighbours.resolve(ip(1), 4 * REACHABLE), Resolved::Asking);
    }

    #[test]
    fn replies_to_no_request_are_not_remembered() {
        let mut neighbours = Neighbours::default();
        neighbours.learn(ip(1), MAC, ANSWER, 0);
        assert_eq!(neighbours.len(), 0);
        neighbours.learn(ip(1), MAC, Learned::FromRequest, 0);
        neighbours.learn(ip(1), OTHER, Learned::FromReply { overrides: false }, 1);
        assert_eq!(neighbours.resolve(ip(1), 1), Resolved::At(MAC));
        assert_eq!(asked(&mut neighbours, 1), [(ip(1), Some(MAC))]);
        neighbours.learn(ip(1), OTHER, ANSWER, 2);
        assert_eq!(neighbours.resolve(ip(1), 2), Resolved::At(OTHER));
    }

    #[test]
    fn memory_is_bounded_and_neighbours_in_use_stay() {
        let mut neighbours = Neighbours::default();
        neighbours.learn(ip(0), MAC, Learned::FromRequest, 0);
        for number in 1..10 * NEIGHBOURS_MAX as u32 {
            neighbours.resolve(ip(number), 1);
            neighbours.hold(ip(number), VirtioNetHdr::default(), vec![0; 60_000]);
        }
        assert_eq!(neighbours.unresolved, UNRESOLVED_MAX);
        assert!(neighbours.waiting_bytes <= WAITING_BYTES);
        for number in 1..10 * NEIGHBOURS_MAX as u32 {
            assert_eq!(neighbours.resolve(ip(0), Nanos::from(number)), Resolved::At(MAC));
            neighbours.last = None;
            neighbours.learn(ip(number), OTHER, Learned::FromRequest, Nanos::from(number));
        }
        assert!(neighbours.len() <= NEIGHBOURS_MAX);
        assert_eq!(neighbours.resolve(ip(0), 20_000), Resolved::At(MAC));
    }
}
