//! Why a connection stays at the OS, and why it returns there.

use crate::named::named;
use crate::{Counts, Named};

named! {
    /// Why a connection is not handed off.
    pub enum Refusal {
        /// It is an MPTCP subflow (`TCP_REPAIR` does not take these).
        Mptcp = "mptcp",
        /// Segments are authenticated by the TCP Authentication Option (RFC 5925).
        TcpAo = "tcp_ao",
        /// Segments are signed by TCP MD5 (RFC 2385).
        Md5 = "md5",
        /// An upper layer protocol is attached (`TCP_ULP`).
        Ulp = "ulp",
        /// The kernel encrypts it (kTLS).
        Ktls = "ktls",
        /// The socket is in a sockmap.
        Sockmap = "sockmap",
        /// A filter is attached to the socket (`SO_ATTACH_FILTER`, `SO_ATTACH_BPF`).
        SocketFilter = "socket_filter",
        /// BPF programs of a control group see what the socket does.
        CgroupBpf = "cgroup_bpf",
        /// Its packets carry a mark (`SO_MARK`).
        Mark = "mark",
        /// It is bound to another interface (`SO_BINDTODEVICE`).
        BoundElsewhere = "bound_elsewhere",
        /// IPsec applies to it (xfrm(8)).
        Ipsec = "ipsec",
        /// Its packets carry IP options, or extension headers of IPv6.
        IpOptions = "ip_options",
        /// Peeks of its program begin where the last one ended (`SO_PEEK_OFF`).
        PeekOffset = "peek_offset",
        /// Its socket has an option by which a call receives otherwise (`SO_TIMESTAMP` and its kin, `TCP_INQ`,
        /// `SO_RCVLOWAT`), or by which packets leave or are taken otherwise (`SO_PRIORITY`, `IP_TOS`, `SO_RCVBUF` and others).
        Options = "options",
        /// Its addresses or ports are translated.
        Nat = "nat",
        /// conntrack follows its payload by a helper.
        ConntrackHelper = "conntrack_helper",
        /// The firewall has rules for what this machine sends or receives.
        Firewall = "firewall",
        /// tc has filters or a discipline that does more than queue on the host's interface, or there is an XDP program.
        TrafficControl = "traffic_control",
        /// It is in another network namespace than wharf.
        Namespace = "namespace",
        /// Its route leads through another interface.
        Route = "route",
        /// It is in a state from which it cannot be taken: it is being opened, or in TIME-WAIT, or does not stand still.
        State = "state",
        /// It has urgent data that was not read.
        Urgent = "urgent",
        /// What the kernel says of it contradicts itself.
        Invalid = "invalid",
        /// Its user has as many connections on the NIC as the quota allows.
        Quota = "quota",
        /// The NIC has as many connections as it takes.
        Connections = "connections",
        /// The NIC has no memory for its buffers.
        Memory = "memory",
        /// It has more queued than the memory that it would share with its program holds.
        Buffer = "buffer",
        /// The queue of commands is full, or the guard does not hear of connections fast enough.
        Queue = "queue",
        /// wharf is stopping.
        Stopping = "stopping",
        /// The NIC has no time for more (OSDI'06).
        Load = "load",
        /// wharf may not bind its port, by which it would be put back (`CAP_NET_BIND_SERVICE`).
        Port = "port",
        /// wharf did not answer in time, and the application has withdrawn the offer.
        Withdrawn = "withdrawn",
        /// Its process uses io_uring, whose calls do not go through libc.
        IoUring = "io_uring",
    }
}

named! {
    /// Why a connection returns to the OS.
    pub enum RestoreReason = Command {
        /// `wharf handoff --to os`.
        Command = "command",
        /// wharf is stopping.
        Stopping = "stopping",
        /// The link is down.
        LinkDown = "link_down",
        /// Its route leads through another interface or gateway (the paper's rule, section 3.3).
        Route = "route",
        /// Its local address has gone.
        Address = "address",
        /// The MTU of the interface has changed.
        Mtu = "mtu",
        /// The firewall, tc, IPsec or BPF of its control group has rules now that its packets would meet in the kernel.
        Firewall = "firewall",
        /// The NIC has too many connections.
        Connections = "connections",
        /// The NIC is short of memory.
        Memory = "memory",
        /// The NIC is short of places in queues.
        Queue = "queue",
        /// The NIC has no time for so many (OSDI'06).
        Load = "load",
        /// It is in TIME-WAIT (the paper's example, section 3.3).
        TimeWait = "time_wait",
        /// The application asked for urgent data (`MSG_OOB`), or its peer has sent some.
        Urgent = "urgent",
        /// The application asked for `MSG_ZEROCOPY`.
        ZeroCopy = "zerocopy",
        /// Its descriptor is in a nested epoll, or in one with `EPOLLEXCLUSIVE`.
        Epoll = "epoll",
        /// Two processes use it after fork(2).
        Fork = "fork",
        /// It outlives execve(2).
        Exec = "exec",
        /// Its descriptor was sent to another process (`SCM_RIGHTS`).
        Passed = "passed",
        /// A call that the bypass layer does not serve.
        Unserved = "unserved",
        /// The application set what the NIC does not do, one of the reasons of [`Refusal`].
        Refused = "refused",
        /// The handoff was called off before it was complete.
        CalledOff = "called_off",
        /// wharf was killed, and its guard has put the connection back.
        Killed = "killed",
        /// Its process uses io_uring, whose calls do not go through libc.
        IoUring = "io_uring",
    }
}

impl Refusal {
    /// Whether what stands in the way may go by itself, so that the connection can be offered again.
    pub fn passes(self) -> bool {
        use Refusal::{
            Buffer, CgroupBpf, Connections, Firewall, Ipsec, Load, Memory, Queue, Quota, Route,
            State, TrafficControl, Withdrawn,
        };
        let of_host = matches!(self, Firewall | TrafficControl | Ipsec | CgroupBpf | Route);
        let of_nic = matches!(self, Connections | Memory | Buffer | Queue | Load | Withdrawn);
        of_host || of_nic || matches!(self, State | Quota)
    }
}

impl RestoreReason {
    /// Whether it has nothing to do with what the application does or somebody wants, and may be over by itself.
    pub fn passes(self) -> bool {
        use RestoreReason::{
            Address, Connections, Firewall, LinkDown, Load, Memory, Mtu, Queue, Route,
        };
        let of_host = matches!(self, LinkDown | Route | Address | Mtu | Firewall);
        of_host || matches!(self, Connections | Memory | Queue | Load)
    }
}

/// Refusals by reason.
pub type RefusalCounts = Counts<Refusal, { Refusal::ALL.len() }>;
/// Restores by reason.
pub type RestoreCounts = Counts<RestoreReason, { RestoreReason::ALL.len() }>;
