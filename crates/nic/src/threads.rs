//! Threads: with no more rights than they need, and told of at their start and end.

use std::io;

use crate::capabilities;

/// Runs a thread's loop that moves packets, without capabilities. `name` is what the log calls it.
pub(crate) fn run(name: &str, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    capabilities::drop_all();
    run_with_rights(name, work)
}

/// The same with the rights of the process, of one that moves connections in and out of the kernel.
pub(crate) fn run_with_rights(name: &str, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    tracing::info!("{name} has started");
    let ended = work();
    match &ended {
        Ok(()) => tracing::info!("{name} has ended"),
        // The one that waits for it tells it as an error, when it has put everything back.
        Err(error) => tracing::info!("{name} has ended: {error}"),
    }
    ended
}
