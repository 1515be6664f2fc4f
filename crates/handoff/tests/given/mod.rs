//! Laws for bytes from outside, which tests and fuzz targets share.
#![allow(dead_code, unreachable_pub)] // each user has its part

use handoff::command::{NicCommand, OsCommand};
use handoff::mirror::{AGREED_WORDS, MIRROR_WORDS, mirror_sum, read_words};
use handoff::policy::Policy;

/// Bytes are refused, or are exactly what the command writes.
pub fn commands(bytes: [u8; 16]) {
    match NicCommand::decode(bytes) {
        Ok(command) => assert_eq!(command.encode(), bytes, "{command:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match OsCommand::decode(bytes) {
        Ok(command) => assert_eq!(command.encode(), bytes, "{command:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A text is refused in one line, or is a policy that is read again as it is written.
pub fn policy(text: &str) {
    match text.parse::<Policy>() {
        Ok(policy) => assert_eq!(policy.to_string().parse().as_ref(), Ok(&policy), "{policy}"),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.contains('\n') && line.len() < 400, "{line}");
        }
    }
}

/// Bytes are no record, or one that is written as the same words.
pub fn mirror(bytes: &[u8]) {
    let mut words = [0; MIRROR_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    mirror_words(&words);
    // Random bytes have no right sum.
    with_right_sums(&mut words);
    mirror_words(&words);
}

/// Makes the sums of the record and of both copies right.
pub fn with_right_sums(words: &mut [u64; MIRROR_WORDS]) {
    for (start, end) in [(0, AGREED_WORDS), (16, 24), (24, 32)] {
        words[end - 1] = mirror_sum(&words[start..end - 1]);
    }
}

/// The words are no record, or one that is written as the same words, and gives a connection or an error.
pub fn mirror_words(words: &[u64; MIRROR_WORDS]) {
    let Ok(record) = read_words(words) else { return };
    assert_eq!(record.agreed.words(), words[..AGREED_WORDS]);
    let copies = [&words[16..24], &words[24..32]];
    let number = |copy: &[u64]| copy[0] as u32;
    let writes = |copy: &[u64]| record.moving.words(number(copy), record.agreed.epoch) == copy;
    assert!(copies.into_iter().any(writes), "{record:?}");
    let sent = record.moving.snd_nxt - record.moving.snd_una;
    let queue = vec![0; sent.min(1 << 20) as usize];
    if let Ok(repair) = record.to_repair(queue, Vec::new(), u64::from(sent)) {
        let _ = tcp::Snapshot::from_repair(&repair);
    }
}
