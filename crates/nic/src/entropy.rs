//! Keys that outsiders cannot know.

use std::hash::{BuildHasher, RandomState};

use wire::FlowHash;

/// A flow hash of its own for each caller: std's hashers, SipHash, have keys from the operating system.
pub(crate) fn flow_hash() -> FlowHash {
    let random = RandomState::new();
    FlowHash::new(std::array::from_fn(|at| random.hash_one(at)))
}

/// What outsiders cannot know: std's hashers are seeded by the operating system.
pub(crate) fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    let (one, other) = secret.split_at_mut(8);
    one.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
    other.copy_from_slice(&RandomState::new().hash_one(1).to_ne_bytes());
    secret
}
