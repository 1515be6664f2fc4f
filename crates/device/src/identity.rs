//! What is a device's own.

use std::hash::{BuildHasher, RandomState};

/// What outsiders cannot know: std's hashers are seeded by the operating system.
pub(crate) fn secret() -> [u8; 16] {
    let mut secret = [0; 16];
    let (one, other) = secret.split_at_mut(8);
    one.copy_from_slice(&RandomState::new().hash_one(0).to_ne_bytes());
    other.copy_from_slice(&RandomState::new().hash_one(1).to_ne_bytes());
    secret
}

/// The device's EUI-64, locally administered: the same for all processes of a user.
pub(crate) fn guid() -> u64 {
    0x0277_6861_7266_0000 | u64::from(sys::process::uid() as u16)
}
