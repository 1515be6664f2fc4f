//! The measures that all parts of a drawing share.

/// The width of a drawing in its own units. On a phone of 360 pixels, 16 of them are more than 12
/// pixels.
pub(crate) const WIDTH: f64 = 420.0;
/// The size of its only font, and from line to line.
pub(crate) const FONT: f64 = 16.0;
pub(crate) const LINE: f64 = 20.0;
/// Free on all sides.
pub(crate) const PAD: f64 = 12.0;
