//! What outsiders cannot guess: initial sequence numbers (RFC 6528), where timestamps begin (RFC 7323
//! section 7.1), and SYN cookies (RFC 4987 section 3.6).

use core::hash::Hasher;

use siphasher::sip::SipHasher24;
use wire::{FlowHash, Seq, Timestamps};

use crate::Nanos;
use crate::connection::Key;
use crate::options::Options;

/// A SYN cookie is valid in the period in which it is made, and in the next one.
const COOKIE_PERIOD: Nanos = 64_000_000_000;
/// Values of MSS that a cookie can hold: the largest that is not above the SYN's counts.
const COOKIE_MSS: [u16; 8] = [88, 536, 1024, 1220, 1300, 1400, 1440, 1460];
/// Bits of a timestamp in which a cookie carries what the SYN offered.
const COOKIE_BITS: u32 = 6;
const NO_SCALE: u32 = 0xf;

/// The key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secret([u8; 16]);

impl Secret {
    pub(super) fn new(key: [u8; 16]) -> Self {
        Secret(key)
    }

    fn hash(&self, key: &Key, more: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        for word in key.words().iter().chain(more) {
            hasher.write_u64(*word);
        }
        hasher.finish()
    }

    /// The hash of the table. Its keys are hashes of a single byte, shorter than all other inputs, so that
    /// they differ from all other hashes.
    pub(super) fn flow_hash(&self) -> FlowHash {
        FlowHash::new(core::array::from_fn(|which| {
            let mut hasher = SipHasher24::new_with_key(&self.0);
            hasher.write_u8(which as u8);
            hasher.finish()
        }))
    }

    /// RFC 6528 section 3: a clock of 4 us, and an offset that is secret.
    pub(super) fn isn(&self, key: &Key, now: Nanos) -> Seq {
        Seq((self.hash(key, &[1]) as u32).wrapping_add((now / 4000) as u32))
    }

    /// What is added to the timestamp clock, one for each pair of ends.
    pub(super) fn ts_offset(&self, key: &Key) -> u32 {
        self.hash(key, &[2]) as u32
    }

    /// The sequence number of a SYN-ACK that carries all that is to be remembered of the SYN.
    pub(super) fn cookie(&self, key: &Key, irs: Seq, options: &Options, now: Nanos) -> Seq {
        let announced = options.mss.unwrap_or(536);
        let index = COOKIE_MSS.iter().rposition(|&mss| mss <= announced).unwrap_or(0) as u32;
        let period = (now / COOKIE_PERIOD) as u8;
        let hash = self.cookie_hash(key, irs, period);
        Seq(u32::from(period) << 24 | hash.wrapping_add(index) & 0x00ff_ffff)
    }

    fn cookie_hash(&self, key: &Key, irs: Seq, period: u8) -> u32 {
        self.hash(key, &[3, u64::from(irs.0), u64::from(period)]) as u32
    }

    /// The MSS that the cookie in an acknowledgment stands for, if it is one of ours and not too old.
    pub(super) fn cookie_mss(&self, key: &Key, irs: Seq, cookie: Seq, now: Nanos) -> Option<u16> {
        let period = (cookie.0 >> 24) as u8;
        let current = (now / COOKIE_PERIOD) as u8;
        if current.wrapping_sub(period) > 1 {
            return None;
        }
        let hash = self.cookie_hash(key, irs, period);
        let index = cookie.0.wrapping_sub(hash) & 0x00ff_ffff;
        COOKIE_MSS.get(index as usize).copied()
    }
}

/// What a SYN offered, in the low bits of the timestamp that answers it. The peer echoes it.
pub(super) fn stamp_cookie(clock: u32, scale: Option<u8>, sack: bool) -> u32 {
    let scale = scale.map_or(NO_SCALE, |shift| u32::from(shift.min(14)));
    let bits = scale | u32::from(sack) << 4;
    let stamp = clock >> COOKIE_BITS << COOKIE_BITS | bits;
    // A stamp from the future would make the next ones old.
    if stamp.wrapping_sub(clock) as i32 > 0 { stamp.wrapping_sub(1 << COOKIE_BITS) } else { stamp }
}

/// The options that [`stamp_cookie`] put into the echoed timestamp.
pub(super) fn unstamp_cookie(mss: u16, timestamps: Option<Timestamps>) -> Options {
    let Some(timestamps) = timestamps else {
        return Options { mss: Some(mss), ..Options::default() };
    };
    let bits = timestamps.echo.0;
    let scale = bits & 0xf;
    Options {
        mss: Some(mss),
        window_scale: (scale != NO_SCALE).then_some(scale as u8),
        sack_permitted: bits >> 4 & 1 == 1,
        timestamps: Some(timestamps),
        ..Options::default()
    }
}
