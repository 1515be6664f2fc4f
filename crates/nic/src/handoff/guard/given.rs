//! What a guard makes of messages, and of memory with anything in it: for tests and fuzzing.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use sys::poll::EventFd;
use sys::shared::SharedMemory;

use super::Survivors;
use super::message::{LEN, Message};

/// Bytes of each memory.
const MEMORY: usize = 1 << 16;

/// Messages as bytes, some of them with a kind and sizes that mean something, each with descriptors; then the NIC has
/// died. Nothing is done but what is refused, and nobody is harmed.
pub fn messages(bytes: &[u8]) {
    let mut survivors = Survivors::default();
    let (memories, rest) = bytes.split_at(bytes.len() / 2);
    for chunk in rest.chunks_exact(LEN + 2) {
        let (how, message) = (chunk[0], &chunk[2..]);
        let mut message = message.to_vec();
        if how & 1 == 0 {
            message[0] = 1 + how / 2 % 7;
            message[1..4].fill(0);
            // Numbers that are small, and a layout that is one.
            message[4..].chunks_exact_mut(4).for_each(|number| number[1..].fill(0));
            if message[0] == 3 {
                for (at, size) in [(8, 1_u32), (12, 4), (16, 2), (20, 4096), (24, 4096), (28, 0)] {
                    message[at..at + 4].copy_from_slice(&size.to_le_bytes());
                }
            }
        }
        let Some(message_) = Message::decode(&message) else { continue };
        assert_eq!(message_.encode().to_vec(), message, "{message_:?}");
        let count = chunk[1] % 4;
        let descriptors = (0..count).filter_map(|at| descriptor(chunk[1] / 4 + at, memories));
        survivors.take(message_, descriptors.collect());
    }
    let Ok(Some(mut outcome)) = survivors.take_over() else { return };
    let (restored, lost) = outcome.resume();
    assert!(lost.iter().all(|line| !line.contains('\n')), "{restored}, {lost:?}");
}

fn descriptor(which: u8, fill: &[u8]) -> Option<OwnedFd> {
    let file: OwnedFd = File::open("/dev/null").ok()?.into();
    match which % 6 {
        0..=2 => {
            let memory = SharedMemory::new(c"wharf-given", MEMORY).ok()?;
            for (word, bytes) in memory.words().iter().zip(fill.chunks_exact(8)) {
                word.store(u64::from_le_bytes(bytes.try_into().ok()?), Ordering::Relaxed);
            }
            memory.as_fd().try_clone_to_owned().ok()
        }
        3 => EventFd::new().ok()?.as_fd().try_clone_to_owned().ok(),
        4 => TcpListener::bind("127.0.0.1:0").ok().map(OwnedFd::from),
        _ => Some(file),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_messages_are_borne(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            super::messages(&bytes);
        }
    }
}
