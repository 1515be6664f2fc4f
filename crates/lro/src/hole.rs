//! How long a hole is waited for.
//!
//! What is missing is lost, or late. If it is lost, each moment that the host does not see the hole
//! delays the duplicate ACKs by which its sender learns of it; if it is late, the host is better off
//! not to see it. Which of the two a path does is learnt for each flow, from what becomes of holes
//! that were given up: at first no hole is waited for. One that was given up is watched, for as long
//! as one may be waited for at most. If the original comes by then, waiting a quarter longer than
//! that would have filled the hole, and is what is waited from now on, or longer. If it does not
//! come, waiting was of no use, and an eighth less is waited.
//!
//! One hole is watched at a time, whatever others there are meanwhile: to watch the latest would be
//! to learn of those only that are soon filled.
//!
//! An original was sent before what lies behind its hole, and a retransmission after. The timestamps
//! tell: an older TSval is an original's and a newer one a retransmission's. One that is equal tells
//! nothing by itself, as a sender's clock ticks once in a millisecond or more seldom (RFC 7323 section
//! 5.4), and many a round trip is shorter. Then, and where a connection has no timestamps, the IPv4 IDs
//! tell, if the sender counts them: that of an original lies below that of what is behind the hole and
//! near it, that of a retransmission above. IDs that are 0, as some senders have them with DF (RFC 6864
//! section 4.1), or all the same tell nothing. What comes with the same look at the wire as what lies
//! behind its hole is an original even so, as no duplicate ACK can have reached its sender; it teaches
//! the shortest wait there is. Where nothing tells (IPv6 within a tick, or without timestamps, in a later
//! look) nothing is learnt.
//!
//! What goes on over a hole whose wait is over goes singly at first, as a host makes one duplicate ACK
//! of a packet, where it owes one for each segment (RFC 5681 section 4.2). With SACK three are enough:
//! the sender goes by the blocks (RFC 6675 section 4), and Linux sends no more than three at once either
//! (`__tcp_ack_snd_check`). Without it a sender learns of what has arrived by counting duplicate ACKs
//! (RFC 6582 section 3.2), so that each segment goes singly for as long as most recoveries take, or
//! until the hole is filled: what comes then continues the host's data and draws no duplicate. Whether a
//! connection has SACK its SYNs tell; of one that was picked up later it is taken for granted.
//!
//! What goes on over a hole that is still waited for, as something else may not overtake it, goes as one.
//! Its hole is late as far as is known, and three duplicate ACKs would have the sender send it again.

use wire::Seq;

use crate::filter::{Carried, Segment};
use crate::syn::PendingSyn;
use crate::{Counters, Nanos};

/// A wait that is worth it is no shorter: what comes with one look at the wire has one time.
const LEAST: Nanos = 20_000;

/// Duplicate ACKs that make a sender send again (RFC 5681 section 3.2), one for each packet.
const SINGLES: u8 = 3;

/// Segments that go singly where there is no SACK: about a window on a path that loses segments.
const SINGLES_WITHOUT_SACK: u8 = 64;

/// Segments sent since an original, at most, for its ID to be told from any other.
const ID_WINDOW: u16 = 256;

/// What a flow has learnt of its holes, and the one that is watched. Packed, as a descriptor has not a
/// word to spare.
#[derive(Clone, Copy, Debug, Default)]
#[repr(Rust, packed(4))]
pub(crate) struct Holes {
    /// When what lies behind it came first.
    since: Nanos,
    /// How long holes are waited for, as far as that is allowed.
    wait: u32,
    start: Seq,
    end: Seq,
    /// TSval of what lies behind it, and its IPv4 ID.
    value: Seq,
    id: u16,
    watch: Watch,
    /// Where the hole ends over which segments go singly.
    singles_for: Seq,
    /// Segments behind it that are still to do so.
    singles: u8,
    /// One of the two ends does without SACK.
    pub(crate) without_sack: bool,
    /// All this is of a connection that is over, perhaps.
    pub(crate) syn: PendingSyn,
}

/// Whether a hole is watched, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Watch {
    #[default]
    None,
    /// What lies behind it has timestamps.
    ByTimestamps,
    /// It has none.
    ById,
}

/// When what fills a hole was sent, seen from what lies behind it.
enum Sent {
    /// It is an original that came late.
    Before,
    /// It is a retransmission.
    After,
}

