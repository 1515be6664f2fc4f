//! Where values lie on an axis, and which of them have a tick.

use crate::model::Scale;

/// Values further from 0 than this are not drawn: their differences would not be finite.
const FURTHEST: f64 = 1e300;
/// Positive values closer to 0 than this have no place on a logarithmic axis.
const NEAREST: f64 = 1e-300;
/// Values that differ by less than this part of themselves are drawn as one.
const SAME: f64 = 1e-6;
/// What a quotient may be off by and still count as a whole number.
const WHOLE: f64 = 1e-9;

/// The numeric layouts; names have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Linear,
    Log(u32),
}

impl Layout {
    /// A category has none: as a y axis it is linear.
    pub(crate) fn of(scale: &Scale) -> Self {
        match scale {
            Scale::Linear | Scale::Category(_) => Self::Linear,
            Scale::Log2 => Self::Log(2),
            Scale::Log10 => Self::Log(10),
        }
    }

    /// Whether a value has a place.
    pub(crate) fn has(self, value: f64) -> bool {
        match self {
            Self::Linear => value.abs() <= FURTHEST,
            Self::Log(_) => (NEAREST..=FURTHEST).contains(&value),
        }
    }

    fn position(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log(base) => value.ln() / f64::from(base).ln(),
        }
    }
}

/// Which end of an axis must be 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zero {
    /// 0 is on the axis.
    Always,
    /// 0 is on the axis if values reach at least halfway to it.
    IfNear,
}

/// An axis with its range and ticks, in the units of its values.
#[derive(Clone, Debug)]
pub(crate) struct Ruler {
    layout: Layout,
    /// From the first tick to the last, ascending; at least two. Those around the furthest values
    /// are further still.
    ticks: Vec<f64>,
}

impl Ruler {
    /// A ruler over all of these values that have a place, with at most so many ticks (but three
    /// where fewer cannot do).
    pub(crate) fn over(
        layout: Layout,
        values: impl IntoIterator<Item = f64>,
        zero: Zero,
        at_most: usize,
    ) -> Self {
        let placed = values.into_iter().filter(|value| layout.has(*value));
        let range = placed.fold(None, |range, value| match range {
            None => Some((value, value)),
            Some((low, high)) => Some((value.min(low), value.max(high))),
        });
        let at_most = at_most.max(2);
        let ticks = match layout {
            Layout::Linear => {
                let (low, high) = linear_range(range.unwrap_or((0.0, 1.0)), zero);
                linear_ticks(low, high, at_most)
            }
            Layout::Log(base) => {
                let (low, high) = range.unwrap_or((1.0, f64::from(base)));
                log_ticks(base, low, high, at_most)
            }
        };
        Self { layout, ticks }
    }

    /// The ticks, each with how far along the axis it is, from 0 to 1.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (f64, f64)> {
        self.ticks.iter().map(|tick| (*tick, self.part(*tick)))
    }

    /// How far along the axis a value is, from 0 to 1; `None` of a value that has no place.
    pub(crate) fn at(&self, value: f64) -> Option<f64> {
        self.layout.has(value).then(|| self.part(value))
    }

    fn part(&self, value: f64) -> f64 {
        let position =
            |value: Option<&f64>| value.map_or(0.0, |value| self.layout.position(*value));
        let (first, last) = (position(self.ticks.first()), position(self.ticks.last()));
        ((self.layout.position(value) - first) / (last - first)).clamp(0.0, 1.0)
    }
}

fn linear_range((low, high): (f64, f64), zero: Zero) -> (f64, f64) {
    let (low, high) = match zero {
        Zero::Always => (low.min(0.0), high.max(0.0)),
        Zero::IfNear if low >= 0.0 && low <= high / 2.0 => (0.0, high),
        Zero::IfNear => (low, high),
    };
    let size = low.abs().max(high.abs());
    if size < NEAREST {
        return (0.0, 1.0);
    }
    if high - low < size * SAME { (low - size / 2.0, high + size / 2.0) } else { (low, high) }
}

/// Multiples of 1, 2, 2.5 or 5 times a power of ten, from the last below the range to the first above.
fn linear_ticks(low: f64, high: f64, at_most: usize) -> Vec<f64> {
    let mut power =
        ((high - low) / f64::from(u16::try_from(at_most).unwrap_or(u16::MAX))).log10().floor();
    loop {
        for digits in [1.0, 2.0, 2.5, 5.0] {
            let step = digits * 10_f64.powf(power);
            let (first, last) = ((low / step + WHOLE).floor(), (high / step - WHOLE).ceil());
            let count = last - first + 1.0;
            // Both ends are whole numbers and few apart; three ticks fit any range in the end.
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            if count <= at_most as f64 || count <= 3.0 {
                return (0..count as u32).map(|at| (first + f64::from(at)) * step).collect();
            }
        }
        power += 1.0;
    }
}

