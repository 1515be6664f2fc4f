//! Records as words.

use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use tcp::State;
use wire::Seq;

use super::ReadError;
use crate::{Cid, Epoch};

/// Words of [`Agreed`], the last of which is a sum.
pub const AGREED_WORDS: usize = 12;
/// Words of [`Moving`], the last of which is a sum: one cache line.
pub const MOVING_WORDS: usize = 8;

/// Version of the format of records.
pub const RECORD_VERSION: u8 = 3;

/// What does not change while the NIC has the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// Its identifier.
    pub cid: Cid,
    /// Its epoch, which is the NIC's.
    pub epoch: Epoch,
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Initial send sequence number.
    pub iss: Seq,
    /// Initial receive sequence number.
    pub irs: Seq,
    /// MSS that the peer announced, in bytes.
    pub peer_mss: u16,
    /// MSS that was announced to the peer, in bytes.
    pub our_mss: u16,
    /// Shifts of the peer's window and of ours, if scaling was agreed to.
    pub window_scale: Option<(u8, u8)>,
    /// Selective acknowledgments were agreed to.
    pub sack: bool,
    /// Timestamps were agreed to.
    pub timestamps: bool,
    /// Congestion notification was agreed to.
    pub ecn: bool,
    /// What was added to milliseconds of CLOCK_MONOTONIC to give a timestamp of ours (RFC 7323 section 5.4) at the handoff;
    /// [`Moving::ts_ahead`] is added to it.
    pub ts_offset: u32,
}

/// What changes. All sequence numbers are of the instant of the commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moving {
    /// State. It says which FINs there are: ours in FIN-WAIT-1, FIN-WAIT-2, CLOSING and LAST-ACK, behind all bytes of
    /// the send ring; the peer's in CLOSE-WAIT, CLOSING and LAST-ACK, just before `rcv_nxt`.
    pub state: State,
    /// Payload bytes of a full segment, options taken off.
    pub mss: u16,
    /// MTU of the path in bytes.
    pub path_mtu: u16,
    /// First sequence number that is not acknowledged.
    pub snd_una: Seq,
    /// Next sequence number to be sent for the first time.
    pub snd_nxt: Seq,
    /// The peer's window in bytes, from `snd_una` on.
    pub snd_wnd: u32,
    /// Largest window that the peer offered, in bytes.
    pub max_wnd: u32,
    /// Sequence number of the last window update.
    pub snd_wl1: Seq,
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// Acknowledgment number of the last segment sent.
    pub rcv_wup: Seq,
    /// Right edge of the window as last offered.
    pub rcv_edge: Seq,
    /// The last timestamp to be echoed, 0 if none is known.
    pub ts_recent: u32,
    /// By so many milliseconds the clock of the timestamps was put ahead since the handoff ([`tcp::Standing::ts_ahead`]).
    pub ts_ahead: u32,
    /// What the application has closed, which the state need not say yet.
    pub closing: Closing,
}

/// What the application has closed of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Closing {
    /// Nothing.
    #[default]
    Open,
    /// Its sending end: a FIN follows what it has written.
    Shut,
    /// Both: it has no descriptor of the connection any more.
    Closed,
}

impl Closing {
    const fn number(self) -> u32 {
        match self {
            Closing::Open => 0,
            Closing::Shut => 1,
            Closing::Closed => 2,
        }
    }

    const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Closing::Open),
            1 => Some(Closing::Shut),
            2 => Some(Closing::Closed),
            _ => None,
        }
    }
}

/// A sum that is never 0 and tells words of which some are another record's from words of one. Each step is a
/// bijection of the sum so far and of the word, so that no single word can differ unnoticed; what several words
/// make is as good as random.
pub fn mirror_sum(words: &[u64]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |sum: u64, word: &u64| {
        let mixed = (sum ^ word).wrapping_mul(ODD);
        mixed ^ (mixed >> 32)
    };
    words.iter().fold(ODD, step).max(1)
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | (u64::from(high) << 32)
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The words before the sum, if that is theirs.
fn checked<const N: usize>(words: &[u64]) -> Option<[u64; N]> {
    let (last, rest) = words.split_last()?;
    let rest = rest.try_into().ok()?;
    (*last == mirror_sum(words.get(..N)?)).then_some(rest)
}

const IPV6: u8 = 1;
const SACK: u8 = 2;
const TIMESTAMPS: u8 = 4;
const ECN: u8 = 8;
const SCALED: u8 = 16;

/// Address, flow information and scope; an IPv4 address in mapped form.
fn address_words(address: &SocketAddr) -> ([u64; 2], u64) {
    let (ip, more) = match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), pair(v6.flowinfo(), v6.scope_id())),
    };
    let bits = ip.to_bits();
    ([bits as u64, (bits >> 64) as u64], more)
}

fn address(words: [u64; 2], more: u64, port: u16, ipv6: bool) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from_bits(u128::from(words[0]) | (u128::from(words[1]) << 64));
    if ipv6 {
        return Some(SocketAddrV6::new(ip, port, low(more), high(more)).into());
    }
    // Nothing else is written for IPv4.
    (more == 0).then_some(())?;
    ip.to_ipv4_mapped().map(|ip| SocketAddr::new(IpAddr::V4(ip), port))
}

impl Agreed {
    fn flags(&self) -> u8 {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        flag(self.local.is_ipv6(), IPV6)
            | flag(self.sack, SACK)
            | flag(self.timestamps, TIMESTAMPS)
            | flag(self.ecn, ECN)
            | flag(self.window_scale.is_some(), SCALED)
    }

