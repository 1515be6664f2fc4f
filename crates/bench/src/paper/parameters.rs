//! What a run of the evaluation is asked for.

use std::path::PathBuf;
use std::time::Duration;

use nic::config::Config;

use crate::rdma_wan::Carrier;

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
    /// `libwharf_rdma.so`, if it is there.
    pub rdma_library: Option<PathBuf>,
    /// What degen does beside delaying in the figures on RDMA: keys of its settings and their values.
    pub path: Vec<(String, String)>,
    /// What carries the bytes of verbs there.
    pub carrier: Carrier,
    /// wharf's settings.
    pub config: Config,
}
