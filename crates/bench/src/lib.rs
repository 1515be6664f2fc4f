//! wharf's measurements: scenarios, peers beside which they run, and the figures they give.
//!
//! A scenario reports every [`Figure`] to a [`Report`] as soon as it is known, so that a long run
//! that is interrupted has told what it knew. Ratios are for the reader to take from figures of
//! one run; nothing here passes or fails by a time.

mod error;
mod figure;
pub mod lro;
mod peers;

pub use error::Error;
pub use figure::{Figure, Report};
