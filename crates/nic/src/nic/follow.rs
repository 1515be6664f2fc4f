//! Changes around a running NIC, and its reactions: the wire's carrier, MTU and queues, the host interface's
//! MTU, and whether this host forwards packets of other hosts.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use handoff::RestoreReason;
use sys::interface::{self, Interface};
use sys::netlink::watch::Watch;

use super::Nic;
use crate::config::{Config, LroProfile};
use crate::error::Error;
use crate::forwarding;
use crate::open::{self, Held, HostEnd, Room};

/// State of a NIC's surroundings, as last seen.
#[derive(Debug)]
pub(super) struct Followed {
    watch: Watch,
    /// Whether a query for forwarding failed after a change, and is to be repeated.
    look_again: AtomicBool,
    seen: Mutex<Seen>,
    /// Size of the frames in the wire's memory.
    room: Room,
}

/// As last seen.
#[derive(Debug)]
struct Seen {
    carrier: bool,
    wire_mtu: u32,
    /// The host's MTU, set by wharf or by another program.
    host_mtu: u32,
    /// Whether another program has set it.
    by_hand: bool,
    /// An MTU that the kernel refused.
    refused: Option<u32>,
    /// The sign that this host forwards, if it does.
    forwards: Option<String>,
    /// The wire's new name, under which its own stack could not be silenced.
    not_quiet: Option<String>,
}

impl Followed {
    /// Reads the state of the wire, which is open, and of the host interface with the index `host`.
    pub(super) fn new(wire: &Interface, room: Room, host: u32) -> Result<Self, Error> {
        let watch = Watch::new()?;
        let seen = Seen {
            carrier: true,
            wire_mtu: wire.mtu,
            host_mtu: Interface::by_index(host)?.mtu,
            by_hand: false,
            refused: None,
            forwards: forwarding::sign(host)?,
            not_quiet: None,
        };
        let (look_again, seen) = (AtomicBool::new(false), Mutex::new(seen));
        Ok(Followed { watch, look_again, seen, room })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this host forwards, as last seen.
    pub(super) fn forwards(&self) -> bool {
        self.seen().forwards.is_some()
    }

    /// A notice about `auto` at the start.
    pub(super) fn notice(&self, config: &Config) -> Option<String> {
        self.seen().forwards.as_deref().and_then(|sign| forwards_now(config, sign))
    }

    /// The host's MTU of a configuration, in bytes.
    pub(super) fn host_mtu(&self, config: &Config) -> u32 {
        self.seen().wanted(config, &self.room)
    }

    /// wharf has set the MTU, as its configuration asks: that is the latest change.
    pub(super) fn host_mtu_is(&self, mtu: u32) {
        let mut seen = self.seen();
        (seen.host_mtu, seen.by_hand, seen.refused) = (mtu, false, None);
    }
}

impl Seen {
    /// A host that announced an MSS for frames that exceed the wire's memory would lose them.
    fn wanted(&self, config: &Config, room: &Room) -> u32 {
        let wire = if room.loses { self.wire_mtu.min(room.mtu) } else { self.wire_mtu };
        open::host::host_mtu(config, wire)
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
    /// Descriptor that is readable when [`follow`](Self::follow) may have something to do.
    pub fn changes(&self) -> BorrowedFd<'_> {
        self.followed.watch.as_fd()
    }

    /// LRO's profile, and for `auto` the reason: the sign that this host forwards, or that it does not.
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

    /// Follows changes while wharf runs: the host's carrier and MTU are those of the wire, and LRO's profile
    /// `auto` is the one that this host needs. Returns lines for the operator. To be called when
    /// [`changes`](Self::changes) is readable and now and then, in the network namespace that the NIC was
    /// started in.
    ///
    /// # Errors
    /// A change that makes the NIC useless, and what to do about it.
    pub fn follow(&self) -> Result<Vec<String>, Error> {
        self.look_for_duplicates()?;
        let mut lines = Vec::new();
        let look_again = self.followed.look_again.swap(false, Ordering::Relaxed);
        if self.followed.watch.changed() || look_again {
            lines.extend(self.follow_forwarding());
        }
        // A wire that is gone is reported by `has_failed`.
        let Ok(wire) = Interface::by_index(self.wire_index) else { return Ok(lines) };
        self.follow_name(&wire, &mut lines);
        self.follow_carrier(&wire);
        self.follow_mtu(&wire, &mut lines);
        self.held().look_at_queues()?;
        Ok(lines)
    }

    /// Fails if one of its own addresses was found to be another host's.
    fn look_for_duplicates(&self) -> Result<(), Error> {
        let Some(reports) = &self.own_addresses else { return Ok(()) };
        let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        match reports.try_iter().find_map(Result::err) {
            Some(duplicate) => Err(Error::Duplicate { name: self.wire.clone(), duplicate }),
            None => Ok(()),
        }
    }

