//! The firewall and tc, of the host's interface: whether they decide about packets that the NIC would send and receive
//! past them.

use std::io;
use std::time::Instant;

use sys::netlink::changes::Change;
use sys::netlink::{nftables, traffic};
use sys::{Versions, bpf, interface, xtables};

use super::EVERY;
use super::kernel::{Kernel, Once};

/// Who decides.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Decides {
    /// Rules of the firewall, for packets of these versions.
    pub(super) rules: Versions,
    /// tc, or an XDP program.
    pub(super) traffic: bool,
}

impl Decides {
    /// The packets that somebody decides about.
    pub(super) fn all(self) -> Versions {
        if self.traffic { Versions::BOTH } else { self.rules }
    }

    fn or(self, other: Decides) -> Decides {
        Decides { rules: self.rules.or(other.rules), traffic: self.traffic || other.traffic }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Firewall {
    interface: u32,
    /// What the kernel tells of when it changes: nftables and tc.
    told: Seen,
    /// What it does not tell of: iptables as before nftables, XDP, and BPF linked to the interface.
    silent: Seen,
    cannot_look: Once,
    cannot_look_for_bpf: Once,
}

/// What was seen last, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Seen(Option<(Decides, Instant)>);

impl Seen {
    /// What was seen a moment ago at most.
    fn lately(self, now: Instant) -> Option<Decides> {
        let Seen(seen) = self;
        seen.filter(|(_, at)| now.saturating_duration_since(*at) < EVERY).map(|(seen, _)| seen)
    }

    /// What was seen a moment ago at most, or ever if that was nothing. Rules that go with their owner do so untold.
    fn last(self, now: Instant) -> Option<Decides> {
        let Seen(seen) = self;
        let nothing = seen.map(|(seen, _)| seen).filter(|seen| *seen == Decides::default());
        nothing.or(self.lately(now))
    }
}

impl Firewall {
    pub(super) fn new(interface: u32) -> Self {
        Firewall {
            interface,
            told: Seen::default(),
            silent: Seen::default(),
            cannot_look: Once::default(),
            cannot_look_for_bpf: Once::default(),
        }
    }

    /// Something has changed.
    pub(super) fn hear(&mut self, change: &Change) {
        let is_told = match change {
            Change::Overrun | Change::Nftables | Change::Traffic(None) => true,
            Change::Traffic(Some(index)) => *index == self.interface,
            // Chains are at interfaces by name.
            Change::Link { index, .. } => *index == self.interface,
            _ => false,
        };
        if is_told {
            self.told = Seen::default();
        }
    }

    /// Who decides now. Where that cannot be seen, the firewall does: it is said in the log.
    pub(super) fn look(&mut self, kernel: &mut Kernel, now: Instant) -> Decides {
        let told = match self.told.last(now) {
            Some(told) => Ok(told),
            None => self.look_at_told(kernel, now),
        };
        let silent = match self.silent.lately(now) {
            Some(silent) => Ok(silent),
            None => self.look_at_silent(kernel, now),
        };
        match (told, silent) {
            (Ok(told), Ok(silent)) => told.or(silent),
            (Err(error), _) | (_, Err(error)) => {
                self.cannot_look.warn(format_args!(
                    "{error}: nothing is handed off, unless handoff.bypass_firewall is set"
                ));
                Decides { rules: Versions::BOTH, traffic: false }
            }
        }
    }

    fn look_at_told(&mut self, kernel: &mut Kernel, now: Instant) -> sys::Result<Decides> {
        self.told = Seen::default();
        let name = interface::name(self.interface)?;
        let chains = match &mut kernel.netfilter {
            Some(netfilter) => nftables::chains(netfilter)?,
            None => Vec::new(),
        };
        // wharf's own table is at the wire, not here.
        let rules = chains.iter().map(|chain| chain.sees(&name));
        let told = Decides {
            rules: rules.fold(Versions::NONE, Versions::or),
            traffic: traffic::decides(&mut kernel.route, self.interface)?,
        };
        self.told = Seen(Some((told, now)));
        Ok(told)
    }

    fn look_at_silent(&mut self, kernel: &mut Kernel, now: Instant) -> sys::Result<Decides> {
        self.silent = Seen::default();
        let is_linked = bpf::at_interface(self.interface).or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                self.cannot_look_for_bpf.warn(format_args!(
                    "cannot look for BPF programs on the host's interface ({error}): there may be some"
                ));
                Ok(false)
            }
            _ => Err(sys::Error::new("look for BPF programs", error)),
        })?;
        let silent = Decides {
            rules: xtables::sees()?,
            traffic: is_linked || traffic::has_xdp(&mut kernel.route, self.interface)?,
        };
        self.silent = Seen(Some((silent, now)));
        Ok(silent)
    }
}
