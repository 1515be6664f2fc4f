//! The look of a series: its colour, and the shape of its marks for those who do not see colours.

use maud::{Markup, html};

use crate::theme::COLOURS;

/// How far a mark reaches from its place, in units of the drawing.
pub(crate) const REACH: f64 = 7.0;

/// Outlines around the place that they mark: circle, square, triangle, diamond, triangle on its tip,
/// hexagon.
const SHAPES: [&str; 6] = [
    "M-4.8,0a4.8,4.8 0 1,0 9.6,0a4.8,4.8 0 1,0 -9.6,0Z",
    "M-4.3,-4.3H4.3V4.3H-4.3Z",
    "M0,-5.8L5.4,3.8H-5.4Z",
    "M0,-6L6,0L0,6L-6,0Z",
    "M0,5.8L5.4,-3.8H-5.4Z",
    "M-5.4,0L-2.7,-4.7H2.7L5.4,0L2.7,4.7H-2.7Z",
];

/// The look of all series of one name, by the order in which names come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look(pub(crate) usize);

impl Look {
    /// The class whose `color` is the series'. Colours and shapes return together only after all
    /// pairs of them.
    pub(crate) fn class(self) -> String {
        format!("s{}", (self.0 + self.0 / SHAPES.len()) % COLOURS)
    }

    fn shape(self) -> &'static str {
        SHAPES[self.0 % SHAPES.len()]
    }

    /// A mark at a place of the drawing.
    pub(crate) fn mark(self, x: f64, y: f64, hollow: bool) -> Markup {
        shape(self.shape(), x, y, hollow)
    }
}

/// A mark for all series that are filled or all that are hollow.
pub(crate) fn any(x: f64, y: f64, hollow: bool) -> Markup {
    shape(SHAPES[0], x, y, hollow)
}

fn shape(outline: &str, x: f64, y: f64, hollow: bool) -> Markup {
    let class = if hollow { "hollow" } else { "mark" };
    html! { path class=(class) transform={ "translate(" (unit(x)) "," (unit(y)) ")" } d=(outline) {} }
}

/// A length as SVG writes it.
pub(crate) fn unit(length: f64) -> String {
    let written = format!("{length:.1}");
    written.strip_suffix(".0").map_or_else(|| written.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_of_36_series_look_alike() {
        let looks: BTreeSet<_> = (0..36).map(|at| (Look(at).class(), Look(at).shape())).collect();
        assert_eq!(looks.len(), 36);
    }

    #[test]
    fn lengths_are_short() {
        assert_eq!([0.0, 1.25, 3.999, -2.0].map(unit), ["0", "1.2", "4", "-2"]);
    }
}
