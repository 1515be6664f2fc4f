//! In which order the segments of a flow arrive.

use degen::Random;

/// Segments of each flow in a round: two blocks of 64, and nearly three aggregates of 64 KB.
pub(crate) const SEGMENTS: usize = 128;
/// Different orders of a case; a flow takes the next one each round.
pub(crate) const ORDERS: usize = 64;

/// A packet is displaced by at most so many places of its flow.
const FARTHEST: u64 = 32;

/// An order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// As sent.
    InOrder,
    /// The two of each pair change places.
    Swap,
    /// Each block of 64 backwards.
    Reversed64,
    /// One in 100 comes 1 to 32 places later.
    Displaced1,
    /// Ten in 100 come 1 to 32 places later.
    Displaced10,
    /// Thirty in 100 come 1 to 32 places later.
    Displaced30,
}

impl Case {
    /// All of them, as the figures list them.
    pub const ALL: [Case; 6] = [
        Case::InOrder,
        Case::Swap,
        Case::Reversed64,
        Case::Displaced1,
        Case::Displaced10,
        Case::Displaced30,
    ];

    /// The name in the figures' `case`.
    pub const fn name(self) -> &'static str {
        match self {
            Case::InOrder => "in_order",
            Case::Swap => "swap",
            Case::Reversed64 => "reversed64",
            Case::Displaced1 => "displaced1",
            Case::Displaced10 => "displaced10",
            Case::Displaced30 => "displaced30",
        }
    }

    /// [`ORDERS`] orders of arrival, one after the other: each has the number of every segment of
    /// a round once.
    pub(crate) fn orders(self) -> Vec<u16> {
        let mut random = Random::new(0x5eed);
        let all = 0..SEGMENTS as u16;
        (0..ORDERS)
            .flat_map(|_| match self {
                Case::InOrder => all.clone().collect(),
                Case::Swap => all.clone().map(|n| n ^ 1).collect(),
                Case::Reversed64 => all.clone().map(|n| n ^ 63).collect(),
                Case::Displaced1 => displaced(1, &mut random),
                Case::Displaced10 => displaced(10, &mut random),
                Case::Displaced30 => displaced(30, &mut random),
            })
            .collect()
    }
}

/// One order in which each segment is displaced with a probability of `percent`, to behind the
/// one that was sent up to [`FARTHEST`] after it.
fn displaced(percent: u64, random: &mut Random) -> Vec<u16> {
    let mut order: Vec<(u64, bool, u16)> = (0..SEGMENTS as u16)
        .map(|n| {
            let late = random.next_below(100) < percent;
            let by = if late { 1 + random.next_below(FARTHEST) } else { 0 };
            (u64::from(n) + by, late, n)
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(_, _, n)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every order has each segment once, and none is farther from its place than its case allows.
    #[test]
    fn an_order_is_a_permutation_within_bounds() {
        let farthest = |case| match case {
            Case::InOrder => 0,
            Case::Swap => 1,
            Case::Reversed64 => 63,
            _ => FARTHEST as usize,
        };
        for case in Case::ALL {
            let orders = case.orders();
            assert_eq!(orders.len(), ORDERS * SEGMENTS);
            for order in orders.chunks(SEGMENTS) {
                let mut seen = [false; SEGMENTS];
                for (place, &n) in order.iter().enumerate() {
                    let n = usize::from(n);
                    assert!(!std::mem::replace(&mut seen[n], true), "{case:?}: {n} twice");
                    assert!(place.abs_diff(n) <= farthest(case), "{case:?}: {n} at {place}");
                }
            }
        }
    }

    /// A displaced packet is one that comes after a later one. As many are as the name says, less
    /// those that the end of the round holds in place.
    #[test]
    fn as_many_are_displaced_as_the_name_says() {
        for (case, percent) in
            [(Case::Displaced1, 1.0), (Case::Displaced10, 10.0), (Case::Displaced30, 30.0)]
        {
            let orders = case.orders();
            let late: usize = orders
                .chunks(SEGMENTS)
                .map(|order| (1..SEGMENTS).filter(|&i| order[..i].iter().any(|n| *n > order[i])))
                .map(Iterator::count)
                .sum();
            let found = 100.0 * late as f64 / orders.len() as f64;
            assert!((0.7 * percent..1.3 * percent).contains(&found), "{case:?}: {found} %");
        }
    }

    #[test]
    fn orders_are_the_same_in_every_run_and_differ_among_themselves() {
        let orders = Case::Displaced10.orders();
        assert_eq!(orders, Case::Displaced10.orders());
        assert_ne!(orders[..SEGMENTS], orders[SEGMENTS..2 * SEGMENTS]);
    }
}
