//! Whose TCP it is, and what it is reached by.

/// A TCP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// Linux's.
    Kernel,
    /// This project's.
    Wharf,
    /// smoltcp's, a crate.
    Smoltcp,
}

impl System {
    /// All, in the order in which they are shown.
    pub const ALL: [System; 3] = [System::Kernel, System::Wharf, System::Smoltcp];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            System::Kernel => "kernel",
            System::Wharf => "wharf",
            System::Smoltcp => "smoltcp",
        }
    }
}

/// What joins it to the client, which is a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// A veth pair without offloads: every frame is one of the MTU's size with its checksum.
    Veth,
    /// A veth pair as it is made: what is sent stays whole, and has no checksum.
    VethOffloads,
    /// A TAP without offloads.
    Tap,
    /// A TAP with `virtio_net_hdr`: what is sent stays whole, and has no checksum.
    TapOffloads,
    /// Two veth pairs without offloads and degen between them.
    Wan,
    /// degen in virtual time; at the other end is the same TCP.
    Virtual,
}

impl Link {
    /// All.
    pub const ALL: [Link; 6] =
        [Link::Veth, Link::VethOffloads, Link::Tap, Link::TapOffloads, Link::Wan, Link::Virtual];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Link::Veth => "veth",
            Link::VethOffloads => "veth_offloads",
            Link::Tap => "tap",
            Link::TapOffloads => "tap_offloads",
            Link::Wan => "wan",
            Link::Virtual => "virtual",
        }
    }

    pub(super) const fn is_tap(self) -> bool {
        matches!(self, Link::Tap | Link::TapOffloads)
    }

    pub(super) const fn has_offloads(self) -> bool {
        matches!(self, Link::VethOffloads | Link::TapOffloads)
    }
}

/// The systems under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Contender {
    pub(super) system: System,
    pub(super) link: Link,
}

impl Contender {
    /// Those that are measured beside each other.
    pub(super) const PLAIN: [Contender; 4] = [
        Contender { system: System::Kernel, link: Link::Veth },
        Contender { system: System::Wharf, link: Link::Veth },
        Contender { system: System::Smoltcp, link: Link::Tap },
        Contender { system: System::Wharf, link: Link::Tap },
    ];
    /// Those beside them that show what offloads are worth.
    pub(super) const OFFLOADS: [Contender; 3] = [
        Contender { system: System::Kernel, link: Link::VethOffloads },
        Contender { system: System::Wharf, link: Link::VethOffloads },
        Contender { system: System::Wharf, link: Link::TapOffloads },
    ];

    /// Those that have a WAN between them and the client.
    pub(super) const WAN: [Contender; 3] = [
        Contender { system: System::Kernel, link: Link::Wan },
        Contender { system: System::Wharf, link: Link::Wan },
        Contender { system: System::Wharf, link: Link::Virtual },
    ];

    /// Whom `self` is compared with, and the name of that ratio. smoltcp knows no link but a TAP without
    /// offloads, the kernel none but a veth.
    pub(super) fn rivals(self) -> Vec<(&'static str, Contender)> {
        if self.system != System::Wharf {
            return Vec::new();
        }
        let link = match self.link {
            Link::Veth | Link::Tap => Link::Veth,
            Link::VethOffloads | Link::TapOffloads => Link::VethOffloads,
            Link::Wan | Link::Virtual => Link::Wan,
        };
        vec![
            ("times_kernel", Contender { system: System::Kernel, link }),
            ("times_smoltcp", Contender { system: System::Smoltcp, link: Link::Tap }),
        ]
    }
}
