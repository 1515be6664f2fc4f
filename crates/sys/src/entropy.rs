//! Keys that outsiders cannot know.

use std::hash::{BuildHasher, RandomState};

/// What outsiders cannot know: std's hashers are seeded by the operating system.
pub fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    let (one, other) = secret.split_at_mut(8);
    one.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
    other.copy_from_slice(&RandomState::new().hash_one(1).to_ne_bytes());
    secret
}
