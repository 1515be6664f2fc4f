//! The table of keys.

use super::fields::{MS, S, US, first_of, number, second_of, zero_or, zero_or_power_of_two};
use super::keys::{Key, Kind, Unit};
use super::{AccessMode, GsoHardware, HostKind, LroProfile, WireMode, XdpMode, ZeroCopy};

/// Every setting of wharf.
pub static KEYS: &[Key] = &[
    Key {
        name: "workers",
        kind: zero_or("one per wire queue", 1, 64, Unit::Count),
        run_time: false,
        help: "threads that move packets, each with one wire queue and one host queue (the \
               paper's multiple Rx rings)",
        field: number!(workers),
    },
    Key {
        name: "wire.mode",
        kind: first_of::<WireMode>(),
        run_time: false,
        help: "kernel interface to the wire: AF_XDP or AF_PACKET; auto takes AF_XDP where it \
               works",
        field: choice!(wire.mode),
    },
    Key {
        name: "wire.transmit",
        kind: first_of::<WireMode>(),
        run_time: false,
        help: "kernel interface by which a wire that is received from by AF_XDP is sent to; auto takes \
               AF_PACKET where AF_XDP copies each frame and super-packets may go whole (gso.hardware)",
        field: choice!(wire.transmit),
    },
    Key {
        name: "wire.xdp",
        kind: first_of::<XdpMode>(),
        run_time: false,
        help: "where the XDP program runs: in the driver or in the kernel's generic path",
        field: choice!(wire.xdp),
    },
    Key {
        name: "wire.zero_copy",
        kind: first_of::<ZeroCopy>(),
        run_time: false,
        help: "whether the driver may use wharf's memory itself (XDP_ZEROCOPY)",
        field: choice!(wire.zero_copy),
    },
    Key {
        name: "wire.frames",
        kind: zero_or_power_of_two(
            "65536 shared by the workers, at least 16384 each",
            1024,
            131_072,
        ),
        run_time: false,
        help: "frames of memory per worker, of 2 KB for an MTU of 1500; LRO may hold three eighths",
        field: number!(wire.frames),
    },
    Key {
        name: "wire.ring",
        kind: zero_or_power_of_two("half of wire.frames", 64, 32_768),
        run_time: false,
        help: "frames that may wait to be received from an AF_XDP queue (ethtool -g calls it rx), \
               of which 8192 do unless many connections have something there; at most half of \
               wire.frames",
        field: number!(wire.ring),
    },
    Key {
        name: "host.kind",
        kind: first_of::<HostKind>(),
        run_time: false,
        help: "what the host's interface is made of; auto takes a TAP where there is \
               /dev/net/tun",
        field: choice!(host.kind),
    },
    Key {
        name: "host.mtu",
        kind: zero_or("the wire's", 576, 65_535, Unit::Bytes),
        run_time: false,
        help: "MTU of the host's interface, of which a TAP takes 65521 at most; over the wire's it lets \
               the host hand over datagrams that become fragments, and is not for hosts that forward \
               the packets of others",
        field: number!(host.mtu),
    },
    Key {
        name: "host.queues",
        kind: zero_or("one per worker", 1, 64, Unit::Count),
        run_time: false,
        help: "queues of the host's interface; workers share them if there are fewer, and only \
               one worker a queue then takes what the host sends",
        field: number!(host.queues),
    },
    Key {
        name: "host.requests",
        kind: number(64, 1, 16_384, Unit::Count),
        run_time: false,
        help: "packets of each worker that may wait for a shared host queue before the worker \
               leaves the wire alone; the queue takes one of each worker in turn (the paper's DMA \
               load balance, section V.B)",
        field: number!(host.requests),
    },
    Key {
        name: "lro.enable",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "join received TCP segments (large-receive-offload in ethtool -k)",
        field: boolean!(lro.enable),
    },
    Key {
        name: "lro.profile",
        kind: first_of::<LroProfile>(),
        run_time: true,
        help: "endpoint: for a host that terminates TCP; lossless: what Linux GRO may merge, \
               for routers and bridges; auto: lossless, and no active ACK, while this host forwards \
               or its interface is in a bridge, else endpoint",
        field: choice!(lro.profile),
    },
    Key {
        name: "lro.max_aggregate",
        kind: number(65_535, 1_500, 65_535, Unit::Bytes),
        run_time: true,
        help: "largest IP packet that LRO makes (the paper's 64 KB threshold; gro_max_size in \
               ip link)",
        field: number!(lro.max_aggregate),
    },
    Key {
        name: "lro.max_segments",
        kind: number(512, 2, 1_000, Unit::Count),
        run_time: true,
        help: "most segments in one packet that LRO makes; a writev takes 1024 slices",
        field: number!(lro.max_segments),
    },
    Key {
        name: "lro.timeout_factor",
        kind: number(10, 1, 1_000, Unit::Count),
        run_time: true,
        help: "a connection that is idle for so many times its average interval between segments \
               has timed out: LRO flushes what it holds (the paper, section IV.E)",
        field: number!(lro.timeout_factor),
    },
    Key {
        name: "lro.min_timeout",
        kind: number(20 * US, 0, 100 * MS, Unit::Nanoseconds),
        run_time: true,
        help: "no connection times out before this; over lro.max_timeout it counts as that",
        field: number!(lro.min_timeout),
    },
    Key {
        name: "lro.max_timeout",
        kind: number(2 * MS, US, 100 * MS, Unit::Nanoseconds),
        run_time: true,
        help: "longest time that LRO holds a segment back (gro_flush_timeout in sysfs)",
        field: number!(lro.max_timeout),
    },
    Key {
        name: "lro.hole_timeout",
        kind: number(2 * MS, 0, 100 * MS, Unit::Nanoseconds),
        run_time: true,
        help: "longest time that LRO waits for a missing segment (endpoint profile only), of a \
               connection whose segments come late; of others, and with 0 of all, the host sees at \
               once that one is missing; over lro.max_timeout it counts as that",
        field: number!(lro.hole_timeout),
    },
    Key {
        name: "lro.flush_on_psh",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "flush what a PSH completes as soon as the wire has nothing more waiting",
        field: boolean!(lro.flush_on_psh),
    },
    Key {
        name: "lro.active_ack",
        kind: first_of::<lro::ActiveAck>(),
        run_time: true,
        help: "acknowledge data that LRO holds (the paper, section V.C), only within the window \
               that the host has advertised. For connections that begin while it is on, where \
               workers do not share a host queue. Acknowledged data is lost if wharf is killed while it holds it",
        field: choice!(lro.active_ack),
    },
    Key {
        name: "lro.udp",
        kind: Kind::Bool { default: false },
        run_time: true,
        help: "join UDP datagrams of equal size, too (rx-udp-gro-forwarding in ethtool -k)",
        field: boolean!(lro.udp),
    },
    Key {
        name: "lro.flows",
        kind: number(4_096, 1, 1_048_576, Unit::Count),
        run_time: false,
        help: "connections that each worker remembers (the paper's ConnectionTable)",
        field: number!(lro.flows),
    },
    Key {
        name: "gso.enable",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "take super-packets from the host and cut them (the slides' \
               net.gso.dev.IF.enable_gso)",
        field: boolean!(gso.enable),
    },
    Key {
        name: "gso.tcp",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "those of TCP (net.inet.tcp.gso; tcp-segmentation-offload in ethtool -k)",
        field: boolean!(gso.tcp),
    },
    Key {
        name: "gso.udp",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "those of UDP (net.inet.udp.gso): datagrams of one size (tx-udp-segmentation), and, \
               where host.mtu is over the wire's, datagrams that become IP fragments",
        field: boolean!(gso.udp),
    },
    Key {
        name: "gso.max_burst",
        kind: number(65_535, 1_500, 65_535, Unit::Bytes),
        run_time: true,
        help: "largest packet that the host hands over, and so the longest burst on the wire (the \
               slides' net.gso.dev.IF.max_burst; gso_max_size in ip link)",
        field: number!(gso.max_burst),
    },
    Key {
        name: "gso.hardware",
        kind: first_of::<GsoHardware>(),
        run_time: true,
        help: "auto: leave super-packets that the wire's interface can cut to it, where \
               AF_PACKET sends (wire.transmit); kernel: leave all to the kernel there, which cuts what the \
               interface cannot; off: cut all in wharf",
        field: choice!(gso.hardware),
    },
    Key {
        name: "tcp.congestion",
        kind: first_of::<tcp::Algorithm>(),
        run_time: false,
        help: "congestion control: CUBIC (RFC 9438) or NewReno (RFC 6582); tcp_congestion_control \
               in net.ipv4",
        field: choice!(tcp.congestion),
    },
    Key {
        name: "tcp.ecn",
        kind: second_of::<tcp::Ecn>(),
        run_time: false,
        help: "explicit congestion notification (RFC 3168): off, passive: where the peer asks for \
               it, on: asked for as well (tcp_ecn in net.ipv4)",
        field: choice!(tcp.ecn),
    },
    Key {
        name: "tcp.timestamps",
        kind: Kind::Bool { default: true },
        run_time: false,
        help: "offer timestamps (RFC 7323; tcp_timestamps in net.ipv4)",
        field: boolean!(tcp.timestamps),
    },
    Key {
        name: "tcp.sack",
        kind: Kind::Bool { default: true },
        run_time: false,
        help: "offer selective acknowledgments (RFC 2018; tcp_sack in net.ipv4)",
        field: boolean!(tcp.sack),
    },
    Key {
        name: "tcp.window_scaling",
        kind: Kind::Bool { default: true },
        run_time: false,
        help: "offer windows over 64 KB (RFC 7323; tcp_window_scaling in net.ipv4)",
        field: boolean!(tcp.window_scaling),
    },
    Key {
        name: "tcp.mtu",
        kind: zero_or("the interface's", 68, 65_535, Unit::Bytes),
        run_time: false,
        help: "longest IP packet that the engine makes",
        field: number!(tcp.mtu),
    },
    Key {
        name: "tcp.mss",
        kind: zero_or("what the MTU gives", 48, 65_495, Unit::Bytes),
        run_time: false,
        help: "largest segment to announce and to send (TCP_MAXSEG)",
        field: number!(tcp.mss),
    },
    Key {
        name: "tcp.probe_mtu",
        kind: Kind::Bool { default: false },
        run_time: false,
        help: "look for the path's MTU by probes (RFC 4821; tcp_mtu_probing in net.ipv4)",
        field: boolean!(tcp.probe_mtu),
    },
    Key {
        name: "tcp.burst",
        kind: number(65_415, 0, 65_415, Unit::Bytes),
        run_time: false,
        help: "most payload of a super-packet; one segment is sent in any case",
        field: number!(tcp.burst),
    },
    Key {
        name: "tcp.send_buffer",
        kind: number(4 << 20, 2_048, 1 << 30, Unit::Bytes),
        run_time: false,
        help: "most bytes of a connection that wait to be sent or acknowledged (SO_SNDBUF)",
        field: number!(tcp.send_buffer),
    },
    Key {
        name: "tcp.receive_buffer",
        kind: number(64 << 10, 2_048, 1 << 30, Unit::Bytes),
        run_time: false,
        help: "receive window of a connection at its beginning (SO_RCVBUF)",
        field: number!(tcp.receive_buffer),
    },
    Key {
        name: "tcp.receive_buffer_max",
        kind: number(6 << 20, 2_048, 1 << 30, Unit::Bytes),
        run_time: false,
        help: "how far the receive window grows while the service keeps up (tcp_rmem in net.ipv4)",
        field: number!(tcp.receive_buffer_max),
    },
    Key {
        name: "tcp.initial_window",
        kind: zero_or("10 within 14600 bytes, or two", 1, 64, Unit::Count),
        run_time: false,
        help: "segments that are sent before the first acknowledgment (initcwnd in ip route); by \
               default those of RFC 6928, where Linux sends 10 of any MSS",
        field: number!(tcp.initial_window),
    },
    Key {
        name: "tcp.no_delay",
        kind: Kind::Bool { default: false },
        run_time: false,
        help: "send small segments at once, without Nagle's algorithm (TCP_NODELAY)",
        field: boolean!(tcp.no_delay),
    },
    Key {
        name: "tcp.delayed_ack",
        kind: number(40 * MS, 0, 500 * MS, Unit::Nanoseconds),
        run_time: false,
        help: "longest time that an acknowledgment is held back (RFC 9293 section 3.8.6.3)",
        field: number!(tcp.delayed_ack),
    },
    Key {
        name: "tcp.initial_rto",
        kind: number(S, 10 * MS, 60 * S, Unit::Nanoseconds),
        run_time: false,
        help: "retransmission time-out before the first measurement (RFC 6298)",
        field: number!(tcp.initial_rto),
    },
    Key {
        name: "tcp.min_rto",
        kind: number(200 * MS, MS, 60 * S, Unit::Nanoseconds),
        run_time: false,
        help: "smallest retransmission time-out (rto_min in ip route)",
        field: number!(tcp.min_rto),
    },
    Key {
        name: "tcp.max_rto",
        kind: number(120 * S, S, 600 * S, Unit::Nanoseconds),
        run_time: false,
        help: "largest retransmission time-out (RFC 6298 section 2.5)",
        field: number!(tcp.max_rto),
    },
    Key {
        name: "tcp.syn_retries",
        kind: number(6, 0, 127, Unit::Count),
        run_time: false,
        help: "times that a SYN is sent again (tcp_syn_retries in net.ipv4)",
        field: number!(tcp.syn_retries),
    },
    Key {
        name: "tcp.syn_ack_retries",
        kind: number(5, 0, 127, Unit::Count),
        run_time: false,
        help: "times that a SYN-ACK is sent again (tcp_synack_retries in net.ipv4)",
        field: number!(tcp.syn_ack_retries),
    },
    Key {
        name: "tcp.retries",
        kind: number(15, 1, 127, Unit::Count),
        run_time: false,
        help: "times that data is sent again before the connection is given up (tcp_retries2 in \
               net.ipv4)",
        field: number!(tcp.retries),
    },
    Key {
        name: "tcp.user_timeout",
        kind: zero_or("what retries gives", MS, 86_400 * S, Unit::Nanoseconds),
        run_time: false,
        help: "how long data may stay unacknowledged (RFC 5482; TCP_USER_TIMEOUT)",
        field: number!(tcp.user_timeout),
    },
    Key {
        name: "tcp.user_timeout_option",
        kind: Kind::Bool { default: false },
        run_time: false,
        help: "send the user timeout to the peer, and obey the peer's (RFC 5482)",
        field: boolean!(tcp.user_timeout_option),
    },
    Key {
        name: "tcp.keepalive",
        kind: zero_or("none", S, 32_767 * S, Unit::Nanoseconds),
        run_time: false,
        help: "idle time after which keepalive probes are sent (TCP_KEEPIDLE)",
        field: number!(tcp.keepalive),
    },
    Key {
        name: "tcp.keepalive_interval",
        kind: number(75 * S, S, 32_767 * S, Unit::Nanoseconds),
        run_time: false,
        help: "time between two keepalive probes (TCP_KEEPINTVL)",
        field: number!(tcp.keepalive_interval),
    },
    Key {
        name: "tcp.keepalive_probes",
        kind: number(9, 1, 127, Unit::Count),
        run_time: false,
        help: "unanswered keepalive probes after which the connection is given up (TCP_KEEPCNT)",
        field: number!(tcp.keepalive_probes),
    },
    Key {
        name: "tcp.time_wait",
        kind: number(60 * S, 0, 600 * S, Unit::Nanoseconds),
        run_time: false,
        help: "how long TIME-WAIT lasts: twice the maximum segment lifetime (RFC 9293 section \
               3.4.2)",
        field: number!(tcp.time_wait),
    },
    Key {
        name: "tcp.fin_wait_2",
        kind: number(60 * S, MS, 600 * S, Unit::Nanoseconds),
        run_time: false,
        help: "how long an end that was closed waits for the peer's FIN (tcp_fin_timeout in \
               net.ipv4)",
        field: number!(tcp.fin_wait_2),
    },
    Key {
        name: "tcp.urgent_inline",
        kind: Kind::Bool { default: false },
        run_time: false,
        help: "the urgent byte stays in the stream (SO_OOBINLINE)",
        field: boolean!(tcp.urgent_inline),
    },
    Key {
        name: "tcp.half_open",
        kind: number(1_024, 1, 1_048_576, Unit::Count),
        run_time: false,
        help: "connections that may be half open before SYN cookies are sent (tcp_max_syn_backlog \
               in net.ipv4)",
        field: number!(tcp.half_open),
    },
    Key {
        name: "tcp.connections",
        kind: number(1_048_576, 1, 16_777_216, Unit::Count),
        run_time: false,
        help: "most connections of a worker",
        field: number!(tcp.connections),
    },
    Key {
        name: "tcp.memory",
        kind: zero_or("a quarter of the machine's", 1 << 20, 1 << 40, Unit::Bytes),
        run_time: false,
        help: "most memory of all connections together: the windows that they offer, what has come and is \
               unread, and what is to be sent (tcp_mem in net.ipv4)",
        field: number!(tcp.memory),
    },
    Key {
        name: "poll.spin",
        kind: number(100 * US, 0, 10 * MS, Unit::Nanoseconds),
        run_time: true,
        help: "how long an idle worker looks for packets before it sleeps, at most; as long as \
               packets have come so soon lately (halt_poll_ns of KVM, busy_poll of net.core)",
        field: number!(poll.spin),
    },
    Key {
        name: "poll.batch",
        kind: number(64, 1, 256, Unit::Count),
        run_time: false,
        help: "most frames taken from a port at once (NAPI's weight); a turn takes one batch from the \
               host, and up to 16 for it from the wire",
        field: number!(poll.batch),
    },
    Key {
        name: "handoff.policy",
        kind: Kind::Policy { default: "learned" },
        run_time: true,
        help: "which connections move to the NIC, and when, of programs that `wharf run` has started without \
               a policy of their own",
        field: policy!(handoff.policy),
    },
    Key {
        name: "handoff.connections",
        kind: Kind::Number {
            default: 4096,
            min: 1,
            max: 65_536,
            unit: Unit::Count,
            power_of_two: false,
            zero: Some("none"),
        },
        run_time: false,
        help: "most connections of the host's that the NIC runs (connection-handoff, section 3.3), of \
               programs that `wharf run` has started",
        field: number!(handoff.connections),
    },
    Key {
        name: "handoff.connections_per_uid",
        kind: zero_or("no bound", 1, 65_536, Unit::Count),
        run_time: false,
        help: "most of them that one user has, by the user of the program's process",
        field: number!(handoff.connections_per_uid),
    },
    Key {
        name: "handoff.sessions_per_uid",
        kind: Kind::Number {
            default: 512,
            min: 1,
            max: 1024,
            unit: Unit::Count,
            power_of_two: false,
            zero: Some("no bound"),
        },
        run_time: false,
        help: "most processes of one user that may offer connections at a time; root and the user that runs wharf have no such bound",
        field: number!(handoff.sessions_per_uid),
    },
    Key {
        name: "handoff.buffer",
        kind: Kind::Number {
            default: 4 << 20,
            min: 4096,
            max: 64 << 20,
            unit: Unit::Bytes,
            power_of_two: true,
            zero: None,
        },
        run_time: false,
        help: "most bytes each way that a connection on the NIC shares with its application",
        field: number!(handoff.buffer),
    },
    Key {
        name: "handoff.bypass_firewall",
        kind: Kind::Bool { default: false },
        run_time: false,
        help: "hand off connections whose packets a firewall, tc or XDP on the host's interface would see, \
               and does not see then",
        field: boolean!(handoff.bypass_firewall),
    },
    Key {
        name: "handoff.load",
        kind: Kind::Bool { default: true },
        run_time: true,
        help: "a worker that is saturated gives connections back and takes no more, until it has time again \
               (OSDI'06: load control)",
        field: boolean!(handoff.load),
    },
    Key {
        name: "handoff.load_high",
        kind: number(8192, 1, 1 << 20, Unit::Count),
        run_time: true,
        help: "frames that wait on the wire on average, above which a worker is saturated, if they are more than \
               32 for each of its connections as well",
        field: number!(handoff.load_high),
    },
    Key {
        name: "handoff.load_low",
        kind: number(512, 0, 1 << 20, Unit::Count),
        run_time: true,
        help: "frames that wait on average, up to which it may take more connections again",
        field: number!(handoff.load_low),
    },
    Key {
        name: "handoff.load_busy",
        kind: number(90, 0, 100, Unit::Count),
        run_time: true,
        help: "percent of its time in which a worker works at least when it is saturated",
        field: number!(handoff.load_busy),
    },
    Key {
        name: "control.mode",
        kind: first_of::<AccessMode>(),
        run_time: false,
        help: "mode of the control socket's file: who may ask; only root may change settings",
        field: choice!(control.mode),
    },
    Key {
        name: "control.group",
        kind: number(0, 0, u32::MAX as u64 - 1, Unit::Group),
        run_time: false,
        help: "group of the control socket's file, by name or number",
        field: number!(control.group),
    },
];
