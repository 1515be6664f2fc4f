//! The lookup layer of connection handoff (`connection-handoff`, section 3.1): which of the host's connections the NIC
//! has, and which worker has each.
//!
//! ```text
//!   bucket  8 entries, one cache line      hash of the flow | place | worker | phase
//!   place   the ends of the connection     compared where the hash is the same
//! ```
//!
//! Workers read it for each packet while there are such connections, and nothing while there are none. It is exact: a
//! packet of another connection is never taken for one of the NIC's. Entries are made and removed by one thread, the
//! agent's; while one is there, its worker alone changes its phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use tcp::FourTuple;
use wire::{FlowHash, FlowKey, Seq};

use super::key_of_path;

/// Entries of a bucket: those of one cache line.
const ENTRIES: usize = 8;
/// Most connections: places of 16 bits.
const PLACES_MAX: usize = 1 << 16;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// It is on its way to the NIC, or back: its packets go to its worker.
    Moving,
    /// The NIC runs it: the kernel is not to say anything about it.
    Nic,
    /// It is not the NIC's any more. Packets go to the worker only behind others that were handed to it.
    Left,
    /// The same, and all that was handed to the worker before is with the kernel.
    Gone,
}

impl Phase {
    /// Whether the worker has nothing of it any more.
    pub(crate) fn has_left(self) -> bool {
        matches!(self, Phase::Left | Phase::Gone)
    }
}

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// The connection's place, which no other has.
    pub(crate) place: u32,
    /// Its worker.
    pub(crate) worker: usize,
    pub(crate) phase: Phase,
}

/// The entry of a connection that has left, which may be removed at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaving {
    place: u32,
    entry: u64,
}

/// Why there is no entry for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoEntry {
    /// There is one with the same ends.
    Taken,
    /// The bucket is full.
    Full,
}

/// An entry that is there. 0 is none.
const THERE: u64 = 1 << 63;
const PHASE_SHIFT: u32 = 61;
const PHASE: u64 = 3 << PHASE_SHIFT;
const WORKER_SHIFT: u32 = 53;
const WORKER_MASK: u64 = 0xff;
/// Counts entries, so that one in the place of another is seen to be another.
const GENERATION_SHIFT: u32 = 48;
const GENERATION_MASK: u64 = 0x1f;
const PLACE_SHIFT: u32 = 32;
const PLACE_MASK: u64 = 0xffff;

fn bits_of(phase: Phase) -> u64 {
    let phase = match phase {
        Phase::Moving => 0,
        Phase::Nic => 1,
        Phase::Left => 2,
        Phase::Gone => 3,
    };
    phase << PHASE_SHIFT
}

fn found(entry: u64) -> Found {
    Found {
        place: (entry >> PLACE_SHIFT & PLACE_MASK) as u32,
        worker: (entry >> WORKER_SHIFT & WORKER_MASK) as usize,
        phase: match (entry & PHASE) >> PHASE_SHIFT {
            0 => Phase::Moving,
            1 => Phase::Nic,
            2 => Phase::Left,
            _ => Phase::Gone,
        },
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; ENTRIES]);

/// The ends of the connection at a place: address words; and ports, whether they are IPv6's, and how many entries there
/// were before.
#[derive(Debug, Default)]
struct Ends([AtomicU64; 5]);

/// Bits of the last word that are not the count.
const ENDS_BITS: u32 = 33;

impl Ends {
    fn words(key: &FlowKey) -> [u64; 5] {
        let [a, b, c, d] = key.addresses;
        [a, b, c, d, u64::from(key.ports) | u64::from(key.ipv6) << 32]
    }

    /// If they are these: the last word.
    fn are(&self, key: &FlowKey) -> Option<u64> {
        let (last, [a, b, c, d, ports]) = (self.last(), Ends::words(key));
        let others = self.0.iter().zip([a, b, c, d]);
        let differs = (last ^ ports) << (u64::BITS - ENDS_BITS);
        let differs =
            others.fold(differs, |all, (word, value)| all | (word.load(Ordering::Relaxed) ^ value));
        (differs == 0).then_some(last)
    }

    fn last(&self) -> u64 {
        self.0[4].load(Ordering::Relaxed)
    }

