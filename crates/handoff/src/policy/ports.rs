//! A set of ports.

use alloc::vec::Vec;
use core::fmt;

/// Most ranges of ports in a policy.
pub const PORT_RANGES_MAX: usize = 64;

/// A set of ports, which is not empty: ranges, sorted and apart.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ports(Vec<(u16, u16)>);

impl Ports {
    /// The ports of all ranges from the first number to the second. `None` if there is no range, one is turned
    /// round, or there are more than [`PORT_RANGES_MAX`].
    pub fn new(ranges: &[(u16, u16)]) -> Option<Ports> {
        let bad = ranges.iter().any(|(first, last)| first > last);
        if bad || ranges.is_empty() || ranges.len() > PORT_RANGES_MAX {
            return None;
        }
        let mut sorted = ranges.to_vec();
        sorted.sort_unstable();
        let mut apart: Vec<(u16, u16)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match apart.last_mut() {
                // They meet or overlap.
                Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = last.max(*end),
                _ => apart.push((first, last)),
            }
        }
        Some(Ports(apart))
    }

    /// Whether the port is one of them.
    pub fn has(&self, port: u16) -> bool {
        let at = self.0.partition_point(|(_, last)| *last < port);
        self.0.get(at).is_some_and(|(first, _)| *first <= port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}