/// Powers of the base around the range, leaving out some if they are many; within two decades also
/// their doubles and fivefolds.
fn log_ticks(base: u32, low: f64, high: f64, at_most: usize) -> Vec<f64> {
    let position = |value| Layout::Log(base).position(value);
    // Exponents of finite numbers fit.
    #[allow(clippy::cast_possible_truncation)]
    let (mut first, mut last) =
        ((position(low) + WHOLE).floor() as i32, (position(high) - WHOLE).ceil() as i32);
    if first >= last {
        (first, last) = (first - 1, first + 1);
    }
    if base == 10 && last - first <= 2 {
        let fine = decades(first, last, low, high);
        if (2..=at_most).contains(&fine.len()) {
            return fine;
        }
    }
    let count = i32::try_from(at_most).unwrap_or(i32::MAX);
    let step = (1..).find(|step| (last - first + step - 1) / step < count).unwrap_or(1);
    let steps = (last - first + step - 1) / step;
    (0..=steps).map(|at| f64::from(base).powi(first + at * step)).collect()
}

/// 1, 2 and 5 times powers of ten, as many as the range needs.
fn decades(first: i32, last: i32, low: f64, high: f64) -> Vec<f64> {
    let all =
        (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
    let all: Vec<f64> = all.collect();
    let start = all.iter().rposition(|tick| *tick <= low * (1.0 + WHOLE)).unwrap_or(0);
    let end = all.iter().position(|tick| *tick >= high * (1.0 - WHOLE)).unwrap_or(all.len() - 1);
    all[start.min(end)..=end.max(start)].to_vec()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticks(layout: Layout, values: &[f64], zero: Zero, at_most: usize) -> Vec<f64> {
        Ruler::over(layout, values.iter().copied(), zero, at_most).ticks
    }

    #[test]
    fn ticks_are_where_one_expects_them() {
        let linear = |values: &[f64], zero| ticks(Layout::Linear, values, zero, 6);
        assert_eq!(linear(&[0.913, 4.75], Zero::Always), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(linear(&[15.0, 100.0], Zero::IfNear), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear(&[90.0, 100.0], Zero::IfNear), [90.0, 92.0, 94.0, 96.0, 98.0, 100.0]);
        assert_eq!(linear(&[-3.0, 5.0], Zero::Always), [-4.0, -2.0, 0.0, 2.0, 4.0, 6.0]);
        let log = |base, values: &[f64]| ticks(Layout::Log(base), values, Zero::Always, 7);
        assert_eq!(log(2, &[1.0, 64.0]), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
        assert_eq!(log(2, &[1.0, 256.0]), [1.0, 4.0, 16.0, 64.0, 256.0]);
        assert_eq!(log(10, &[0.1, 100.0]), [0.1, 1.0, 10.0, 100.0]);
        assert_eq!(log(10, &[3.0, 30.0]), [2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn nothing_and_one_value_have_a_range() {
        for layout in [Layout::Linear, Layout::Log(2), Layout::Log(10)] {
            for values in [&[][..], &[f64::NAN], &[0.0], &[-1.0], &[7.0], &[7.0, 7.0], &[1e300]] {
                for zero in [Zero::Always, Zero::IfNear] {
                    let ticks = ticks(layout, values, zero, 6);
                    assert!(ticks.len() >= 2, "{layout:?} {values:?} {zero:?}: {ticks:?}");
                }
            }
        }
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        prop_oneof![Just(Layout::Linear), Just(Layout::Log(2)), Just(Layout::Log(10))]
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        let value = prop_oneof![
            any::<f64>(),
            -100.0..100.0,
            1e6..1.000_001e6,
            Just(0.0),
            Just(f64::INFINITY),
        ];
        proptest::collection::vec(value, 0..6)
    }

    proptest! {
        #[test]
        fn ticks_cover_the_values_in_order_and_are_few(
            layout in layouts(),
            values in values(),
            at_most in 2_usize..12,
            near in any::<bool>(),
        ) {
            let zero = if near { Zero::IfNear } else { Zero::Always };
            let ruler = Ruler::over(layout, values.iter().copied(), zero, at_most);
            let ticks = &ruler.ticks;
            prop_assert!((2..=at_most.max(3)).contains(&ticks.len()), "{ticks:?}");
            prop_assert!(ticks.is_sorted_by(|a, b| a < b), "{ticks:?}");
            prop_assert!(ticks.iter().all(|tick| tick.is_finite()), "{ticks:?}");
            let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
            for value in values {
                prop_assert_eq!(ruler.at(value).is_some(), layout.has(value));
                if layout.has(value) {
                    let slack = first.abs().max(last.abs()) * 1e-6;
                    prop_assert!(first - slack <= value && value <= last + slack, "{value} {ticks:?}");
                }
            }
        }
    }
}