    fn set(&self, key: &FlowKey, generation: u64) {
        let mut words = Ends::words(key);
        words[4] |= generation << ENDS_BITS;
        self.0.iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
    }
}

/// Written beside what is read for each packet: it has cache lines of its own, of which CPUs fetch two at once.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU32);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Lookup {
    hash: FlowHash,
    buckets: Box<[Bucket]>,
    /// By place.
    ends: Box<[Ends]>,
    /// By place: the number of its entry among those of all buckets, where there is one.
    entries: Box<[AtomicU32]>,
    /// By place: SND.NXT when the kernel gave the connection away.
    kernel_sent: Box<[AtomicU32]>,
    count: Count,
}

impl Lookup {
    /// For so many connections; and what makes their entries.
    pub(crate) fn new(hash: FlowHash, places: usize) -> (Arc<Self>, Claims) {
        let places = places.clamp(1, PLACES_MAX);
        let lookup = Arc::new(Lookup {
            hash,
            // With as many buckets as there may be entries, one in a million is full.
            buckets: (0..places.next_power_of_two()).map(|_| Bucket::default()).collect(),
            ends: (0..places).map(|_| Ends::default()).collect(),
            entries: (0..places).map(|_| AtomicU32::new(0)).collect(),
            kernel_sent: (0..places).map(|_| AtomicU32::new(0)).collect(),
            count: Count::default(),
        });
        (Arc::clone(&lookup), Claims { lookup, generation: 0 })
    }

