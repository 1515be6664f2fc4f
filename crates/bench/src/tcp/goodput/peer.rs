//! Whose TCP is at the other end.

/// Another TCP than wharf's, with its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// Linux's, with CUBIC.
    Linux,
    /// Linux's without selective acknowledgments (RFC 2018).
    LinuxNoSack,
    /// Linux's without timestamps (RFC 7323).
    LinuxNoTimestamps,
    /// Linux's without window scaling (RFC 7323).
    LinuxNoScaling,
    /// Linux's with Reno.
    LinuxReno,
    /// Linux's with BBR.
    LinuxBbr,
    /// Linux's behind an MTU of 576.
    LinuxMtu576,
    /// Linux's behind an MTU of 9000.
    LinuxMtu9000,
    /// lwIP's, as Debian builds it.
    Lwip,
    /// smoltcp's, a crate.
    Smoltcp,
    /// gVisor's, a Go module.
    Gvisor,
}

impl Peer {
    /// All, in the order in which they are shown.
    pub const ALL: [Peer; 11] = [
        Peer::Linux,
        Peer::LinuxNoSack,
        Peer::LinuxNoTimestamps,
        Peer::LinuxNoScaling,
        Peer::LinuxReno,
        Peer::LinuxBbr,
        Peer::LinuxMtu576,
        Peer::LinuxMtu9000,
        Peer::Lwip,
        Peer::Smoltcp,
        Peer::Gvisor,
    ];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Peer::Linux => "linux",
            Peer::LinuxNoSack => "linux-nosack",
            Peer::LinuxNoTimestamps => "linux-notimestamps",
            Peer::LinuxNoScaling => "linux-noscaling",
            Peer::LinuxReno => "linux-reno",
            Peer::LinuxBbr => "linux-bbr",
            Peer::LinuxMtu576 => "linux-mtu576",
            Peer::LinuxMtu9000 => "linux-mtu9000",
            Peer::Lwip => "lwip",
            Peer::Smoltcp => "smoltcp",
            Peer::Gvisor => "gvisor",
        }
    }

    /// The setting below `net.ipv4` that is turned off in its network namespace.
    pub(super) const fn turned_off(self) -> Option<&'static str> {
        match self {
            Peer::LinuxNoSack => Some("tcp_sack"),
            Peer::LinuxNoTimestamps => Some("tcp_timestamps"),
            Peer::LinuxNoScaling => Some("tcp_window_scaling"),
            _ => None,
        }
    }

    /// Linux's congestion control.
    pub(super) const fn congestion(self) -> &'static str {
        match self {
            Peer::LinuxReno => "reno",
            Peer::LinuxBbr => "bbr",
            _ => "cubic",
        }
    }

    /// Of the whole path.
    pub(super) const fn mtu(self) -> u32 {
        match self {
            Peer::LinuxMtu576 => 576,
            Peer::LinuxMtu9000 => 9000,
            _ => 1500,
        }
    }

    /// How many frames may be on the path. Those of a large MTU take more memory, and fewer are a window.
    pub(super) const fn frames(self) -> u32 {
        match self {
            Peer::LinuxMtu9000 => 2048,
            _ => 8192,
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// The peer sends.
    Send,
    /// The peer receives.
    Receive,
    /// The peer sends to a kernel: the one by itself, the other behind wharf's LRO.
    Lro,
}

impl Way {
    /// All, in the order in which they run.
    pub const ALL: [Way; 3] = [Way::Send, Way::Receive, Way::Lro];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Send => "send",
            Way::Receive => "receive",
            Way::Lro => "lro",
        }
    }

    /// What degen loses, in per cent, unless something else is asked for.
    pub(super) const fn loss(self) -> &'static str {
        match self {
            Way::Send | Way::Receive => "0.5%",
            Way::Lro => "1%",
        }
    }

    /// Whether the peer sends.
    pub(super) const fn is_send(self) -> bool {
        !matches!(self, Way::Receive)
    }

    /// Whether there is something to be learned of this peer.
    pub(super) const fn has(self, peer: Peer) -> bool {
        match self {
            Way::Send => true,
            // A receiver's congestion control has nothing to do.
            Way::Receive => !matches!(peer, Peer::LinuxReno | Peer::LinuxBbr),
            Way::Lro => matches!(peer, Peer::Linux | Peer::LinuxNoSack),
        }
    }
}
