//! Measurements beside what the papers say: figures as SVG, and one page with all of them.
#![forbid(unsafe_code)]

mod model;

pub use model::{Axis, Figure, Missing, Plot, Point, Report, Scale, Series, Source};