    /// Whether the NIC has no connection of the host's, and is about to have none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.0.load(Ordering::Relaxed) == 0
    }

    /// The entry of a connection, by the key of the packets that its peer sends.
    #[inline]
    pub(crate) fn find(&self, key: &FlowKey) -> Option<Found> {
        let hash = self.hash.of(key);
        let bucket = &self.buckets[wire::flow::bucket(hash, self.buckets.len())];
        let of_hash = |entry: &AtomicU64| entry.load(Ordering::Relaxed) as u32 == hash;
        // Without a branch for each: most often there is none.
        let is_there = bucket.0.iter().fold(false, |any, entry| any | of_hash(entry));
        if is_there { self.find_in(bucket, key, hash) } else { None }
    }

    fn find_in(&self, bucket: &Bucket, key: &FlowKey, hash: u32) -> Option<Found> {
        let of_hash = |entry: &&AtomicU64| entry.load(Ordering::Relaxed) as u32 == hash;
        bucket.0.iter().filter(of_hash).find_map(|entry| self.entry_of(key, entry))
    }

    /// What an entry of the same hash says, if it is this connection's.
    fn entry_of(&self, key: &FlowKey, entry: &AtomicU64) -> Option<Found> {
        let before = entry.load(Ordering::Acquire);
        if before & THERE == 0 {
            return None;
        }
        let ends = self.ends.get(found(before).place as usize)?;
        let last = ends.are(key)?;
        // The place may be another connection's by now: then the entry is another one as well. It looks the same where this
        // thread has slept for a multiple of 32 entries, but the ends have changed: who sees that entry sees its ends.
        fence(Ordering::Acquire);
        let after = entry.load(Ordering::Acquire);
        ((before ^ after) & !PHASE == 0 && ends.last() == last).then(|| found(after))
    }

    /// The same by the connection's ends.
    pub(crate) fn find_path(&self, path: &FourTuple) -> Option<Found> {
        self.find(&key_of_path(path))
    }

    /// The phase of the connection at a place, if it has an entry.
    pub(crate) fn phase(&self, place: u32) -> Option<Phase> {
        let entry = self.at(place)?.load(Ordering::Acquire);
        (entry & THERE != 0 && found(entry).place == place).then(|| found(entry).phase)
    }

    /// The kernel has given away a connection of the calling worker's, with this SND.NXT.
    pub(crate) fn set_kernel_sent(&self, place: u32, sent: Seq) {
        if let Some(word) = self.kernel_sent.get(place as usize) {
            word.store(sent.0, Ordering::Relaxed);
        }
    }

    /// That of a connection which the NIC [runs](Phase::Nic). What the kernel has sent before may still be on its way.
    pub(crate) fn kernel_sent(&self, place: u32) -> Seq {
        Seq(self.kernel_sent.get(place as usize).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// Changes the phase of a connection of the calling worker's, which is not the NIC's any more only [so](Self::leave).
    pub(crate) fn set(&self, place: u32, phase: Phase) {
        debug_assert!(!phase.has_left(), "its entry may be removed at once");
        self.change(place, phase);
    }

    /// A connection of the calling worker's has [left](Phase::Left). What is returned tells its entry from later ones.
    pub(crate) fn leave(&self, place: u32) -> Leaving {
        Leaving { place, entry: self.change(place, Phase::Left) }
    }

    /// One that has left is [gone](Phase::Gone), unless its entry was removed meanwhile: another may be where it was.
    pub(crate) fn set_gone(&self, Leaving { place, entry: left }: Leaving) {
        if let Some(entry) = self.at(place) {
            let gone = left & !PHASE | bits_of(Phase::Gone);
            let _ = entry.compare_exchange(left, gone, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// What the entry is then.
    fn change(&self, place: u32, phase: Phase) -> u64 {
        let Some(entry) = self.at(place) else { return 0 };
        let before = entry.load(Ordering::Relaxed);
        debug_assert!(before & THERE != 0 && found(before).place == place, "not claimed");
        let after = before & !PHASE | bits_of(phase);
        entry.store(after, Ordering::Release);
        after
    }

    fn at(&self, place: u32) -> Option<&AtomicU64> {
        let number = self.entries.get(place as usize)?.load(Ordering::Relaxed) as usize;
        self.buckets.get(number / ENTRIES)?.0.get(number % ENTRIES)
    }
}

/// What makes and removes entries: the agent's.
#[derive(Debug)]
pub(crate) struct Claims {
    lookup: Arc<Lookup>,
    generation: u64,
}

impl Claims {
    /// The entries.
    pub(crate) fn lookup(&self) -> &Arc<Lookup> {
        &self.lookup
    }

    /// Makes an entry for a connection that moves to this worker, at a place that has none.
    ///
    /// # Errors
    /// If there can be none.
    pub(crate) fn claim(
        &mut self,
        place: u32,
        path: &FourTuple,
        worker: usize,
    ) -> Result<(), NoEntry> {
        debug_assert!(self.lookup.phase(place).is_none(), "the place is another's");
        let key = key_of_path(path);
        match self.lookup.find(&key) {
            // What had the ends before has left: its worker has done with it.
            Some(Found { place, phase, .. }) if phase.has_left() => self.release(place),
            Some(_) => return Err(NoEntry::Taken),
            None => {}
        }
        let Lookup { hash, buckets, ends, entries, count, .. } = &*self.lookup;
        let hash = hash.of(&key);
        let bucket = wire::flow::bucket(hash, buckets.len());
        let mut all = buckets[bucket].0.iter().enumerate();
        let free = all.find(|(_, entry)| entry.load(Ordering::Relaxed) == 0);
        let (at, entry) = free.ok_or(NoEntry::Full)?;
        // Who sees the new ends sees that the entry before, which had this place, is gone.
        fence(Ordering::Release);
        self.generation = self.generation.wrapping_add(1);
        ends[place as usize].set(&key, self.generation);
        entries[place as usize].store((bucket * ENTRIES + at) as u32, Ordering::Relaxed);
        let new = THERE
            | (worker as u64 & WORKER_MASK) << WORKER_SHIFT
            | (self.generation & GENERATION_MASK) << GENERATION_SHIFT
            | (u64::from(place) & PLACE_MASK) << PLACE_SHIFT
            | u64::from(hash);
        entry.store(new, Ordering::Release);
        count.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Removes the entry of a place, if it has one.
    pub(crate) fn release(&mut self, place: u32) {
        if self.lookup.phase(place).is_none() {
            return;
        }
        if let Some(entry) = self.lookup.at(place) {
            entry.store(0, Ordering::Relaxed);
            self.lookup.count.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::net::IpAddr;
    use std::sync::atomic::AtomicBool;
    use testkit::packet::PacketBuilder;

    fn lookup(places: usize) -> (Arc<Lookup>, Claims) {
        Lookup::new(FlowHash::from_seed(5), places)
    }

    fn path(number: u16, v6: bool) -> FourTuple {
        let ip = |host: u16| match v6 {
            true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, host]),
            false => IpAddr::from([10, 0, 0, host as u8]),
        };
        FourTuple { local: (ip(1), 80).into(), remote: (ip(2), number).into() }
    }

    proptest! {
        /// A map from connections to places, workers and phases.
        #[test]
        fn it_finds_what_was_claimed_and_nothing_else(
            steps in proptest::collection::vec((0..6_u32, 0..12_u16, any::<bool>(), 0..5_usize), 1..200),
        ) {
            let (lookup, mut claims) = lookup(6);
            let mut model: HashMap<u32, (FourTuple, usize, Phase)> = HashMap::new();
            // Of connections whose entry may have been removed since.
            let mut leaving = HashMap::new();
            for (place, number, v6, what) in steps {
                let path = path(number, v6);
                let has = |model: &HashMap<_, (FourTuple, usize, Phase)>| {
                    model.iter().find(|(_, (known, ..))| *known == path).map(|(p, v)| (*p, v.2))
                };
                match what {
                    0 if !model.contains_key(&place) => match has(&model) {
                        Some((_, phase)) if !phase.has_left() => {
                            prop_assert_eq!(claims.claim(place, &path, 3), Err(NoEntry::Taken));
                        }
                        known => {
                            known.map(|(old, _)| model.remove(&old));
                            prop_assert_eq!(claims.claim(place, &path, 3), Ok(()));
                            model.insert(place, (path, 3, Phase::Moving));
                        }
                    },
                    1 | 2 => if let Some((_, _, phase)) = model.get_mut(&place)
                        && !phase.has_left()
                    {
                        *phase = Phase::Nic;
                        lookup.set(place, *phase);
                        if what == 2 {
                            *phase = Phase::Left;
                            leaving.insert(place, lookup.leave(place));
                        }
                    },
                    3 => if let Some(left) = leaving.remove(&place) {
                        if let Some((_, _, phase @ Phase::Left)) = model.get_mut(&place) {
                            *phase = Phase::Gone;
                        }
                        lookup.set_gone(left);
                    },
                    4 => {
                        claims.release(place);
                        model.remove(&place);
                    }
                    _ => {}
                }
                for v6 in [false, true] {
                    for number in 0..12 {
                        let path = self::path(number, v6);
                        let known = model.iter().find(|(_, (known, ..))| *known == path);
                        let known = known.map(|(place, &(_, worker, phase))| {
                            Found { place: *place, worker, phase }
                        });
                        prop_assert_eq!(lookup.find_path(&path), known);
                    }
                }
                prop_assert_eq!(lookup.is_empty(), model.is_empty());
            }
        }
    }

    /// The key of a packet is that of its connection's ends, and the other way round for what the host sends.
    #[test]
    fn a_packet_has_the_key_of_its_connection() {
        for packet in [
            PacketBuilder::tcp4().ports(1000, 80).payload_pattern(10).build(),
            PacketBuilder::tcp6().ports(1000, 80).payload_pattern(10).build(),
        ] {
            let path = crate::steer::path_of(&packet).unwrap();
            let key = *crate::steer::Subject::of(&packet, &[]).unwrap().key();
            assert_eq!(key, key_of_path(&path));
            let turned = FourTuple { local: path.remote, remote: path.local };
            assert_eq!(key.reversed(), key_of_path(&turned));
        }
    }

    /// Places change hands again and again while others look: what they find is what they look for, even if the hash is
    /// that of all.
    #[test]
    fn readers_never_take_one_connection_for_another() {
        let (lookup, mut claims) = Lookup::new(FlowHash::new([0; FlowHash::KEYS]), 2);
        let (done, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        // The first of them are those of worker 1, the others those of worker 2.
                        for number in 0..8 {
                            if let Some(Found { worker, .. }) =
                                lookup.find_path(&path(number, true))
                            {
                                assert_eq!(worker, 1 + usize::from(number >= 4));
                                seen.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
            }
            // Both places are most often taken, by neighbours in number.
            for turn in 0_u32.. {
                let (place, number) = (turn % 2, (turn % 8) as u16);
                claims.release(place);
                claims.claim(place, &path(number, true), 1 + usize::from(number >= 4)).unwrap();
                if turn >= 6_000_000 && seen.load(Ordering::Relaxed) > 1_000 {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
