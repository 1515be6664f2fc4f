//! A set of ports.

use core::fmt;

/// Most ranges of ports in a policy.
pub const PORT_RANGES_MAX: usize = 64;

/// A set of ports, which is not empty: ranges, sorted and apart. It takes no memory but its own, so that a program's read
/// and write can come by a new one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ports {
    /// Zeros behind the last.
    ranges: [(u16, u16); PORT_RANGES_MAX],
    count: u8,
}

impl Ports {
    /// The ports of all ranges from the first number to the second. `None` if there is no range, one is turned
    /// round, or there are more than [`PORT_RANGES_MAX`].
    pub fn new(ranges: &[(u16, u16)]) -> Option<Ports> {
        let bad = ranges.iter().any(|(first, last)| first > last);
        if bad || ranges.is_empty() || ranges.len() > PORT_RANGES_MAX {
            return None;
        }
        let mut sorted = [(0, 0); PORT_RANGES_MAX];
        let sorted = &mut sorted[..ranges.len()];
        sorted.copy_from_slice(ranges);
        sorted.sort_unstable();
        let mut ports = Ports { ranges: [(0, 0); PORT_RANGES_MAX], count: 0 };
        for (first, last) in sorted.iter().copied() {
            match ports.ranges[..usize::from(ports.count)].last_mut() {
                // They meet or overlap.
                Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => *end = last.max(*end),
                _ => {
                    ports.ranges[usize::from(ports.count)] = (first, last);
                    ports.count += 1;
                }
            }
        }
        Some(ports)
    }

    fn ranges(&self) -> &[(u16, u16)] {
        &self.ranges[..usize::from(self.count)]
    }

    /// Whether the port is one of them.
    pub fn has(&self, port: u16) -> bool {
        let at = self.ranges().partition_point(|(_, last)| *last < port);
        self.ranges().get(at).is_some_and(|(first, _)| *first <= port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges().iter().enumerate() {
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
