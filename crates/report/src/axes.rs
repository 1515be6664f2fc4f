//! The area of a plot, its axes, and where a point lies.

use maud::{Markup, html};

use crate::marks::unit;
use crate::measures::{FONT, LINE, PAD, WIDTH};
use crate::model::{Plot, Point, Scale, Series, Source};
use crate::number;
use crate::scale::{Layout, Ruler, Zero};
use crate::text::{Text, shorten, width, wrap};

/// How high the area is.
const HEIGHT: f64 = 230.0;
/// Between the ends of a numeric x axis and its first and last tick, so that marks and whiskers do
/// not lie on the y axis.
const INSET: f64 = 14.0;
/// Right of the last tick where a level ends, for its mark.
const BEYOND: f64 = 32.0;
/// Above the last tick of the y axis, for the marks there.
const HEADROOM: f64 = 9.0;
/// Ticks on an axis, if their labels fit.
const MOST_TICKS: usize = 8;
/// Between two labels of the x axis.
const BETWEEN: f64 = 10.0;
/// Part of its slot that a category's bars fill.
const FILLED: f64 = 0.8;
/// Height of categories' names where they are written upwards.
const UPWARDS: f64 = 110.0;

/// What a position on the x axis means.
enum Across<'a> {
    Numbers(Ruler),
    Names(&'a [String]),
}

/// The area with its axes; lengths in units of the drawing.
pub(crate) struct Axes<'a> {
    pub(crate) left: f64,
    pub(crate) right: f64,
    pub(crate) top: f64,
    pub(crate) bottom: f64,
    x: Across<'a>,
    y: Ruler,
    /// From the area's top to the last tick of the y axis.
    headroom: f64,
    /// From the last tick of a numeric x axis to the area's right.
    inset_right: f64,
}

/// Where a point is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// `None` of a level, which is drawn across.
    pub(crate) x: Option<f64>,
    pub(crate) y: f64,
}

/// Whether a point of a published series says no x.
pub(crate) fn is_level(source: Source, point: &Point) -> bool {
    source == Source::Published && point.x.is_nan()
}

/// The values that a point shows on the y axis.
fn shown(source: Source, point: &Point) -> Vec<f64> {
    match source {
        Source::Measured => vec![point.median, point.min, point.max],
        Source::Published => vec![point.median],
    }
}

/// Whether the x axis has a place for a point.
fn has_x(scale: &Scale, source: Source, point: &Point) -> bool {
    is_level(source, point)
        || match scale {
            Scale::Category(names) => category(names, point.x).is_some(),
            scale => Layout::of(scale).has(point.x),
        }
}

fn category(names: &[String], x: f64) -> Option<usize> {
    // Compared as numbers, so that no conversion can round into the range.
    (0..names.len()).find(|index| *index as f64 == x)
}

impl<'a> Axes<'a> {
    /// Axes for all points of a plot that have a place, the area's top at `top`, with `above` free
    /// over the highest point beside what marks need.
    pub(crate) fn new(plot: &'a Plot, top: f64, above: f64) -> Self {
        let layout = Layout::of(&plot.y.scale);
        let all = || plot.series.iter().flat_map(|s| s.points.iter().map(|p| (s.source, p)));
        let visible =
            || all().filter(|(source, p)| has_x(&plot.x.scale, *source, p) && layout.has(p.median));
        let y = Ruler::over(
            layout,
            visible().flat_map(|(source, point)| shown(source, point)),
            Zero::Always,
            6,
        );
        let widest = y.ticks().map(|(tick, _)| width(&number::tick(tick))).fold(0.0, f64::max);
        let left = PAD + widest * FONT + 8.0;
        let mut axes = Self {
            left,
            right: WIDTH - PAD,
            top,
            bottom: top + HEIGHT + above,
            x: Across::Names(&[]),
            y,
            headroom: HEADROOM + above,
            inset_right: if all().any(|(source, p)| is_level(source, p)) { BEYOND } else { INSET },
        };
        match &plot.x.scale {
            Scale::Category(names) => axes.x = Across::Names(names),
            scale => axes.measure_x(Layout::of(scale), visible().map(|(_, point)| point.x)),
        }
        axes
    }

    /// Takes as many ticks for the x axis as there is room for labels.
    fn measure_x(&mut self, layout: Layout, values: impl Iterator<Item = f64> + Clone) {
        for at_most in (2..=MOST_TICKS).rev() {
            let ruler = Ruler::over(layout, values.clone(), Zero::IfNear, at_most);
            let last = ruler.ticks().last().map_or(0.0, |(tick, _)| label_width(tick));
            self.right = WIDTH - PAD - (last / 2.0 - self.inset_right).max(0.0);
            let places: Vec<(f64, f64)> =
                ruler.ticks().map(|(tick, part)| (self.across(part), label_width(tick))).collect();
            let fits = places
                .windows(2)
                .all(|pair| pair[1].0 - pair[0].0 >= (pair[0].1 + pair[1].1) / 2.0 + BETWEEN);
            self.x = Across::Numbers(ruler);
            if fits {
                break;
            }
        }
    }

    fn across(&self, part: f64) -> f64 {
        self.left + INSET + part * (self.right - self.left - INSET - self.inset_right)
    }

