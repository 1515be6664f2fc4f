//! ICMP errors with complete checksums.

use crate::verify::{ones_complement_sum, pseudo_header};
use wire::protocol;

/// Returns the message of an ICMP error over IPv4. `word` is what follows the checksum: the MTU, for one.
pub fn error4(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    complete(message(kind, code, word, quoted), &[])
}

/// Returns the message of an ICMPv6 error from the first of these addresses to the second.
pub fn error6(
    addresses: [[u8; 16]; 2],
    (kind, code): (u8, u8),
    word: u32,
    quoted: &[u8],
) -> Vec<u8> {
    let message = message(kind, code, word, quoted);
    let pseudo = pseudo_header(&addresses.concat(), protocol::ICMPV6, message.len());
    complete(message, &pseudo)
}

fn message(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    [&[kind, code, 0, 0], &word.to_be_bytes()[..], quoted].concat()
}

fn complete(mut message: Vec<u8>, pseudo: &[u8]) -> Vec<u8> {
    let sum = !ones_complement_sum(&[pseudo, &message].concat());
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}
