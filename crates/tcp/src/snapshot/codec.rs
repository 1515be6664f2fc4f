//! A snapshot as bytes: a head of [`MAGIC`], [`VERSION`] and the length of what follows, and then all
//! fields in the order in which they are declared, little-endian. A change that adds a field names it in its
//! record below, without which nothing compiles, and raises the version.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use wire::Seq;

use super::{
    Agreed, Control, Flight, Moment, Receiving, RecoveryState, RoundTrip, Sending, Snapshot,
    SnapshotError, SocketOptions, Timers,
};
use crate::congestion::PRIVATE_WORDS;
use crate::options::Block;
use crate::{Algorithm, Keepalive, State};

/// What a snapshot begins with.
pub const MAGIC: [u8; 4] = *b"wtcp";

/// Version of the format.
pub const VERSION: u16 = 4;

/// Bytes before the fields: magic, version and length.
const HEAD: usize = 10;

impl Snapshot {
    /// As bytes. A snapshot whose queues are longer than [`QUEUE_MAX`](super::QUEUE_MAX), of which
    /// there are none that an engine made, gives bytes that [`decode`](Self::decode) refuses.
    pub fn encode(&self) -> Vec<u8> {
        let queued = self.send.queue.len() + self.receive.queue.len();
        let out_of_order: usize =
            self.receive.out_of_order.iter().map(|(_, bytes)| bytes.len() + 12).sum();
        let mut out = Vec::with_capacity(512 + queued + out_of_order + 16 * self.send.flight.len());
        out.extend_from_slice(&MAGIC);
        VERSION.put(&mut out);
        0_u32.put(&mut out);
        self.put(&mut out);
        let len = u32::try_from(out.len() - HEAD).unwrap_or(u32::MAX);
        out[HEAD - 4..HEAD].copy_from_slice(&len.to_le_bytes());
        out
    }

    /// From bytes that [`encode`](Self::encode) gave.
    ///
    /// # Errors
    /// If no connection could have given them: what this returns is [valid](Self::validate).
    pub fn decode(bytes: &[u8]) -> Result<Snapshot, SnapshotError> {
        let body = bytes.strip_prefix(&MAGIC).ok_or(SnapshotError::NotASnapshot)?;
        let mut from = Reader(body);
        let version = u16::take(&mut from)?;
        if version != VERSION {
            return Err(SnapshotError::Version(version));
        }
        if usize::try_from(u32::take(&mut from)?) != Ok(from.0.len()) {
            return Err(SnapshotError::Length);
        }
        let snapshot = Snapshot::take(&mut from)?;
        if !from.0.is_empty() {
            return Err(SnapshotError::Length);
        }
        snapshot.validate()?;
        Ok(snapshot)
    }
}

/// The bytes that were not read yet.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], SnapshotError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(SnapshotError::Length)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Length)?;
        self.0 = rest;
        Ok(*array)
    }
}

/// What is written as bytes and read from them.
trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError>;
}

/// A struct whose fields stand one behind the other.
macro_rules! record {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($field),* } = self;
                $($field.put(out);)*
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
                Ok(Self { $($field: Field::take(from)?),* })
            }
        }
    };
}