    /// Where a value of the x axis is.
    fn x(&self, value: f64) -> Option<f64> {
        match &self.x {
            Across::Numbers(ruler) => ruler.at(value).map(|part| self.across(part)),
            Across::Names(names) => {
                category(names, value).map(|index| self.left + self.slot() * (index as f64 + 0.5))
            }
        }
    }

    /// Where a value of the y axis is.
    pub(crate) fn y(&self, value: f64) -> Option<f64> {
        self.y.at(value).map(|part| self.up(part))
    }

    fn up(&self, part: f64) -> f64 {
        self.bottom - part * (self.bottom - self.top - self.headroom)
    }

    /// Where bars begin: at 0, or below everything where there is no 0.
    pub(crate) fn baseline(&self) -> f64 {
        self.y(0.0).unwrap_or(self.bottom)
    }

    /// Where a point is; `None` if it has no place.
    pub(crate) fn place(&self, source: Source, point: &Point) -> Option<Place> {
        let y = self.y(point.median)?;
        let x = if is_level(source, point) { None } else { Some(self.x(point.x)?) };
        Some(Place { x, y })
    }

    /// The width that each category has.
    fn slot(&self) -> f64 {
        match &self.x {
            Across::Numbers(_) => 0.0,
            Across::Names(names) => (self.right - self.left) / names.len().max(1) as f64,
        }
    }

    /// The width for each bar of so many in a category.
    pub(crate) fn bar(&self, bars: usize) -> f64 {
        self.slot() * FILLED / bars.max(1) as f64
    }

    /// Lines at the ticks of the y axis, labels, and the x axis with ticks and labels; and where it
    /// ends below.
    pub(crate) fn draw(&self) -> (Markup, f64) {
        let (names, below) = match &self.x {
            Across::Numbers(ruler) => (self.numbers(ruler), self.bottom + LINE + 8.0),
            Across::Names(names) => self.names(names),
        };
        let markup = html! {
            @for (tick, part) in self.y.ticks() {
                @let y = self.up(part);
                path.grid.thin d={ "M" (unit(self.left)) "," (unit(y)) "H" (unit(self.right)) } {}
                text.muted.end x=(unit(self.left - 8.0)) y=(unit(y + 5.5)) { (number::tick(tick)) }
            }
            path.muted.thin d={
                "M" (unit(self.left)) "," (unit(self.baseline())) "H" (unit(self.right))
            } {}
            (names)
        };
        (markup, below)
    }

    fn numbers(&self, ruler: &Ruler) -> Markup {
        html! {
            @for (tick, part) in ruler.ticks() {
                @let x = self.across(part);
                path.muted.thin d={ "M" (unit(x)) "," (unit(self.bottom)) "v5" } {}
                text.muted.middle x=(unit(x)) y=(unit(self.bottom + LINE)) { (number::tick(tick)) }
            }
        }
    }

    /// Names below their categories, upwards if they are too many or too long.
    fn names(&self, names: &[String]) -> (Markup, f64) {
        let room = (self.slot() - BETWEEN) / FONT;
        let fits = |name: &String| name.split_whitespace().all(|word| width(word) <= room);
        let middle = |index: usize| self.left + self.slot() * (index as f64 + 0.5);
        if names.iter().all(fits) {
            let wrapped: Vec<Vec<String>> = names.iter().map(|name| wrap(name, room)).collect();
            let lines = wrapped.iter().map(Vec::len).max().unwrap_or(0);
            let markup = html! {
                @for (index, lines) in wrapped.iter().enumerate() {
                    @for (line, words) in lines.iter().enumerate() {
                        text.middle x=(unit(middle(index)))
                            y=(unit(self.bottom + LINE * (line as f64 + 1.0))) { (Text(words)) }
                    }
                }
            };
            return (markup, self.bottom + LINE * lines as f64 + 8.0);
        }
        // One above the other when turned, they need a line's height each; the rest goes unnamed.
        let every = (LINE / self.slot()).ceil().max(1.0);
        let names = names.iter().map(|name| shorten(name, UPWARDS / FONT));
        let names: Vec<(f64, String)> = names
            .enumerate()
            .filter(|(index, _)| *index as f64 % every == 0.0)
            .map(|(index, name)| (middle(index), name))
            .collect();
        let longest = names.iter().map(|(_, name)| width(name) * FONT).fold(0.0, f64::max);
        let markup = html! {
            @for (x, name) in names {
                text.end transform={
                    "translate(" (unit(x + 5.5)) "," (unit(self.bottom + 8.0)) ")rotate(-90)"
                } { (Text(&name)) }
            }
        };
        (markup, self.bottom + longest + 12.0)
    }
}

fn label_width(tick: f64) -> f64 {
    width(&number::tick(tick)) * FONT
}

/// How many values of a plot have no place on its axes.
pub(crate) fn left_out(plot: &Plot) -> usize {
    let y = Layout::of(&plot.y.scale);
    let hidden = |series: &Series, point: &Point| {
        let placed = has_x(&plot.x.scale, series.source, point) && y.has(point.median);
        // A whisker that goes below a logarithmic axis is drawn to its end; one without end is not.
        !placed || shown(series.source, point).iter().any(|value| !Layout::Linear.has(*value))
    };
    plot.series.iter().map(|s| s.points.iter().filter(|point| hidden(s, point)).count()).sum()
}
