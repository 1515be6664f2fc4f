//! Which look belongs to which series, above the area that is drawn in.

use maud::{Markup, html};

use crate::marks::{self, Look, unit};
use crate::measures::{FONT, LINE, PAD, WIDTH};
use crate::model::{Plot, Series, Source};
use crate::text::{Text, shorten, width};

/// Width of a sample.
const SAMPLE: f64 = 30.0;
/// Between a sample and its words, and between these and the next sample.
const BESIDE: f64 = 7.0;
const BETWEEN: f64 = 16.0;

/// A sample and what it stands for.
struct Entry<'a> {
    /// `None` for what all series have in common.
    look: Option<Look>,
    hollow: bool,
    words: &'a str,
}

/// The looks of a plot's series, the same for all of one name.
pub(crate) fn looks(plot: &Plot) -> Vec<Look> {
    let names = names(plot);
    let look = |series: &Series| names.iter().position(|name| *name == series.name);
    plot.series.iter().map(|series| Look(look(series).unwrap_or(0))).collect()
}

/// The names of series, each once.
fn names(plot: &Plot) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for series in &plot.series {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    names
}

/// The names, and in a row of its own what is hollow and what is not where some of it is.
fn rows(plot: &Plot) -> Vec<Vec<Entry<'_>>> {
    let has = |name: &str, source| plot.series.iter().any(|s| s.name == name && s.source == source);
    let entry = |(at, words)| {
        let hollow = !has(words, Source::Measured);
        Entry { look: Some(Look(at)), hollow, words }
    };
    let names: Vec<Entry<'_>> = names(plot).into_iter().enumerate().map(entry).collect();
    let mut rows = flow(names);
    if plot.series.iter().any(|series| series.source == Source::Published) {
        let sources = [(false, "measured"), (true, "in the paper")];
        let key = sources.map(|(hollow, words)| Entry { look: None, hollow, words });
        rows.extend(flow(key.into()));
    }
    rows
}

/// Rows as wide as the drawing.
fn flow(entries: Vec<Entry<'_>>) -> Vec<Vec<Entry<'_>>> {
    let mut rows: Vec<Vec<Entry<'_>>> = Vec::new();
    let mut left = 0.0;
    for entry in entries {
        let needed = extent(&entry);
        match rows.last_mut() {
            Some(row) if needed <= left => row.push(entry),
            _ => {
                rows.push(vec![entry]);
                left = WIDTH - 2.0 * PAD;
            }
        }
        left -= needed + BETWEEN;
    }
    rows
}

fn extent(entry: &Entry<'_>) -> f64 {
    SAMPLE + BESIDE + width(&words(entry)) * FONT
}

fn words(entry: &Entry<'_>) -> String {
    shorten(entry.words, (WIDTH - 2.0 * PAD - SAMPLE - BESIDE) / FONT)
}

/// The legend from `top` on, and where it ends.
pub(crate) fn draw(plot: &Plot, bars: bool, top: f64) -> (Markup, f64) {
    let rows = rows(plot);
    let height = rows.len() as f64 * (LINE + 3.0);
    let markup = html! {
        @for (at, row) in rows.iter().enumerate() {
            @let y = top + (LINE + 3.0) * at as f64 + LINE / 2.0;
            @for (x, entry) in starts(row) {
                (sample(entry, bars, x, y))
                text x=(unit(x + SAMPLE + BESIDE)) y=(unit(y + 5.5)) { (Text(&words(entry))) }
            }
        }
    };
    (markup, top + height)
}

fn starts<'a>(row: &'a [Entry<'a>]) -> Vec<(f64, &'a Entry<'a>)> {
    let mut x = PAD;
    let next = |entry| {
        let start = x;
        x += extent(entry) + BETWEEN;
        (start, entry)
    };
    row.iter().map(next).collect()
}

fn sample(entry: &Entry<'_>, bars: bool, x: f64, y: f64) -> Markup {
    let class = entry.look.map_or("muted".to_owned(), Look::class);
    let line = if entry.hollow { "stroke dashed" } else { "stroke" };
    let middle = x + SAMPLE / 2.0;
    html! {
        g class=(class) {
            @if bars {
                rect class=(if entry.hollow { "open" } else { "bar" })
                    x=(unit(x)) y=(unit(y - 8.0)) width=(SAMPLE) height="16" {}
            } @else {
                path class=(line) d={ "M" (unit(x)) "," (unit(y)) "h" (SAMPLE) } {}
            }
            (entry.look.map_or_else(
                || marks::any(middle, y, entry.hollow),
                |look| look.mark(middle, y, entry.hollow),
            ))
        }
    }
}
