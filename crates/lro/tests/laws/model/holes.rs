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
    /// Segments that are still to go singly.
    pub(super) singles: usize,
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
        self.expire(world);
        let is_in = |watched: &mut Watched| {
            let (from, hole) = (piece.seq().wrapping_sub(watched.hole.start), &watched.hole);
            from < hole.end.wrapping_sub(hole.start)
        };
        let Some(watched) = self.watched.take_if(is_in) else { return };
        let original = match (watched.value, piece.told.timestamps) {
            (Some(behind), Some((value, _))) => value == behind || is_before(value, behind),
            _ => {
                let id = piece.packet.id().unwrap_or(0);
                (1..=256).any(|n| id.wrapping_add(n) == watched.id)
            }
        };
        if original {
            let late = world.now - watched.since;
            let wait = (late + late / 4).max(20_000).min(Holes::most(world));
            self.wait = self.wait.max(wait);
            self.singles = 0;
        } else {
            self.shorten();
        }
    }
}
