//! The service manager that has started this process, if one has (sd_notify(3)).

use std::io;
use std::time::{Duration, Instant};

use sys::notify::Notify;

/// How long it may take to read what it is told.
const PATIENCE: Duration = Duration::from_secs(1);

/// The service manager, if there is one.
pub(crate) fn manager() -> Option<Notify> {
    Notify::of_environment().unwrap_or_else(|error| {
        tracing::warn!("the service manager cannot be told anything: {error}");
        None
    })
}

/// Does this until the service manager has read enough before it, for a while. That it does not is no error: what
/// it is told is not needed yet.
pub(crate) fn patiently(mut tell: impl FnMut() -> io::Result<()>) {
    let since = Instant::now();
    while tell().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        && since.elapsed() < PATIENCE
    {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tells it, if there is one, that this process is up.
pub(crate) fn tell_up() {
    if let Some(manager) = manager() {
        patiently(|| manager.ready());
    }
}
