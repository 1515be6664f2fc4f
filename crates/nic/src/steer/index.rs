//! Whose the connections of the engine's addresses are.

use std::sync::atomic::{AtomicU32, Ordering};

use tcp::FourTuple;
use wire::{FlowHash, FlowKey};

use super::key_of_path;

/// Bits of a bucket that tell the worker; the others count its connections.
const WORKER_BITS: u32 = 8;
/// Most workers that share an index.
const WORKERS_MAX: usize = 1 << WORKER_BITS;
/// Buckets for each connection there may be: strays by a bucket that two connections share are few.
const BUCKETS_PER_CONNECTION: usize = 16;
const BUCKETS_MAX: usize = 1 << 22;
const BUCKETS_MIN: usize = 1 << 12;

/// Whose connections are, for all workers: buckets of the flow's hash, each of one worker while it has a
/// connection there. It is read for each packet where there are several workers, and written when connections
/// begin and end.
#[derive(Debug)]
pub(crate) struct FlowIndex {
    hash: FlowHash,
    /// A count of connections, and the worker that they are of.
    buckets: Box<[AtomicU32]>,
}

/// A place in a [`FlowIndex`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bucket(usize);

impl FlowIndex {
    /// For so many connections.
    pub(crate) fn new(hash: FlowHash, connections: u32) -> Self {
        let buckets = (connections as usize * BUCKETS_PER_CONNECTION)
            .next_power_of_two()
            .clamp(BUCKETS_MIN, BUCKETS_MAX);
        FlowIndex { hash, buckets: (0..buckets).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Where a connection stands.
    #[inline]
    pub(crate) fn bucket(&self, path: &FourTuple) -> Bucket {
        self.bucket_of(&key_of_path(path))
    }

    /// The same by the key of the packets that its peer sends.
    #[inline]
    pub(crate) fn bucket_of(&self, key: &FlowKey) -> Bucket {
        Bucket(wire::flow::bucket(self.hash.of(key), self.buckets.len()))
    }

    /// The worker whose connections are there, if there are any.
    #[inline]
    pub(crate) fn owner(&self, bucket: Bucket) -> Option<usize> {
        owner(self.buckets[bucket.0].load(Ordering::Relaxed))
    }

    /// Counts one connection more of a worker.
    ///
    /// # Errors
    /// The worker whose connections are there, if that is another.
    pub(crate) fn claim(&self, bucket: Bucket, worker: usize) -> Result<(), usize> {
        debug_assert!(worker < WORKERS_MAX);
        let other = |old: u32| owner(old).filter(|owner| *owner != worker);
        let claimed = |old: u32| match other(old) {
            Some(_) => None,
            None => Some(((old >> WORKER_BITS) + 1) << WORKER_BITS | worker as u32),
        };
        let place = &self.buckets[bucket.0];
        let claim = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claimed);
        // The value that stood in the way, not one that is read later: the other may have released it since.
        claim.map(drop).map_err(|old| other(old).unwrap_or(worker))
    }

    /// Counts one less of those that the worker has [claimed](Self::claim).
    pub(crate) fn release(&self, bucket: Bucket, worker: usize) {
        let before = self.buckets[bucket.0].fetch_sub(1 << WORKER_BITS, Ordering::Relaxed);
        debug_assert_eq!(owner(before), Some(worker), "released by one that has no claim");
    }

    /// How many connections there are, for tests.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let count = |bucket: &AtomicU32| (bucket.load(Ordering::Relaxed) >> WORKER_BITS) as usize;
        self.buckets.iter().map(count).sum()
    }
}

#[inline]
fn owner(bucket: u32) -> Option<usize> {
    (bucket >> WORKER_BITS > 0).then_some(bucket as usize & (WORKERS_MAX - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workers claim one bucket again and again: one has it, and the other is told who, even if that one releases
    /// it at once.
    #[test]
    fn who_claims_in_vain_is_told_the_owner() {
        let index = FlowIndex::new(FlowHash::new([7; FlowHash::KEYS]), 1);
        let bucket = Bucket(3);
        std::thread::scope(|scope| {
            for me in 0..2 {
                let index = &index;
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        match index.claim(bucket, me) {
                            Ok(()) => {
                                assert_eq!(index.owner(bucket), Some(me));
                                index.release(bucket, me);
                            }
                            Err(owner) => assert_eq!(owner, 1 - me),
                        }
                    }
                });
            }
        });
        assert_eq!(index.len(), 0);
    }
}