/// What the TSval says of that.
fn order(behind: Seq, fills: Seq) -> Option<Sent> {
    match behind.distance(fills) {
        0 => None,
        ahead if ahead > 0 => Some(Sent::Before),
        _ => Some(Sent::After),
    }
}

/// What the IPv4 ID says of it.
fn id_order(behind: u16, fills: u16) -> Option<Sent> {
    let below = behind.wrapping_sub(fills);
    match below {
        _ if behind == 0 || fills == 0 || below == 0 => None,
        1..=ID_WINDOW => Some(Sent::Before),
        0x8000.. => Some(Sent::After),
        _ => None,
    }
}

impl Holes {
    /// How long to wait for a hole that shows now, if `most` is allowed.
    #[inline(always)]
    pub(crate) fn wait(&mut self, most: Nanos, now: Nanos, counters: &mut Counters) -> Nanos {
        self.look(most, now, counters);
        most.min(self.wait.into())
    }

    /// The hole from `start` to `end` is given up. There has been something behind it `since` then, of
    /// which the first carried this.
    pub(crate) fn give_up(
        &mut self,
        (start, end): (Seq, Seq),
        (since, behind): (Nanos, &Carried),
        most: Nanos,
        now: Nanos,
        counters: &mut Counters,
    ) {
        self.look(most, now, counters);
        if self.watch != Watch::None {
            return;
        }
        self.watch = match behind.timestamps {
            Some(timestamps) => {
                self.value = timestamps.value;
                Watch::ByTimestamps
            }
            None => Watch::ById,
        };
        (self.start, self.end, self.since, self.id) = (start, end, since, behind.id);
    }

    /// Data at `seq` comes that lies before what was handed on: if it fills the hole that is watched,
    /// it tells whether that was late or lost.
    pub(crate) fn fill(
        &mut self,
        segment: &Segment,
        most: Nanos,
        now: Nanos,
        counters: &mut Counters,
    ) {
        let Segment { seq, len, carried, .. } = segment;
        self.end_singles(*seq, *len);
        self.look(most, now, counters);
        if self.watch == Watch::None || *seq - self.start >= self.end - self.start {
            return;
        }
        let by_timestamps = match (self.watch, carried.timestamps) {
            (Watch::ByTimestamps, Some(timestamps)) => order(self.value, timestamps.value),
            _ => None,
        };
        let at_once = (now == self.since).then_some(Sent::Before);
        match by_timestamps.or_else(|| id_order(self.id, carried.id)).or(at_once) {
            Some(Sent::Before) => {
                let late = now.saturating_sub(self.since);
                let wait = (late + late / 4).clamp(LEAST.min(most), most);
                self.wait = self.wait.max(u32::try_from(wait).unwrap_or(u32::MAX));
                self.watch = Watch::None;
                counters.holes_late += 1;
            }
            Some(Sent::After) => self.lost(counters),
            None => self.watch = Watch::None,
        }
    }

    /// The hole that is watched is lost when the time is over in which its original may come.
    #[inline(always)]
    fn look(&mut self, most: Nanos, now: Nanos, counters: &mut Counters) {
        if self.watch != Watch::None && now.saturating_sub(self.since) > most {
            self.lost(counters);
        }
    }

    /// Waiting for it was of no use.
    #[inline(never)]
    fn lost(&mut self, counters: &mut Counters) {
        counters.holes_lost += 1;
        self.watch = Watch::None;
        self.wait -= self.wait.div_ceil(8);
    }

    /// What goes on over the hole that ends at `end`, and was waited for long enough, begins with some
    /// segments by themselves.
    pub(crate) fn begin_singles(&mut self, end: Seq) {
        self.singles_for = end;
        self.singles = if self.without_sack { SINGLES_WITHOUT_SACK } else { SINGLES };
    }

    /// Whether the next segment, of `len` bytes at `seq`, is to go by itself; it counts as gone.
    #[inline]
    pub(crate) fn take_single(&mut self, seq: Seq, len: u32, counters: &mut Counters) -> bool {
        if self.singles == 0 {
            return false;
        }
        self.end_singles(seq, len);
        let any = self.singles > 0;
        self.singles = self.singles.saturating_sub(1);
        counters.singles += u64::from(any);
        any
    }

    /// So many bytes come at `seq`. With those in front of its end a hole is filled: what comes now
    /// is not out of order any more.
    fn end_singles(&mut self, seq: Seq, len: u32) {
        if (self.singles_for - seq).wrapping_sub(1) < len {
            self.singles = 0;
        }
    }
}
