//! Measurements beside what the papers say: figures as SVG, and one page with all of them.
//!
//! Pure: data in, text out. A [`Report`] goes to [`page`], which is the whole self-contained HTML
//! file; a [`Plot`] to [`svg`], which is a file of its own.
//!
//! ```
//! use report::{Axis, Plot, Point, Series};
//!
//! let plot = Plot {
//!     title: "TCP receive throughput".to_owned(),
//!     x: Axis::log2("Connections", ""),
//!     y: Axis::linear("Throughput", "Gb/s"),
//!     series: vec![
//!         // Repetitions: 5.2, 5.4 and 5.5 Gb/s at one connection.
//!         Series::measured("LRO on", Point::of(1.0, &[5.4, 5.2, 5.5]).into_iter().collect()),
//!         Series::published("LRO on", vec![Point::level(4.75)]),
//!     ],
//! };
//! assert!(report::svg(&plot).starts_with("<svg"));
//! ```
//!
//! The SVG is written here and not by a library for plots. Such libraries (plotters was looked at) write
//! colours into every element, so one file cannot follow light and dark, and the marks that tell
//! measured from published, whiskers, and the legend above the area would have to be drawn by hand
//! all the same. What remains, ticks, is short ([`Scale`]). Drawings are small and their letters
//! large, so that on a phone the letters still have 12 pixels.
#![forbid(unsafe_code)]

mod axes;
mod legend;
mod marks;
mod measures;
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
