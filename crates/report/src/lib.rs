//! Measurements beside what the papers say: figures as SVG, and one page with all of them.
//!
//! Pure: data in, text out. A [`Report`] goes to [`page`], which is the whole self-contained HTML
//! file; a [`Plot`] to [`svg`], which is a file of its own.
#![forbid(unsafe_code)]

mod axes;
mod legend;
mod marks;
mod model;
mod number;
mod page;
mod plot;
mod scale;
mod series;
mod table;
mod text;
mod theme;

pub use model::{Axis, Figure, Missing, Plot, Point, Report, Scale, Series, Source};
pub use page::page;
pub use plot::svg;
