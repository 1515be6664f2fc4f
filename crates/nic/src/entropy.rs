//! Keys that outsiders cannot know.

use std::hash::{BuildHasher, RandomState};

use wire::FlowHash;

/// A flow hash of its own for each caller: std's hashers, SipHash, have keys from the operating system.
pub(crate) fn flow_hash() -> FlowHash {
    let random = RandomState::new();
    FlowHash::new(std::array::from_fn(|at| random.hash_one(at)))
}
