//! The unit of time of the protocol crates.

/// Nanoseconds: an instant on a clock of the caller's choosing that never goes back, or a span between two
/// of them. The clock starts where the caller wants; an instant means nothing on another clock.
pub type Nanos = u64;
