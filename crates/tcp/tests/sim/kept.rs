//! Seeds of runs that once failed. What a seed means changes with `plan.rs`: a run that matters by
//! itself becomes a test by itself.

pub(crate) const SEEDS: &[u64] = &[];