record!(Snapshot {
    local,
    remote,
    state,
    agreed,
    mss,
    path_mtu,
    ts_now,
    send,
    receive,
    round_trip,
    control,
    timers,
    socket_options,
    moment,
});
record!(Agreed { iss, irs, peer_mss, our_mss, window_scale, sack, timestamps, ecn });
record!(Sending {
    una,
    nxt,
    wnd,
    max_wnd,
    bytes_acked,
    wl1,
    wl2,
    urgent,
    small,
    queue,
    fin,
    flight,
});
record!(Flight { len, size, ago, sacked, lost, retransmitted, probe });
record!(Receiving {
    nxt,
    acked,
    edge,
    buffer,
    queue,
    out_of_order,
    recent,
    fin,
    urgent,
    ts_recent,
    mss,
    ecn_echo,
});
record!(RoundTrip { srtt, rttvar, min, backoff });
record!(Control {
    algorithm,
    cwnd,
    ssthresh,
    private,
    recovery,
    recovery_point,
    duplicates,
    reordering,
    reorder_window,
});
record!(Timers { retransmit, tail_probe, reorder, persist, delayed_ack, keepalive, time_wait });
record!(Moment {
    quick,
    interactive,
    unanswered,
    round,
    cwnd_limited,
    cwr_due,
    syn_due,
    probe_due,
    push_small,
    duplicate,
    retransmits,
    retransmitted_ago,
    keepalive_probes,
    received_ago,
    sent_ago,
    challenged_ago,
    stalled_ago,
    min_ago,
    tuned,
    mtu_high,
    mtu_probe,
    mtu_tried_ago,
    prior,
    undo,
    reduced,
    undo_from,
    undo_bytes,
    undo_ts,
    prr,
    prr_flight,
    frto,
    frto_new,
    rack_ago,
    rack_end,
    rack_rtt,
    fack,
    reorder_persist,
    duplicate_round,
    tlp_end,
    tlp_retransmitted,
    tail_probe,
    urgent_read,
    dup_acks,
    first_timestamp,
});
record!(SocketOptions { no_delay, cork, urgent_inline, keepalive, user_timeout });
record!(Keepalive { idle, interval, probes });
record!(Block { start, end });

macro_rules! number {
    ($($type:ty),*) => {
        $(impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
                from.array().map(Self::from_le_bytes)
            }
        })*
    };
}

number!(u8, u16, u32, u64);

impl Field for Seq {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        u32::take(from).map(Seq)
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(SnapshotError::Encoding),
        }
    }
}

impl Field for [u64; PRIVATE_WORDS] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|word| word.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        let mut words = [0; PRIVATE_WORDS];
        for word in &mut words {
            *word = u64::take(from)?;
        }
        Ok(words)
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        if bool::take(from)? { T::take(from).map(Some) } else { Ok(None) }
    }
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        count(self.len()).put(out);
        out.extend_from_slice(self);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        let len = u32::take(from)?;
        from.bytes(len as usize).map(<[u8]>::to_vec)
    }
}

/// What there are lists of.
trait Item: Field {}

impl Item for Flight {}
impl Item for Block {}
impl Item for (Block, Vec<u8>) {}

impl<T: Item> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        count(self.len()).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        // The count is not trusted: memory is taken for what has been read, no more.
        let mut items = Vec::new();
        for _ in 0..u32::take(from)? {
            items.push(T::take(from)?);
        }
        Ok(items)
    }
}

/// A length as it is written. One of more than 32 bits is written as another, with which `decode` fails.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

impl Field for SocketAddr {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SocketAddr::V4(address) => {
                4_u8.put(out);
                out.extend_from_slice(&address.ip().octets());
            }
            SocketAddr::V6(address) => {
                6_u8.put(out);
                out.extend_from_slice(&address.ip().octets());
                address.flowinfo().put(out);
                address.scope_id().put(out);
            }
        }
        self.port().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        match u8::take(from)? {
            4 => {
                let address = Ipv4Addr::from(from.array::<4>()?);
                Ok(SocketAddrV4::new(address, u16::take(from)?).into())
            }
            6 => {
                let address = Ipv6Addr::from(from.array::<16>()?);
                let (flow, scope) = (u32::take(from)?, u32::take(from)?);
                Ok(SocketAddrV6::new(address, u16::take(from)?, flow, scope).into())
            }
            _ => Err(SnapshotError::Encoding),
        }
    }
}

impl Field for State {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        State::from_number(u8::take(from)?).ok_or(SnapshotError::Encoding)
    }
}

impl Field for Algorithm {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Algorithm::Cubic => 0_u8.put(out),
            Algorithm::NewReno => 1_u8.put(out),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        match u8::take(from)? {
            0 => Ok(Algorithm::Cubic),
            1 => Ok(Algorithm::NewReno),
            _ => Err(SnapshotError::Encoding),
        }
    }
}

impl Field for RecoveryState {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<Self, SnapshotError> {
        use RecoveryState::*;
        let number = usize::from(u8::take(from)?);
        [Open, Recovery, Loss, Marked].get(number).copied().ok_or(SnapshotError::Encoding)
    }
}
