//! Files of the program's, and connections that have what its listeners have.
//!
//! To close one may take as long as the program likes: a connection that lingers (`SO_LINGER` of some time), if the program
//! has closed it meanwhile; a file of a file system in user space, which is asked each time. A thread that does nothing
//! else waits for these.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

use sys::stream;

use crate::relay::{LINGER, lingers};

/// See the module's documentation.
pub(crate) struct Theirs(Option<OwnedFd>);

impl Theirs {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Theirs(Some(file))
    }

    /// It is the supervisor's from now on, who looks after its end.
    pub(crate) fn into_own(mut self) -> Option<OwnedFd> {
        self.0.take()
    }
}

impl AsFd for Theirs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Some(file) => file.as_fd(),
            None => unreachable!("it goes by `into_own` only, which takes all of this"),
        }
    }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        let Some(file) = self.0.take().filter(|file| !closes_at_once(file)) else { return };
        // Without that thread it stays open: that is a descriptor less, and not the end of all.
        match &*LATER {
            Some(later) => drop(later.send(file)),
            None => std::mem::forget(file),
        }
    }
}

/// Whether close(2) does not wait: it is a socket that does not linger.
fn closes_at_once(file: &OwnedFd) -> bool {
    let mut linger = [0; LINGER];
    let asked = stream::option(file, libc::SOL_SOCKET, libc::SO_LINGER, &mut linger);
    asked.is_ok() && !lingers(linger)
}

/// Where files are closed in their turn.
static LATER: LazyLock<Option<Sender<OwnedFd>>> = LazyLock::new(|| {
    let (later, files) = channel::<OwnedFd>();
    let closes = move || files.into_iter().for_each(drop);
    std::thread::Builder::new().name("closes".to_owned()).spawn(closes).ok().map(|_| later)
});
