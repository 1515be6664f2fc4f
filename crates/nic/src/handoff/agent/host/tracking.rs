//! conntrack: entries of connections that pass it by while they are at the NIC.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use ::tcp::FourTuple;
use handoff::Refusal;
use sys::netlink::conntrack::{self, Entry};

use super::kernel::{Kernel, Once};

/// How many entries there are in this network namespace. It is not there before somebody has conntrack.
const COUNT: &str = "/proc/sys/net/netfilter/nf_conntrack_count";
/// An entry stays for so many seconds at least, without a packet that conntrack sees.
const LEAST: u32 = 120;

/// The entry of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    entry: Entry,
    /// When it was told last to stay; `None` before the connection is handed off.
    kept: Option<Instant>,
}

impl Tracked {
    /// How long it stays, as it would have in the kernel's hands.
    fn seconds(&self) -> u32 {
        self.entry.timeout.max(LEAST)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    count: Option<File>,
    cannot_look: Once,
}

impl Tracking {
    /// The entry of a connection, if it has one. One that is translated, or that a helper follows, is not handed off.
    pub(super) fn look(
        &mut self,
        kernel: &mut Kernel,
        path: &FourTuple,
    ) -> Result<Option<Tracked>, Refusal> {
        let Some(netfilter) = kernel.netfilter.as_mut().filter(|_| self.has_entries()) else {
            return Ok(None);
        };
        let entry = match conntrack::entry(netfilter, (path.local, path.remote)) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(None),
            Err(error) => {
                self.cannot_look.warn(format_args!("{error}: nothing is handed off"));
                return Err(Refusal::Nat);
            }
        };
        match entry {
            Entry { is_translated: true, .. } => Err(Refusal::Nat),
            Entry { has_helper: true, .. } => Err(Refusal::ConntrackHelper),
            entry => Ok(Some(Tracked { entry, kept: None })),
        }
    }

    /// Whether there are entries. To ask conntrack itself would load it.
    fn has_entries(&mut self) -> bool {
        if self.count.is_none() {
            self.count = File::open(COUNT).ok();
        }
        let mut digits = [0; 16];
        let read = self.count.as_ref().and_then(|file| file.read_at(&mut digits, 0).ok());
        read.is_some_and(|read| digits[..read].trim_ascii() != b"0")
    }

    /// The connection's packets pass it by from now on.
    pub(super) fn begin(
        &mut self,
        kernel: &mut Kernel,
        path: &FourTuple,
        tracked: &mut Tracked,
        now: Instant,
    ) {
        keep(kernel, path, tracked, now);
    }

    /// Keeps an entry fresh, now and then.
    pub(super) fn keep_fresh(
        &mut self,
        kernel: &mut Kernel,
        path: &FourTuple,
        tracked: &mut Tracked,
        now: Instant,
    ) {
        let often = Duration::from_secs((tracked.seconds() / 3).into());
        if tracked.kept.is_some_and(|kept| now.saturating_duration_since(kept) >= often) {
            keep(kernel, path, tracked, now);
        }
    }

    /// The connection is the kernel's again, whose packets keep the entry fresh; or it is over, and so is the entry.
    pub(super) fn end(
        &mut self,
        kernel: &mut Kernel,
        path: &FourTuple,
        tracked: &Tracked,
        is_over: bool,
    ) {
        let Some(netfilter) = &mut kernel.netfilter else { return };
        let ends = (path.local, path.remote);
        if !is_over || tracked.kept.is_none() {
            return;
        }
        if let Err(error) = conntrack::forget(netfilter, ends, &tracked.entry) {
            tracing::debug!("conntrack keeps an entry of a connection that is over: {error}");
        }
    }
}

fn keep(kernel: &mut Kernel, path: &FourTuple, tracked: &mut Tracked, now: Instant) {
    let Some(netfilter) = &mut kernel.netfilter else { return };
    tracked.kept = Some(now);
    let ends = (path.local, path.remote);
    if let Err(error) = conntrack::keep(netfilter, ends, tracked.seconds()) {
        tracing::debug!("an entry of conntrack is not kept fresh: {error}");
    }
}
