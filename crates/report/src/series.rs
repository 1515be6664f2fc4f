//! Series in the area of a plot: lines with marks, or bars; whiskers; levels.

use maud::{Markup, html};

use crate::axes::{Axes, is_level};
use crate::marks::{Look, REACH, unit};
use crate::measures::FONT;
use crate::model::{Plot, Point, Scale, Series, Source};
use crate::number;
use crate::text::width;

/// Half the length of the line across a whisker's end: it shows on both sides of a mark.
const CAP: f64 = 8.0;
/// Height for the number above a bar.
pub(crate) const NUMBER: f64 = 24.0;
/// Bars are no wider, however few there are.
const WIDEST: f64 = 56.0;

/// A point of a series with its place on the x axis.
struct Drawn<'a> {
    point: &'a Point,
    x: f64,
    y: f64,
}

/// Whether a plot shows bars.
pub(crate) fn has_bars(plot: &Plot) -> bool {
    matches!(plot.x.scale, Scale::Category(_))
}

/// Lines and levels below, what is measured above what is published.
pub(crate) fn draw(plot: &Plot, looks: &[Look], axes: &Axes<'_>, numbers: bool) -> Markup {
    let all = || plot.series.iter().zip(looks).enumerate();
    let of = |source| all().filter(move |(_, (series, _))| series.source == source);
    html! {
        @for source in [Source::Published, Source::Measured] {
            @for (index, (series, look)) in of(source) {
                g class=(look.class()) {
                    (levels(series, *look, axes))
                    @let bar = has_bars(plot).then(|| Bar::new(plot, axes, index));
                    @let drawn = places(series, axes, bar.as_ref());
                    @match bar {
                        Some(bar) => (bar.draw(&drawn, source, axes)),
                        None => (line(&drawn, source)),
                    }
                    @if source == Source::Measured { (whiskers(&drawn, axes)) }
                    @for at in &drawn { (look.mark(at.x, at.y, source == Source::Published)) }
                }
            }
        }
        @if numbers { (above_bars(plot, axes)) }
    }
}

/// The points that have a place, by x.
fn places<'a>(series: &'a Series, axes: &Axes<'_>, bar: Option<&Bar>) -> Vec<Drawn<'a>> {
    let place = |point: &'a Point| {
        let place = axes.place(series.source, point)?;
        let x = place.x? + bar.map_or(0.0, |bar| bar.offset);
        Some(Drawn { point, x, y: place.y })
    };
    let mut drawn: Vec<Drawn<'a>> = series.points.iter().filter_map(place).collect();
    drawn.sort_by(|one, other| one.x.total_cmp(&other.x));
    drawn
}

fn line(drawn: &[Drawn<'_>], source: Source) -> Markup {
    let path: String = drawn
        .iter()
        .enumerate()
        .map(|(at, d)| format!("{}{},{}", if at == 0 { "M" } else { "L" }, unit(d.x), unit(d.y)))
        .collect();
    let class = if source == Source::Published { "stroke dashed" } else { "stroke" };
    html! { @if drawn.len() > 1 { path class=(class) d=(path) {} } }
}

/// Values without an x, from side to side.
fn levels(series: &Series, look: Look, axes: &Axes<'_>) -> Markup {
    let levels = series.points.iter().filter(|point| is_level(series.source, point));
    html! {
        @for y in levels.filter_map(|point| axes.y(point.median)) {
            path.stroke.dashed d={ "M" (unit(axes.left)) "," (unit(y)) "H" (unit(axes.right)) } {}
            (look.mark(axes.right - REACH, y, true))
        }
    }
}

/// From the least to the greatest of the repetitions.
fn whiskers(drawn: &[Drawn<'_>], axes: &Axes<'_>) -> Markup {
    html! {
        @for Drawn { point, x, .. } in drawn {
            @if point.min < point.max && point.min.is_finite() {
                @if let Some(top) = axes.y(point.max) {
                    // Below a logarithmic axis there is no end to draw.
                    @let end = axes.y(point.min);
                    path.stroke d={
                        "M" (unit(x - CAP)) "," (unit(top)) "h" (unit(CAP * 2.0))
                        "M" (unit(*x)) "," (unit(top)) "V" (unit(end.unwrap_or(axes.bottom)))
                        @if end.is_some() { "m" (unit(-CAP)) ",0h" (unit(CAP * 2.0)) }
                    } {}
                }
            }
        }
    }
}

/// The bars of one series.
struct Bar {
    width: f64,
    /// From the middle of a category to the middle of its bar.
    offset: f64,
}

impl Bar {
    /// Series of nothing but levels have no bars, and leave no room for them.
    fn new(plot: &Plot, axes: &Axes<'_>, index: usize) -> Self {
        let stands =
            |series: &&Series| series.points.iter().any(|point| !is_level(series.source, point));
        let bars = plot.series.iter().filter(stands).count();
        let before = plot.series[..index].iter().filter(stands).count();
        let width = axes.bar(bars).min(WIDEST);
        let offset = (before as f64 + 0.5 - bars as f64 / 2.0) * width;
        Self { width, offset }
    }

    fn draw(&self, drawn: &[Drawn<'_>], source: Source, axes: &Axes<'_>) -> Markup {
        let class = if source == Source::Published { "open" } else { "bar" };
        let gap = (self.width * 0.08).clamp(0.5, 3.0);
        let zero = axes.baseline();
        html! {
            @for Drawn { x, y, .. } in drawn {
                rect class=(class) x=(unit(x - self.width / 2.0 + gap)) y=(unit(y.min(zero)))
                    width=(unit(self.width - 2.0 * gap)) height=(unit((y - zero).abs())) {}
            }
        }
    }
}

/// Whether every bar has room for its number.
pub(crate) fn numbers_fit(plot: &Plot, axes: &Axes<'_>) -> bool {
    let bars = Bar::new(plot, axes, 0);
    let all = plot.series.iter().flat_map(|series| &series.points);
    has_bars(plot)
        && all.filter(|point| point.median.is_finite()).all(|point| {
            point.median >= 0.0 && width(&number::value(point.median)) * FONT + 6.0 <= bars.width
        })
}

fn above_bars(plot: &Plot, axes: &Axes<'_>) -> Markup {
    html! {
        @for (index, series) in plot.series.iter().enumerate() {
            @let bar = Bar::new(plot, axes, index);
            @for Drawn { point, x, y } in places(series, axes, Some(&bar)) {
                @let whisker = axes.y(point.max).filter(|_| series.source == Source::Measured);
                @let top = whisker.unwrap_or(y).min(y);
                text.middle x=(unit(x)) y=(unit(top - REACH - 5.0)) { (number::value(point.median)) }
            }
        }
    }
}
