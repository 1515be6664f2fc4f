//! Which CPU has what.

use super::{Case, Placement};
use crate::Error;
use crate::sink::io;

/// Two CPUs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpus {
    first: usize,
    last: usize,
}

/// The CPU of each part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Places {
    pub(super) client: usize,
    pub(super) client_device: usize,
    pub(super) server: usize,
    pub(super) server_device: usize,
    pub(super) degen: usize,
    /// Of a server whose computation is a thread of its own.
    pub(super) computation: usize,
}

impl Cpus {
    /// Those that this process may use, if there are two.
    pub(super) fn here() -> Result<Option<Cpus>, Error> {
        let all = sys::affinity::cpus().map_err(io("look for CPUs"))?;
        Ok(match all[..] {
            [first, .., last] => Some(Cpus { first, last }),
            _ => None,
        })
    }

    /// What is measured alone has the last one.
    pub(super) fn alone(self) -> usize {
        self.last
    }

    pub(super) fn places(self, case: Case, placement: Placement) -> Places {
        let Cpus { first, last } = self;
        let nodes = Places {
            client: first,
            client_device: first,
            server: last,
            server_device: last,
            degen: last,
            computation: last,
        };
        if placement == Placement::Nodes {
            return nodes;
        }
        let together = Places {
            client: first,
            client_device: first,
            server: first,
            server_device: first,
            degen: first,
            computation: last,
        };
        match case {
            Case::Overlap => Places { client: last, ..together },
            Case::Progress => Places { server: last, ..together },
            _ => together,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_computes_alone_shares_its_cpu_with_nothing() {
        let cpus = Cpus { first: 0, last: 1 };
        for (case, on_last) in [(Case::Overlap, 2), (Case::Progress, 2), (Case::Cpu, 1)] {
            let of = cpus.places(case, Placement::Alone);
            let all = [
                of.client,
                of.client_device,
                of.server,
                of.server_device,
                of.degen,
                of.computation,
            ];
            // The computation's own place is that of its program, but of the case cpu.
            assert_eq!(all.iter().filter(|cpu| **cpu == 1).count(), on_last, "{case:?}");
            assert_eq!([of.client_device, of.server_device, of.degen], [0; 3]);
        }
    }
}
