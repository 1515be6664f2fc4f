//! How long holes are waited for.

use lro::Nanos;

use super::{Connection, FAR, Piece, World, distance};
use crate::laws::naive::{ACK, Tcp};
use crate::laws::rules::{is_before, kinds};

/// How long holes are waited for: what the one that is watched tells.
#[derive(Default)]
pub(super) struct Holes {
    wait: Nanos,
    watched: Option<Watched>,
    /// Segments that are still to go singly, and where the hole ends for which they do.
    singles: usize,
    singles_for: u32,
    pub(super) without_sack: bool,
    pub(super) syn: Option<Syn>,
}

/// A SYN that came after data: of the wire's, where its data begins and whether it does without SACK;
/// answered by the host's.
pub(super) enum Syn {
    OfHost,
    OfWire { data: u32, without_sack: bool, answered: bool },
}

fn without_sack(syn: &Tcp) -> bool {
    !kinds(syn.options()).is_some_and(|kinds| kinds.contains(&4))
}

struct Watched {
    hole: std::ops::Range<u32>,
    since: Nanos,
    value: Option<u32>,
    id: u16,
}

impl Holes {
    /// Of a connection of which nothing else is known.
    pub(super) fn of(without_sack: bool) -> Holes {
        Holes { without_sack, ..Holes::default() }
    }

    /// The host's; `true` if there has been data.
    pub(super) fn hears_host(&mut self, syn: &Tcp, in_use: bool) {
        let lacks = without_sack(syn);
        match &mut self.syn {
            _ if !in_use => self.without_sack = lacks,
            _ if !syn.has(ACK) => self.syn = Some(Syn::OfHost),
            Some(Syn::OfWire { data, without_sack, answered })
                if !*answered && data.wrapping_sub(syn.ack()) < 1 << 16 =>
            {
                (*without_sack, *answered) = (lacks, true);
            }
            _ => {}
        }
    }

    /// The wire's, whose connection has its first byte there. `true` if it begins now.
    pub(super) fn hears_wire(&mut self, syn: &Tcp, data: u32, in_use: bool) -> bool {
        let lacks = without_sack(syn);
        match self.syn {
            Some(Syn::OfWire { answered: true, .. }) => return false,
            None | Some(Syn::OfWire { .. }) if in_use => {
                self.syn = Some(Syn::OfWire { data, without_sack: lacks, answered: false });
                return false;
            }
            _ => *self = Holes::of(lacks),
        }
        true
    }

    pub(super) fn begin_singles(&mut self, end_of_hole: u32) {
        self.singles = if self.without_sack { 64 } else { 3 };
        self.singles_for = end_of_hole;
    }

    pub(super) fn goes_singly(&mut self, piece: &Piece) -> bool {
        self.end_singles(piece);
        let goes = self.singles > 0;
        self.singles = self.singles.saturating_sub(1);
        goes
    }

    /// Whether the piece brings the last byte of the hole.
    fn end_singles(&mut self, piece: &Piece) {
        let last = self.singles_for.wrapping_sub(1);
        if !is_before(last, piece.seq()) && is_before(last, piece.end()) {
            self.singles = 0;
        }
    }

    fn most(world: &World) -> Nanos {
        world.config.hole_timeout.min(world.config.max_timeout)
    }

    fn expire(&mut self, world: &World) {
        if self.watched.as_ref().is_some_and(|w| world.now > w.since + Holes::most(world)) {
            self.watched = None;
            self.shorten();
        }
    }

    /// By an eighth, at least 1.
    fn shorten(&mut self) {
        self.wait = self.wait * 7 / 8;
    }

    pub(super) fn wait_for(&mut self, world: &World) -> Nanos {
        self.expire(world);
        self.wait.max(world.config.min_hole_timeout).min(Holes::most(world))
    }

    pub(super) fn watch(&mut self, frontier: u32, behind: &Piece, since: Nanos, world: &World) {
        self.expire(world);
        let value = behind.told.timestamps.map(|(value, _)| value);
        let (hole, id) = (frontier..behind.seq(), behind.packet.id().unwrap_or(0));
        self.watched.get_or_insert(Watched { hole, since, value, id });
    }

    pub(super) fn is_filled(&mut self, piece: &Piece, world: &World) {
        self.end_singles(piece);
        self.expire(world);
        let is_in = |watched: &mut Watched| {
            let (from, hole) = (piece.seq().wrapping_sub(watched.hole.start), &watched.hole);
            from < hole.end.wrapping_sub(hole.start)
        };
        let Some(watched) = self.watched.take_if(is_in) else { return };
        let by_clock = match (watched.value, piece.told.timestamps) {
            (Some(behind), Some((value, _))) if value != behind => Some(is_before(value, behind)),
            _ => None,
        };
        let counts = |id: u16| (1..=256).any(|n| id.wrapping_add(n) == watched.id);
        let by_id = match (watched.id, piece.packet.id().unwrap_or(0)) {
            (0, _) | (_, 0) => None,
            (_, id) if counts(id) => Some(true),
            (behind, id) if (1..=0x8000).any(|n: u16| behind.wrapping_add(n) == id) => Some(false),
            _ => None, // far below, or the same
        };
        let at_once = (world.now == watched.since).then_some(true);
        match by_clock.or(by_id).or(at_once) {
            Some(true) => {
                let late = world.now - watched.since;
                let wait = (late + late / 4).max(20_000).min(Holes::most(world));
                self.wait = self.wait.max(wait);
            }
            Some(false) => self.shorten(),
            None => {}
        }
    }
}

impl Connection {
    /// Whether a SYN that came after data is borne out by this.
    pub(super) fn may_begin_anew(&mut self, piece: &Piece) {
        let Some(Syn::OfWire { data, without_sack, answered }) = self.holes.syn else { return };
        let is_new =
            |(_, frontier)| distance(data, frontier) > 0 || distance(data, frontier) < -FAR;
        let true_if_unanswered =
            piece.seq() == data && !self.sent.is_known() && self.place.is_none_or(is_new);
        let is_true = match answered {
            true => i64::from(piece.seq().wrapping_sub(data)) < FAR,
            false => true_if_unanswered,
        };
        if is_true && self.held().is_none() {
            self.begins_at(data);
            self.holes = Holes::of(without_sack);
        }
    }
}
