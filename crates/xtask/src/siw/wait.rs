//! Waiting for what the other side or another process does.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// Until a server listens, and until its port is free again: a guest without hardware virtualisation is slow.
pub(super) const TO_LISTEN: Duration = Duration::from_secs(40);
/// Between two questions whether something has happened.
pub(super) const TURN: Duration = Duration::from_millis(100);

/// Whether this becomes so in time.
pub(super) fn becomes(
    patience: Duration,
    mut is_so: impl FnMut() -> Result<bool, String>,
) -> Result<bool, String> {
    let begun = Instant::now();
    loop {
        if is_so()? {
            return Ok(true);
        }
        if begun.elapsed() > patience {
            return Ok(false);
        }
        sleep(TURN);
    }
}