    fn follow_forwarding(&self) -> Option<String> {
        // If the kernel fails to answer, the state stays until the next look. The notification is consumed,
        // so that look must not wait for another.
        let Ok(now) = forwarding::sign(self.host.index) else {
            tracing::debug!(
                "the kernel does not say whether this host forwards: asked again later"
            );
            self.followed.look_again.store(true, Ordering::Relaxed);
            return None;
        };
        let config = self.lock();
        let (before, is_new) = {
            let mut seen = self.followed.seen();
            let is_new = seen.forwards.is_some() != now.is_some();
            (std::mem::replace(&mut seen.forwards, now.clone()), is_new)
        };
        if !is_new || config.lro.profile != LroProfile::Auto {
            return None;
        }
        self.configure_workers(&config);
        match (now, before) {
            (Some(sign), _) => forwards_now(&config, &sign),
            (None, _) => {
                Some("this host no longer forwards: lro.profile=auto is endpoint".to_owned())
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules that silence the wire's own stack contain its name.
    fn follow_name(&self, wire: &Interface, lines: &mut Vec<String>) {
        let Err(error) = self.held().follow_name(&wire.name) else { return };
        // It is tried again at every look, but reported once for a name.
        let mut seen = self.followed.seen();
        if seen.not_quiet.as_ref() != Some(&wire.name) {
            lines.push(format!("the kernel may answer on {} as well: {error}", wire.name));
            seen.not_quiet = Some(wire.name.clone());
        }
    }

    fn follow_carrier(&self, wire: &Interface) {
        let mut seen = self.followed.seen();
        if seen.carrier != wire.running {
            let now = if wire.running { "has a carrier again" } else { "has lost its carrier" };
            tracing::info!("{} {now}", wire.name);
            if !wire.running {
                self.give_back(RestoreReason::LinkDown);
            }
        }
        if seen.carrier != wire.running
            && let HostEnd::Tap(tap) = &self.host.kind
        {
            // An old kernel cannot set it; then the host always sees a carrier.
            let _ = tap.set_carrier(wire.running);
        }
        seen.carrier = wire.running;
    }

    /// The host interface follows the wire's MTU. An MTU that another program has set stays, until it is set
    /// to the one that would follow.
    fn follow_mtu(&self, wire: &Interface, lines: &mut Vec<String>) {
        let config = self.lock();
        let mut seen = self.followed.seen();
        let before = std::mem::replace(&mut seen.wire_mtu, wire.mtu);
        if wire.mtu != before {
            tracing::info!("the MTU of {} was {before} and is {}", wire.name, wire.mtu);
            self.workers.iter().for_each(|(handle, _)| handle.set_mtu(wire.mtu));
            self.give_back(RestoreReason::Mtu);
            lines.extend(self.followed.room.notice(wire));
        }
        // In another network namespace its MTU is left to that namespace.
        let Ok(host) = Interface::by_index(self.host.index) else { return };
        let wanted = seen.wanted(&config, &self.followed.room).min(host.max_mtu);
        if host.mtu != seen.host_mtu {
            let was_by_hand = seen.by_hand;
            (seen.host_mtu, seen.by_hand) = (host.mtu, host.mtu != wanted);
            match (was_by_hand, seen.by_hand) {
                (_, true) => lines.push(format!(
                    "the MTU of {} was set to {}: it stays so; set to {wanted} it follows that of \
                     {} again",
                    host.name, host.mtu, wire.name
                )),
                (true, false) => {
                    let (host, wire) = (&host.name, &wire.name);
                    lines.push(format!("the MTU of {host} follows that of {wire} again"));
                }
                (false, false) => {}
            }
        }
        if seen.by_hand || host.mtu == wanted || seen.refused == Some(wanted) {
            return;
        }
        match self.set_host_mtu(&host.name, wanted) {
            Ok(()) => {
                (seen.host_mtu, seen.refused) = (wanted, None);
                lines.push(format!(
                    "the MTU of {} is {} now, and that of {} {wanted}",
                    wire.name, wire.mtu, host.name
                ));
            }
            Err(error) => {
                seen.refused = Some(wanted);
                lines.push(format!("the MTU of {} stays {}: {error}", host.name, host.mtu));
            }
        }
    }

    /// Sets the host interface's MTU, and that of a veth's far end.
    pub(super) fn set_host_mtu(&self, name: &str, mtu: u32) -> sys::Result<()> {
        if let HostEnd::Veth { far, .. } = self.host.kind {
            let far = Interface::by_index(far)?;
            if far.mtu < mtu {
                interface::set_mtu(&far.name, mtu)?;
            }
        }
        interface::set_mtu(name, mtu)
    }
}
