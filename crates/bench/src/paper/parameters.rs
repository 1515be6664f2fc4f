//! What a run of the evaluation is asked for.

use std::path::PathBuf;
use std::time::Duration;

use nic::config::Config;

/// What a run of the evaluation is asked for.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Runs of each case, of which the median counts; the cases take turns.
    pub repetitions: usize,
    /// How long each run is measured.
    pub duration: Duration,
    /// Fewer points.
    pub quick: bool,
    /// What scenarios draw random numbers from.
    pub seed: u64,
    /// `libwharf.so`, if it is there.
    pub library: Option<PathBuf>,
    /// wharf's settings.
    pub config: Config,
}
