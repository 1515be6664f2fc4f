//! What a device serves by.

use std::time::Duration;

use rdma::mpa::Config;
use rdma::verbs::Limits;

/// The same for all its processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// How much each may have.
    pub(crate) limits: Limits,
    /// What peers are asked for.
    pub(crate) mpa: Config,
    /// How long a peer may answer nothing before its connection ends.
    pub(crate) peer_timeout: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        let (limits, mpa) = (Limits::default(), Config::default());
        Terms { limits, mpa, peer_timeout: crate::PEER_TIMEOUT }
    }
}
