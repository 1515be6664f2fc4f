//! A plot as SVG: title, legend, the label of the y axis, the area, names and label of the x axis, from
//! top to bottom, so that nothing can cover anything else.

use maud::{Markup, PreEscaped, html};

use crate::axes::{Axes, left_out};
use crate::measures::{FONT, LINE, PAD, WIDTH};
use crate::model::{Axis, Plot, Source};
use crate::series::{NUMBER, has_bars, numbers_fit};
use crate::text::{Text, with_unit, wrap};
use crate::theme::{DARK, LIGHT, SHAPES};
use crate::{legend, marks::unit, number, series};

/// The width at which a drawing is shown where nothing else is said, in pixels.
const SHOWN: f64 = 560.0;

/// A plot as an SVG file of its own, for light and dark surroundings.
#[must_use]
pub fn svg(plot: &Plot) -> String {
    let style = format!(
        "svg{{max-width:100%;height:auto}}\n{SHAPES}{}@media (prefers-color-scheme:dark){{\n{}}}\n",
        LIGHT.drawing(""),
        DARK.drawing("")
    );
    let (inside, height) = inside(plot, true);
    let markup = html! {
        svg.plot xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (unit(height)) }
            width=(SHOWN) height=(unit(height * SHOWN / WIDTH)) role="img" aria-labelledby="title desc"
        {
            title id="title" { (Text(&plot.title)) }
            desc id="desc" { (Text(&description(plot))) }
            style { (PreEscaped(style)) }
            rect.ground width=(WIDTH) height=(unit(height)) rx="8" {}
            (inside)
        }
    };
    markup.into_string() + "\n"
}

/// A plot as part of a page, which has the styles; `id` is unique in it. Its title need not be shown
/// where the page says the same above it.
pub(crate) fn drawing(plot: &Plot, id: &str, titled: bool) -> Markup {
    let (inside, height) = inside(plot, titled);
    html! {
        svg.plot viewBox={ "0 0 " (WIDTH) " " (unit(height)) } role="img"
            aria-labelledby={ (id) "-title " (id) "-desc" }
        {
            title id={ (id) "-title" } { (Text(&plot.title)) }
            desc id={ (id) "-desc" } { (Text(&description(plot))) }
            rect.ground width=(WIDTH) height=(unit(height)) rx="8" {}
            (inside)
        }
    }
}

/// What is drawn, and how high it is.
fn inside(plot: &Plot, titled: bool) -> (Markup, f64) {
    let (title, top) = lines(if titled { &plot.title } else { "" }, "title", PAD);
    let (legend, top) = legend::draw(plot, has_bars(plot), top + 4.0);
    let (y_label, top) = lines(&label(&plot.y), "muted", top + 6.0);
    let numbers = numbers_fit(plot, &Axes::new(plot, top, 0.0));
    let axes = Axes::new(plot, top + 4.0, if numbers { NUMBER } else { 0.0 });
    let (drawn_axes, below) = axes.draw();
    let (x_label, below) = centred(&label(&plot.x), (axes.left + axes.right) / 2.0, below);
    let (note, below) = lines(&note(plot), "muted", below + 2.0);
    let looks = legend::looks(plot);
    let markup = html! {
        (title)
        g.legend { (legend) }
        (y_label)
        g.axes { (drawn_axes) }
        g.data { (series::draw(plot, &looks, &axes, numbers)) }
        (x_label) (note)
    };
    (markup, below + PAD)
}

fn label(axis: &Axis) -> String {
    with_unit(&axis.label, &axis.unit)
}

/// Lines from the left, and where they end.
fn lines(text: &str, class: &str, top: f64) -> (Markup, f64) {
    // The title's bold letters are wider by an eighth at most.
    let lines = wrap(text, (WIDTH - 2.0 * PAD) / FONT / 1.125);
    let markup = html! {
        @for (at, line) in lines.iter().enumerate() {
            text class=(class) x=(PAD) y=(unit(top + LINE * at as f64 + 15.0)) { (Text(line)) }
        }
    };
    (markup, top + LINE * lines.len() as f64)
}

/// Lines around `middle`, and where they end.
fn centred(text: &str, middle: f64, top: f64) -> (Markup, f64) {
    let room = 2.0 * (WIDTH - PAD - middle).min(middle - PAD);
    let lines = wrap(text, room / FONT);
    let markup = html! {
        @for (at, line) in lines.iter().enumerate() {
            text.muted.middle x=(unit(middle)) y=(unit(top + LINE * at as f64 + 15.0)) { (Text(line)) }
        }
    };
    (markup, top + LINE * lines.len() as f64)
}

/// What the drawing does not show.
fn note(plot: &Plot) -> String {
    if plot.series.iter().all(|series| series.points.is_empty()) {
        return "There are no points to draw.".to_owned();
    }
    match left_out(plot) {
        0 => String::new(),
        1 => "1 point is not fully drawn: not finite, or not on an axis.".to_owned(),
        more => format!("{more} points are not fully drawn: not finite, or not on an axis."),
    }
}

/// What is drawn, for those who do not see it.
fn description(plot: &Plot) -> String {
    let mut text = format!("{} against {}.", label(&plot.y), label(&plot.x));
    for series in &plot.series {
        let source = match series.source {
            Source::Measured => "measured",
            Source::Published => "in the paper",
        };
        let medians = || series.points.iter().map(|point| point.median).filter(|m| m.is_finite());
        let (low, high) =
            (medians().fold(f64::INFINITY, f64::min), medians().fold(f64::NEG_INFINITY, f64::max));
        let range = match medians().count() {
            0 => "no values".to_owned(),
            1 => number::value(low),
            _ => format!("from {} to {}", number::value(low), number::value(high)),
        };
        text += &format!(" {}, {source}: {range}.", series.name);
    }
    text
}
