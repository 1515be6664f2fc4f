//! What wharf says to a process as a whole: by which policy it offers connections, and which of them are asked for by
//! hand.
//!
//! ```text
//!   line   0         changes of the policy, odd while it is written | bytes of its text
//!          1 .. 17   the text
//!         17 .. 81   the last times that connections were asked for, a line each:
//!                    ports | address of this end | of the peer
//! ```
//!
//! wharf alone writes. A process that writes there misleads itself.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::ring::atomic::{AtomicU64, Ordering, fence};

/// Bytes of a policy's text at most.
pub const POLICY_MAX: usize = 1024;
/// How many of the last times that connections were asked for are remembered.
pub const ASKS: usize = 64;

/// Words of a line.
const LINE: usize = 8;
const WORD: usize = 8;
const TEXT_WORDS: usize = POLICY_MAX / WORD;
const TEXT_AT: usize = LINE;
const ASKS_AT: usize = TEXT_AT + TEXT_WORDS;
pub(super) const SAID_WORDS: usize = ASKS_AT + ASKS * LINE;
/// How often a policy is read again that is being written.
const TRIES: usize = 64;
/// In the first word of what is asked for: it is one connection.
const ONE: u64 = 1 << 32;

/// The ends of a connection: this one, and the peer's.
pub type Ends = (SocketAddr, SocketAddr);

/// The text of a policy, as it was read.
#[derive(Clone, Debug)]
pub struct PolicyText {
    bytes: [u8; POLICY_MAX],
    len: usize,
}

impl PolicyText {
    /// `None` if it is no text.
    pub fn as_str(&self) -> Option<&str> {
        core::str::from_utf8(&self.bytes[..self.len]).ok()
    }
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a>(pub(super) &'a [AtomicU64]);

impl Said<'_> {
    fn changes(&self) -> &AtomicU64 {
        &self.0[0]
    }

    /// How often the policy was changed: another number says that it is to be read.
    #[inline]
    pub fn policy_changes(&self) -> u64 {
        self.changes().load(Ordering::Acquire)
    }

    /// Says by which policy connections are to be offered, as text. One that is too long is not said.
    pub fn set_policy(&self, text: &str) {
        debug_assert!(text.len() <= POLICY_MAX, "{text}");
        if text.len() > POLICY_MAX {
            return;
        }
        let changes = self.changes().load(Ordering::Relaxed);
        self.changes().store(changes.wrapping_add(1), Ordering::Relaxed);
        // Who sees any of what follows sees that it is being written.
        fence(Ordering::Release);
        self.0[1].store(text.len() as u64, Ordering::Relaxed);
        let words = self.0[TEXT_AT..ASKS_AT].iter();
        for (word, bytes) in words.zip(text.as_bytes().chunks(WORD)) {
            let mut whole = [0; WORD];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(whole), Ordering::Relaxed);
        }
        self.changes().store(changes.wrapping_add(2), Ordering::Release);
    }

    /// The policy's text, and the number of its change. `None` if none was said, or there is no whole one.
    pub fn policy(&self) -> Option<(u64, PolicyText)> {
        for _ in 0..TRIES {
            let before = self.policy_changes();
            let len = usize::try_from(self.0[1].load(Ordering::Relaxed)).unwrap_or(POLICY_MAX);
            let mut text = PolicyText { bytes: [0; POLICY_MAX], len: len.min(POLICY_MAX) };
            let words = self.0[TEXT_AT..ASKS_AT].iter();
            for (bytes, word) in text.bytes.chunks_mut(WORD).zip(words) {
                bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            }
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.changes().load(Ordering::Relaxed) == before {
                return (before > 0 && text.as_str().is_some()).then_some((before, text));
            }
            core::hint::spin_loop();
        }
        None
    }

    fn ask(&self, number: u64) -> &[AtomicU64] {
        let at = ASKS_AT + (number % ASKS as u64) as usize * LINE;
        &self.0[at..at + LINE]
    }

    /// Asks for a connection, or all: the time of this number. Then the number is published.
    pub(super) fn set_ask(&self, number: u64, which: Option<Ends>) {
        let words = which.map_or([0; 5], words_of);
        for (to, word) in self.ask(number).iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
    }

    /// Whether a connection was asked for at the time of this number; `None` for all.
    pub(super) fn asked(&self, number: u64) -> Option<Ends> {
        let mut words = [0; 5];
        for (word, from) in words.iter_mut().zip(self.ask(number)) {
            *word = from.load(Ordering::Relaxed);
        }
        ends_of(words)
    }
}

fn words_of((local, remote): Ends) -> [u64; 5] {
    let halves = |ip: IpAddr| {
        let all = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let [high, low] = [all.to_bits() >> 64, all.to_bits()];
        [high as u64, low as u64]
    };
    let ports = u64::from(local.port()) << 16 | u64::from(remote.port()) | ONE;
    let ([a, b], [c, d]) = (halves(local.ip()), halves(remote.ip()));
    [ports, a, b, c, d]
}

fn ends_of([ports, a, b, c, d]: [u64; 5]) -> Option<Ends> {
    let ip = |high: u64, low: u64| {
        let bits = u128::from(high) << 64 | u128::from(low);
        IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()
    };
    let (local, remote) = ((ports >> 16) as u16, ports as u16);
    let ends = (SocketAddr::new(ip(a, b), local), SocketAddr::new(ip(c, d), remote));
    (ports & ONE != 0).then_some(ends)
}
