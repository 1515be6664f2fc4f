//! What comes of a step of the check.

/// What a step could not look at, in words; or what does not hold.
pub(crate) type Outcome = Result<Vec<String>, String>;
