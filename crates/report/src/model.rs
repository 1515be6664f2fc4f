//! What is drawn and told. All text is plain text: it is escaped where it is written.

/// A run of the evaluation: what was measured, and what could not be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The page's title.
    pub title: String,
    /// One line below the title.
    pub subtitle: String,
    /// What the figures were measured on and how, as name and value: CPU, kernel, versions, seed,
    /// repetitions, date. Shown in this order.
    pub machine: Vec<(String, String)>,
    /// What was measured, in the order of the page.
    pub figures: Vec<Figure>,
    /// The papers' figures that cannot be measured yet.
    pub missing: Vec<Missing>,
}

/// A figure or table of a paper, and what was measured for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Its name on the command line and its anchor on the page: `lro-throughput`.
    pub name: String,
    /// A heading: what is measured against what.
    pub title: String,
    /// The paper's short name.
    pub paper: String,
    /// Where in the paper: `section V, figure 7`.
    pub section: String,
    /// What the paper says, with its values and units.
    pub claim: String,
    /// What was measured here, with values and units.
    pub measured: String,
    /// The ratio that the paper gives beside the one measured: `5.2 in the paper, 4.9 here`.
    pub ratio: String,
    /// What it means, in one sentence.
    pub meaning: String,
    /// What is drawn. Each plot is an SVG of its own.
    pub plots: Vec<Plot>,
    /// What one should know before believing it: how it was run, what differs from the paper.
    pub notes: Vec<String>,
    /// The file of raw measurements as JSON lines, relative to the page; not shown when empty.
    pub raw: String,
}

/// A figure of a paper that cannot be measured yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Its name on the command line.
    pub name: String,
    /// What it measures against what.
    pub title: String,
    /// The paper's short name.
    pub paper: String,
    /// Where in the paper.
    pub section: String,
    /// What is missing: `needs the TCP engine`.
    pub lacks: String,
}

/// One drawing: series over the same two axes. Lines with markers, or grouped bars where the x axis
/// is a [`Scale::Category`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// Stands above the drawing.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis. A category makes no sense here and is drawn as [`Scale::Linear`].
    pub y: Axis,
    /// What is drawn, in the order of the legend. Published series of the same name as a measured
    /// one have its colour and its marker's shape.
    pub series: Vec<Series>,
}

/// An axis of a plot. Its range follows from the points. A linear y axis has 0 on it; a linear x axis
/// if that leaves no more than half of it empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axis {
    /// What it shows: `Throughput`.
    pub label: String,
    /// The unit of its numbers: `Gb/s`; empty for plain counts.
    pub unit: String,
    /// How values are laid out.
    pub scale: Scale,
}

/// How the values of an axis are laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    #[default]
    Linear,
    /// Doublings are equally far apart. Only positive values can be shown.
    Log2,
    /// Powers of ten are equally far apart. Only positive values can be shown.
    Log10,
    /// Names side by side; a point's `x` is the index of its name.
    Category(Vec<String>),
}

/// Points that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend: `LRO on`. The legend itself adds that a series is published.
    pub name: String,
    /// Whose values these are.
    pub source: Source,
    /// The points, in any order. What is not finite, or cannot be on its axis, is left out of the
    /// drawing, which says so.
    pub points: Vec<Point>,
}

/// Whose values a series has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Measured in this run: filled markers, solid lines, whiskers.
    #[default]
    Measured,
    /// From the paper: hollow markers, dashed lines, no whiskers.
    Published,
}

/// A value at a place of the x axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// Where on the x axis, in its unit; on a category axis the index of the category; no number
    /// (NaN) for a level of a published series, see [`Point::level`].
    pub x: f64,
    /// The median of the repetitions, in the y axis's unit.
    pub median: f64,
    /// The least of the repetitions.
    pub min: f64,
    /// The greatest of the repetitions.
    pub max: f64,
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn linear(label: &str, unit: &str) -> Self {
        Self { label: label.to_owned(), unit: unit.to_owned(), scale: Scale::Linear }
    }

    /// An axis of doublings.
    #[must_use]
    pub fn log2(label: &str, unit: &str) -> Self {
        Self { scale: Scale::Log2, ..Self::linear(label, unit) }
    }

    /// An axis of powers of ten.
    #[must_use]
    pub fn log10(label: &str, unit: &str) -> Self {
        Self { scale: Scale::Log10, ..Self::linear(label, unit) }
    }

    /// An axis of names.
    #[must_use]
    pub fn category(label: &str, names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Self { scale: Scale::Category(names), ..Self::linear(label, "") }
    }
}

impl Series {
    /// A series that was measured in this run.
    #[must_use]
    pub fn measured(name: &str, points: Vec<Point>) -> Self {
        Self { name: name.to_owned(), source: Source::Measured, points }
    }

    /// A series that a paper gives.
    #[must_use]
    pub fn published(name: &str, points: Vec<Point>) -> Self {
        Self { name: name.to_owned(), source: Source::Published, points }
    }
}

impl Point {
    /// A single value, as a paper gives it: no spread.
    #[must_use]
    pub fn single(x: f64, value: f64) -> Self {
        Self { x, median: value, min: value, max: value }
    }

    /// A value that a paper gives without saying at which x, or for all of them: drawn across the
    /// whole plot. For published series.
    #[must_use]
    pub fn level(value: f64) -> Self {
        Self::single(f64::NAN, value)
    }

    /// The median of repetitions with their least and greatest. `None` of none, or where one of
    /// them is no number.
    #[must_use]
    pub fn of(x: f64, repetitions: &[f64]) -> Option<Self> {
        if repetitions.iter().any(|value| value.is_nan()) {
            return None;
        }
        let mut sorted = repetitions.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[upper - 1], sorted[upper])
        } else {
            sorted[upper]
        };
        Some(Self { x, median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_of_repetitions_has_their_median_and_extremes() {
        let odd = Point::of(4.0, &[3.0, 1.0, 2.0]);
        assert_eq!(odd, Some(Point { x: 4.0, median: 2.0, min: 1.0, max: 3.0 }));
        let even = Point::of(4.0, &[4.0, 1.0, 2.0, 3.0]);
        assert_eq!(even, Some(Point { x: 4.0, median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Point::of(4.0, &[7.0]), Some(Point::single(4.0, 7.0)));
        assert_eq!(Point::of(4.0, &[]), None);
        assert_eq!(Point::of(4.0, &[1.0, f64::NAN]), None);
    }
}
