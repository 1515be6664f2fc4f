//! What is measured, and what is compared there.

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// One-way latency: half of a round trip, by RDMA writes (figure 3).
    Latency,
    /// The same within a LAN, without the router (figure 8).
    Lan,
    /// How much of its time a client computes that does so between ping and pong (figure 5).
    Overlap,
    /// How long it takes to fetch from a node that computes, by RDMA read (figure 6).
    Progress,
    /// How long a computation takes beside clients that send to its node without pause (figure 7).
    Cpu,
    /// One-way latency of messages whose sender does not know where they belong (figure 9).
    Rendezvous,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Sockets of the kernel's TCP.
    Sockets,
    /// RDMA, as the case has it.
    Rdma,
    /// Send and receive with copies through buffers that are registered beforehand.
    Eager,
    /// A rendezvous by RDMA write (figure 9a).
    RendezvousWrite,
    /// A rendezvous by RDMA read (figure 9b).
    RendezvousRead,
}

/// Where what computes is: a machine of two CPUs has no place for what two nodes and a router have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// It has a CPU alone, and all else has the other.
    Alone,
    /// Each node has a CPU, with its program and its device; degen is on that of the server.
    Nodes,
}

impl Placement {
    /// Both.
    pub const ALL: [Placement; 2] = [Placement::Alone, Placement::Nodes];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Placement::Alone => "alone",
            Placement::Nodes => "nodes",
        }
    }
}

/// What carries the bytes of verbs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Carrier {
    /// TCP sockets of the kernel.
    Kernel,
    /// The TCP of a `wharf up` on each node.
    Nic,
}

impl Carrier {
    /// Both.
    pub const ALL: [Carrier; 2] = [Carrier::Kernel, Carrier::Nic];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Carrier::Kernel => "kernel",
            Carrier::Nic => "nic",
        }
    }
}

impl Case {
    /// All, in the order in which they are run.
    pub const ALL: [Case; 6] =
        [Case::Latency, Case::Overlap, Case::Progress, Case::Cpu, Case::Lan, Case::Rendezvous];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Latency => "latency",
            Case::Lan => "lan",
            Case::Overlap => "overlap",
            Case::Progress => "progress",
            Case::Cpu => "cpu",
            Case::Rendezvous => "rendezvous",
        }
    }

    /// Sizes of messages, unless others are asked for.
    pub(super) const fn bytes(self) -> &'static [u32] {
        match self {
            Case::Latency | Case::Lan => &[1, 1_024, 16_384],
            Case::Overlap | Case::Progress => &[1_024],
            Case::Cpu => &[16_384],
            Case::Rendezvous => &[1_024, 65_536],
        }
    }

    /// Microseconds that are computed, unless others are asked for; none where nothing computes.
    pub(super) const fn times(self) -> &'static [u32] {
        match self {
            Case::Latency | Case::Lan | Case::Rendezvous => &[],
            // Section 4.2, on figure 5(b).
            Case::Overlap => &[242_000],
            // Section 4.3, on figure 6(b).
            Case::Progress => &[16_000],
            Case::Cpu => &[500_000],
        }
    }

    /// Where what computes is.
    pub(super) const fn placements(self) -> &'static [Placement] {
        match self {
            Case::Latency | Case::Lan | Case::Rendezvous => &[Placement::Nodes],
            Case::Overlap | Case::Progress | Case::Cpu => &[Placement::Alone, Placement::Nodes],
        }
    }

    pub(super) const fn by(self) -> &'static [By] {
        match self {
            Case::Rendezvous => &[By::Sockets, By::Eager, By::RendezvousWrite, By::RendezvousRead],
            Case::Progress => &[By::Rdma, By::Sockets],
            _ => &[By::Sockets, By::Rdma],
        }
    }
}

impl By {
    /// Its name in figures.
    pub const fn name(self) -> &'static str {
        match self {
            By::Sockets => "sockets",
            By::Rdma => "rdma",
            By::Eager => "eager",
            By::RendezvousWrite => "rendezvous_write",
            By::RendezvousRead => "rendezvous_read",
        }
    }

    /// Whose work it is: `kernel` or `wharf`.
    pub(super) const fn system(self) -> &'static str {
        match self {
            By::Sockets => "kernel",
            _ => "wharf",
        }
    }
}
