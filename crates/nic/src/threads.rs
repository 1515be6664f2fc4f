//! The threads that move packets: without rights, and told of at their start and end.

use std::io;

use crate::capabilities;

/// Runs a thread's loop without capabilities. `name` is what the log calls it.
pub(crate) fn run(name: &str, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    capabilities::drop_all();
    tracing::info!("{name} has started");
    let ended = work();
    match &ended {
        Ok(()) => tracing::info!("{name} has ended"),
        // The one that waits for it tells it as an error, when it has put everything back.
        Err(error) => tracing::info!("{name} has ended: {error}"),
    }
    ended
}
