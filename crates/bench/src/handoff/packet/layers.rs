//! The layer that a sample of a CPU belongs to, by the functions that were active.

/// A layer of the host's stack, as Figure 7 has them, or a part of the NIC's, as Table 2 has them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::handoff) enum Layer {
    /// Of the host: entering the kernel, and what is above sockets.
    SystemCall,
    /// The sockets' layer.
    Socket,
    Tcp,
    Ip,
    Ethernet,
    /// The TAP's driver.
    Driver,
    /// `libwharf.so`.
    Bypass,
    /// The program itself, which the paper's figure leaves out.
    Application,
    /// Of the NIC: connections and commands.
    NicHandoff,
    /// Of that, what is committed to the mirror.
    NicMirror,
    NicTcp,
    /// Headers, LRO, GSO, steering and the queues of frames.
    NicIpEthernet,
    /// The kernel's part of the wire's port, copies, and the rest.
    NicOther,
}

use Layer::{
    Application, Bypass, Driver, Ethernet, Ip, NicHandoff, NicIpEthernet, NicMirror, NicOther,
    NicTcp, Socket, SystemCall, Tcp,
};

impl Layer {
    /// Those of the host.
    pub(super) const HOST: [Layer; 8] =
        [SystemCall, Socket, Tcp, Ip, Ethernet, Driver, Bypass, Application];
    /// Those of the NIC.
    pub(in crate::handoff) const NIC: [Layer; 4] = [NicHandoff, NicTcp, NicIpEthernet, NicOther];
    /// Those that are a part of another.
    pub(super) const PARTS: [Layer; 1] = [NicMirror];

    /// The layer that this one is a part of, or itself.
    pub(in crate::handoff) const fn whole(self) -> Layer {
        if let NicMirror = self { NicHandoff } else { self }
    }

    /// The metric of its time a packet.
    pub(super) const fn metric(self) -> &'static str {
        match self {
            SystemCall => "system_call_time_per_packet",
            Socket => "socket_time_per_packet",
            Tcp => "tcp_time_per_packet",
            Ip => "ip_time_per_packet",
            Ethernet => "ethernet_time_per_packet",
            Driver => "driver_time_per_packet",
            Bypass => "bypass_time_per_packet",
            Application => "application_time_per_packet",
            NicHandoff => "nic_handoff_time_per_packet",
            NicMirror => "nic_mirror_time_per_packet",
            NicTcp => "nic_tcp_time_per_packet",
            NicIpEthernet => "nic_ip_ethernet_time_per_packet",
            NicOther => "nic_other_time_per_packet",
        }
    }
}

/// Whose thread was sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Whose {
    Program,
    Worker,
}

/// A function of a call chain, and the file that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) file: &'a str,
}

impl Function<'_> {
    /// Whether it is the kernel's, or a module's of it.
    pub(super) fn is_kernel(&self) -> bool {
        self.file.starts_with("[kernel") || self.file.ends_with(".ko")
    }
}

/// What the functions of the kernel begin with, by layer. What is none of these (locks, memory, copies) is of the layer
/// that called it.
const KERNEL: [(Layer, &[&str]); 6] = [
    (Tcp, &["tcp_", "__tcp_", "cubictcp_", "bictcp_", "inet_csk_", "__inet_lookup", "inet_lookup"]),
    (
        Ip,
        &["ip_", "__ip_", "ipv4_", "ip6_", "ipv6_", "nf_", "fib_", "inet_gso", "inet_gro", "ip4_"],
    ),
    (Driver, &["tun_", "__tun_"]),
    (
        Ethernet,
        &[
            "dev_",
            "__dev_",
            "netif_",
            "__netif_",
            "sch_",
            "__qdisc",
            "qdisc_",
            "pfifo_",
            "fq_",
            "eth_",
            "neigh_",
            "validate_xmit",
            "skb_mac_gso",
            "skb_gso",
            "napi_",
            "gro_",
        ],
    ),
    (
        Socket,
        &[
            "sock_",
            "__sock_",
            "inet_send",
            "inet_recv",
            "inet6_send",
            "inet6_recv",
            "security_socket",
        ],
    ),
    (
        SystemCall,
        &[
            "entry_SYSCALL",
            "do_syscall",
            "__x64_sys",
            "__se_sys",
            "ksys_",
            "vfs_",
            "ep_",
            "do_epoll",
            "__sys_",
            "x64_sys_call",
            "syscall_",
            "__do_sys",
        ],
    ),
];

/// What the functions of wharf begin with, by part.
const NIC: [(Layer, &[&str]); 4] = [
    (
        NicMirror,
        &["handoff::mirror", "<handoff::mirror", "nic::mirror", "nic::lane::handoff::records"],
    ),
    (NicTcp, &["tcp::", "<tcp::", "nic::lane::engine"]),
    (
        NicHandoff,
        &["handoff::", "<handoff::", "nic::lane::handoff", "<nic::lane::handoff", "nic::given"],
    ),
    (
        NicIpEthernet,
        &[
            "wire::",
            "<wire::",
            "lro::",
            "<lro::",
            "gso::",
            "<gso::",
            "nic::wire_queue",
            "nic::steer",
            "nic::port",
            "<nic::port",
            "nic::lane",
        ],
    ),
];

