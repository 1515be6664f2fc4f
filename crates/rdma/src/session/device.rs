//! What a device is, as it tells those that ask.

use super::message::{WORDS, halves, pair};
use crate::verbs::Limits;

/// The answer to [`Request::Query`](super::Request::Query).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// How much a process may have.
    pub limits: Limits,
    /// Its name for all times (EUI-64).
    pub guid: u64,
}

impl Device {
    /// As words of a message.
    pub fn encode(&self) -> [u64; WORDS] {
        let of = &self.limits;
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let small = u32::from(of.sge) | u32::from(of.reads) << 8;
        [
            pair(number(of.qps), of.wr),
            pair(number(of.cqs), of.cqe),
            pair(number(of.srqs), small),
            pair(number(of.regions), number(of.pds)),
            pair(of.inline, 0),
            of.registered,
            of.queue_bytes as u64,
            self.guid,
            0,
            0,
        ]
    }

    /// From words of a message.
    pub fn decode(words: &[u64; WORDS]) -> Self {
        let ((qps, wr), (cqs, cqe)) = (halves(words[0]), halves(words[1]));
        let ((srqs, small), (regions, pds)) = (halves(words[2]), halves(words[3]));
        let limits = Limits {
            pds: pds as usize,
            cqs: cqs as usize,
            cqe,
            srqs: srqs as usize,
            qps: qps as usize,
            wr,
            sge: small as u8,
            inline: halves(words[4]).0,
            queue_bytes: usize::try_from(words[6]).unwrap_or(usize::MAX),
            regions: regions as usize,
            registered: words[5],
            reads: (small >> 8) as u16,
        };
        Device { limits, guid: words[7] }
    }
}