    /// As words. Both addresses must be of one family; of others this makes words that are refused.
    pub fn words(&self) -> [u64; AGREED_WORDS] {
        let (local, local_more) = address_words(&self.local);
        let (remote, remote_more) = address_words(&self.remote);
        let (peer, ours) = self.window_scale.unwrap_or_default();
        let ports = (u32::from(self.local.port()) << 16) | u32::from(self.remote.port());
        let mss = (u32::from(self.peer_mss) << 16) | u32::from(self.our_mss);
        let kind = u32::from_le_bytes([RECORD_VERSION, self.flags(), peer, ours]);
        let mut words = [
            pair(self.cid.0, self.epoch.0),
            pair(kind, ports),
            local[0],
            local[1],
            remote[0],
            remote[1],
            local_more,
            remote_more,
            pair(self.iss.0, self.irs.0),
            pair(mss, self.ts_offset),
            0,
            0,
        ];
        words[AGREED_WORDS - 1] = mirror_sum(&words[..AGREED_WORDS - 1]);
        words
    }

    pub(super) fn from_words(words: &[u64]) -> Result<Agreed, ReadError> {
        let words = checked::<{ AGREED_WORDS - 1 }>(words).ok_or(ReadError::Nothing)?;
        Self::from_checked(&words).ok_or(ReadError::Value)
    }

    fn from_checked(words: &[u64; AGREED_WORDS - 1]) -> Option<Agreed> {
        let [name, ends, l0, l1, r0, r1, local_more, remote_more, initial, sizes, reserved] =
            *words;
        let [version, flags, peer, ours] = low(ends).to_le_bytes();
        let known = flags & !(IPV6 | SACK | TIMESTAMPS | ECN | SCALED) == 0;
        let scaled = flags & SCALED != 0 || (peer, ours) == (0, 0);
        let epoch = Epoch(high(name));
        (version == RECORD_VERSION && known && scaled && reserved == 0 && epoch.is_nic())
            .then_some(())?;
        let ipv6 = flags & IPV6 != 0;
        let ports = high(ends);
        Some(Agreed {
            cid: Cid(low(name)),
            epoch,
            local: address([l0, l1], local_more, (ports >> 16) as u16, ipv6)?,
            remote: address([r0, r1], remote_more, ports as u16, ipv6)?,
            iss: Seq(low(initial)),
            irs: Seq(high(initial)),
            peer_mss: (low(sizes) >> 16) as u16,
            our_mss: low(sizes) as u16,
            window_scale: (flags & SCALED != 0).then_some((peer, ours)),
            sack: flags & SACK != 0,
            timestamps: flags & TIMESTAMPS != 0,
            ecn: flags & ECN != 0,
            ts_offset: high(sizes),
        })
    }
}

impl Moving {
    /// Whether nothing that was promised is taken back: what was sent and acknowledged, and the right edge.
    pub(super) fn follows(&self, last: &Moving) -> bool {
        let moved = [
            (last.snd_una, self.snd_una),
            (last.snd_nxt, self.snd_nxt),
            (last.rcv_nxt, self.rcv_nxt),
            (last.rcv_wup, self.rcv_wup),
            (last.rcv_edge, self.rcv_edge),
        ];
        moved.iter().all(|(last, now)| !now.before(*last))
    }

    /// As words: the commit of this number.
    pub fn words(&self, number: u32, epoch: Epoch) -> [u64; MOVING_WORDS] {
        let state = u32::from(self.state as u8) | (self.closing.number() << 8);
        let kind = (u32::from(self.path_mtu) << 16) | state;
        let tag = (u32::from(self.mss) << 16) | u32::from(epoch.tag());
        let mut words = [
            pair(number, tag),
            pair(self.snd_una.0, self.snd_nxt.0),
            pair(self.snd_wnd, self.max_wnd),
            pair(self.snd_wl1.0, kind),
            pair(self.rcv_nxt.0, self.rcv_wup.0),
            pair(self.rcv_edge.0, self.ts_recent),
            pair(self.ts_ahead, 0),
            0,
        ];
        words[MOVING_WORDS - 1] = mirror_sum(&words[..MOVING_WORDS - 1]);
        words
    }

    /// The number of a commit that was finished in this epoch, and what it says; `None` there if its state is
    /// none.
    pub(super) fn from_words(words: &[u64], epoch: Epoch) -> Option<(u32, Option<Moving>)> {
        let words = checked::<{ MOVING_WORDS - 1 }>(words)?;
        let [name, sent, window, update, received, edge, stamps] = words;
        let (tag, kind) = (high(name), high(update));
        (tag as u16 == epoch.tag()).then_some(())?;
        let state = State::from_number(kind as u8);
        let both =
            state.zip(Closing::from_number((kind >> 8) & 0xff)).filter(|_| high(stamps) == 0);
        let moving = both.map(|(state, closing)| Moving {
            state,
            closing,
            mss: (tag >> 16) as u16,
            path_mtu: (kind >> 16) as u16,
            snd_una: Seq(low(sent)),
            snd_nxt: Seq(high(sent)),
            snd_wnd: low(window),
            max_wnd: high(window),
            snd_wl1: Seq(low(update)),
            rcv_nxt: Seq(low(received)),
            rcv_wup: Seq(high(received)),
            rcv_edge: Seq(low(edge)),
            ts_recent: high(edge),
            ts_ahead: low(stamps),
        });
        Some((low(name), moving))
    }
}
