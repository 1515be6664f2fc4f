//! How long holes are waited for.

use lro::Nanos;

use super::{Piece, World};
use crate::naive::Tcp;
use crate::rules::{is_before, kinds};

/// How long holes are waited for: what the one that is watched tells.
#[derive(Default)]
pub(super) struct Holes {
    wait: Nanos,
    watched: Option<Watched>,
    /// Segments that are still to go singly, and where the hole ends for which they do.
    singles: usize,
    singles_for: u32,
    pub(super) without_sack: bool,
}

struct Watched {
    hole: std::ops::Range<u32>,
    since: Nanos,
    value: Option<u32>,
    id: u16,
}

impl Holes {
    pub(super) fn hears_syn(&mut self, syn: &Tcp) {
        self.without_sack = !kinds(syn.options()).is_some_and(|kinds| kinds.contains(&4));
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

    /// Does the piece bring the last byte of the hole?
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
        match by_clock.or(by_id) {
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