/// The functions that a port of the host's enters the host's stack by.
const TAP: &str = "tun_get_user";
/// The functions that the stack of any host works in for whom a thread happens to be interrupted.
const INTERRUPTED: [&str; 2] = ["net_rx_action", "net_tx_action"];

/// The layer of a sample, whose functions come from the innermost to the outermost; `None` for what is done
/// for others meanwhile.
pub(super) fn layer(whose: Whose, chain: &[Function<'_>]) -> Option<Layer> {
    let kernel: Vec<&Function<'_>> = chain.iter().take_while(|f| f.is_kernel()).collect();
    let first =
        |names: &[&str]| kernel.iter().position(|f| names.iter().any(|n| f.name.starts_with(n)));
    let (tap, interrupted) = (first(&[TAP]), first(&INTERRUPTED));
    let is_for_others = interrupted.is_some_and(|at| tap.is_none_or(|tap| at < tap));
    match whose {
        Whose::Program if is_for_others => None,
        Whose::Worker if tap.is_none() || is_for_others => Some(of_nic(chain)),
        _ if !kernel.is_empty() => Some(of_host(&kernel)),
        _ if chain.first().is_some_and(|f| f.file.contains("libwharf")) => Some(Bypass),
        _ => Some(Application),
    }
}

fn of_host(kernel: &[&Function<'_>]) -> Layer {
    let of = |function: &&Function<'_>| named(&KERNEL, function.name);
    kernel.iter().find_map(of).unwrap_or(SystemCall)
}

fn of_nic(chain: &[Function<'_>]) -> Layer {
    of_worker(chain.first().map(|function| function.name))
}

/// The part of the NIC that the first of its worker's functions is of that is of any.
pub(in crate::handoff) fn of_worker<'a>(names: impl IntoIterator<Item = &'a str>) -> Layer {
    names.into_iter().find_map(|name| named(&NIC, name)).unwrap_or(NicOther)
}

fn named(layers: &[(Layer, &[&str])], name: &str) -> Option<Layer> {
    let has = |(_, all): &&(Layer, &[&str])| all.iter().any(|begin| name.starts_with(begin));
    layers.iter().find(has).map(|(layer, _)| *layer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(whose: Whose, names: &[&str]) -> Option<Layer> {
        let function = |name| Function { name, file: "[kernel.kallsyms]" };
        layer(whose, &names.iter().copied().map(function).collect::<Vec<_>>())
    }

    #[test]
    fn what_serves_a_layer_is_of_the_layer_that_called_it() {
        let chain = ["copy_user", "skb_copy", "tcp_sendmsg", "sock_write_iter", "vfs_write"];
        assert_eq!(of(Whose::Program, &chain), Some(Tcp));
        assert_eq!(of(Whose::Program, &["fdget", "ksys_write", "do_syscall_64"]), Some(SystemCall));
        assert_eq!(
            of(Whose::Program, &["skb_put", "tun_net_xmit", "dev_hard_start_xmit"]),
            Some(Driver)
        );
    }

    #[test]
    fn what_a_host_receives_by_its_tap_is_its_own() {
        let chain = ["tcp_ack", "tcp_v4_rcv", "ip_rcv", "tun_get_user", "vfs_writev"];
        assert_eq!(of(Whose::Worker, &chain), Some(Tcp));
        // The peer's, to whom the worker sends.
        let peer = ["tcp_ack", "tcp_v4_rcv", "net_rx_action", "packet_sendmsg", "vfs_writev"];
        assert_eq!(of(Whose::Worker, &peer), Some(NicOther));
        assert_eq!(of(Whose::Program, &["tcp_v4_rcv", "net_rx_action", "irq_exit"]), None);
    }

    #[test]
    fn functions_outside_the_kernel_are_told_apart_by_their_files() {
        let own = |name, file| layer(Whose::Program, &[Function { name, file }]);
        assert_eq!(own("write", "/usr/lib/libwharf.so"), Some(Bypass));
        assert_eq!(own("main", "/usr/bin/wharf"), Some(Application));
        let nic = |name| layer(Whose::Worker, &[Function { name, file: "/usr/bin/wharf" }]);
        assert_eq!(nic("tcp::stack::Stack::input"), Some(NicTcp));
        assert_eq!(nic("nic::lane::handoff::rings::Rings::room"), Some(NicHandoff));
        let commit = nic("nic::lane::handoff::records::Records::commit");
        assert_eq!(commit.map(|layer| (layer, layer.whole())), Some((NicMirror, NicHandoff)));
        assert_eq!(nic("memcpy"), Some(NicOther));
    }
}
