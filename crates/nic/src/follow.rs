//! What changes around a NIC that runs, and what the NIC does about it: the wire's carrier and MTU,
//! and whether this host forwards the packets of others.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sys::interface::Interface;
use sys::netlink::watch::Watch;

use crate::config::{Config, LroProfile};
use crate::error::Error;
use crate::forwarding;
use crate::nic::Nic;
use crate::open::{self, HostEnd};

/// What a NIC has seen of what is around it.
#[derive(Debug)]
pub(crate) struct Followed {
    watch: Watch,
    seen: Mutex<Seen>,
}

/// As last seen.
#[derive(Debug)]
struct Seen {
    carrier: bool,
    wire_mtu: u32,
    /// How it is seen that this host forwards.
    forwards: Option<String>,
}

impl Followed {
    /// Looks at what is around the wire and the host interface with the index `host`.
    pub(crate) fn new(wire: &Interface, host: u32) -> Result<Self, Error> {
        let watch = Watch::new()?;
        let seen = Seen { carrier: true, wire_mtu: wire.mtu, forwards: forwarding::sign(host)? };
        Ok(Followed { watch, seen: Mutex::new(seen) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this host forwards, as last seen.
    pub(crate) fn forwards(&self) -> bool {
        self.seen().forwards.is_some()
    }

    /// What to say of `auto` at the start.
    pub(crate) fn notice(&self, config: &Config) -> Option<String> {
        self.seen().forwards.as_deref().and_then(|sign| forwards_now(config, sign))
    }

    /// The host's MTU by a configuration, in bytes.
    pub(crate) fn host_mtu(&self, config: &Config) -> u32 {
        open::host_mtu(config, self.seen().wire_mtu)
    }
}

fn forwards_now(config: &Config, sign: &str) -> Option<String> {
    (config.lro.profile == LroProfile::Auto).then(|| {
        let silent = match config.lro.active_ack {
            lro::ActiveAck::Off => "",
            _ => ", without active ACK",
        };
        format!("this host forwards ({sign}): lro.profile=auto is lossless{silent}")
    })
}

impl Nic {
    /// Readable when there may be something to [`follow`](Self::follow).
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.followed.watch.as_fd()
    }

    /// What LRO's profile is now, and with `auto`, why: how it is seen that this host forwards, or
    /// that it does not.
    pub fn lro_profile(&self) -> (&'static str, Option<String>) {
        let (auto, seen) = (self.config().lro.profile, self.followed.seen());
        match (auto, &seen.forwards) {
            (LroProfile::Endpoint, _) => ("endpoint", None),
            (LroProfile::Lossless, _) => ("lossless", None),
            (LroProfile::Auto, None) => ("endpoint", Some("this host does not forward".to_owned())),
            (LroProfile::Auto, Some(sign)) => {
                ("lossless", Some(format!("this host forwards: {sign}")))
            }
        }
    }

    /// Follows what changes while wharf runs: the host sees the wire's carrier go and come, and LRO's
    /// profile `auto` is what this host needs. What is returned are lines for the operator. To be called when [`changes`](Self::changes) is readable and now
    /// and then, in the network namespace that the NIC was started in.
    ///
    /// # Errors
    /// What has changed so that the NIC is of no use any more, and what to do about it.
    pub fn follow(&self) -> Result<Vec<String>, Error> {
        let mut lines = Vec::new();
        if self.followed.watch.changed() {
            lines.extend(self.follow_forwarding());
        }
        // A wire that is gone is told of by `has_failed`.
        let Ok(wire) = Interface::by_index(self.wire_index) else { return Ok(lines) };
        self.follow_carrier(&wire);
        lines.extend(self.follow_mtu(&wire));
        Ok(lines)
    }

    fn follow_forwarding(&self) -> Option<String> {
        // Where the kernel will not say, all stays as it was.
        let now = forwarding::sign(self.host.index).ok()?;
        let config = self.lock();
        let (before, is_new) = {
            let mut seen = self.followed.seen();
            let is_new = seen.forwards.is_some() != now.is_some();
            (std::mem::replace(&mut seen.forwards, now.clone()), is_new)
        };
        if !is_new || config.lro.profile != LroProfile::Auto {
            return None;
        }
        self.tell_workers(&config);
        match (now, before) {
            (Some(sign), _) => forwards_now(&config, &sign),
            (None, _) => {
                Some("this host no longer forwards: lro.profile=auto is endpoint".to_owned())
            }
        }
    }

    fn follow_carrier(&self, wire: &Interface) {
        let mut seen = self.followed.seen();
        if seen.carrier != wire.running
            && let HostEnd::Tap(tap) = &self.host.kind
        {
            // An old kernel cannot be told; the host then sees a carrier always, as before.
            let _ = tap.set_carrier(wire.running);
        }
        seen.carrier = wire.running;
    }

    /// A larger MTU needs other memory.
    fn follow_mtu(&self, wire: &Interface) -> Option<String> {
        let before = std::mem::replace(&mut self.followed.seen().wire_mtu, wire.mtu);
        if wire.mtu != before {
            self.workers.iter().for_each(|(shared, _)| shared.set_mtu(wire.mtu));
        }
        (wire.mtu > before).then(|| {
            format!(
                "the MTU of {} grew from {before} to {}: start wharf again to use it; until then \
                 larger frames are lost",
                wire.name, wire.mtu
            )
        })
    }
}
