//! By what a wire is sent to that is received from by AF_XDP, and what then leaves.

use sys::ethtool::{Ethtool, Offload};
use sys::frames::FramePool;
use sys::interface::{self, Interface};
use sys::packet::{BATCH, PacketSocket};
use testkit::lab::{have, wait_until};
use wire::{GsoType, VirtioNetHdr};

use super::degen::File;
use super::setup::{HOST, Hosts, Ip, PEER, Plan, Port, Up, WIRE, give, wharf};
use super::traffic::{Direction, Load, transfer};

const MB: u64 = 1 << 20;

const BY_XDP: &str = "is open by AF_XDP native, copy:";
const BY_PACKET: &str = "is open by AF_XDP native, copy, out by AF_PACKET:";

/// Hosts with wharf between them by AF_XDP, told to be so opened.
fn up(hosts: Hosts, says: &str, words: &[&str]) -> Up {
    let wharf = hosts.wharf_up(&[&["--log", "info"], words].concat());
    let said = || wharf.errors();
    assert!(wait_until(|| said().contains(says)), "{words:?}: {says:?} is not in {}", said());
    give(&hosts.server, HOST, &Ip::BOTH, Ip::server);
    Up { wharf, hosts }
}

/// What of TCP arrives at the peer, as it comes off the wire.
struct Arriving {
    socket: PacketSocket,
    pool: FramePool,
}

impl Arriving {
    fn at(hosts: &Hosts) -> Arriving {
        let open = || {
            // Else the peer's kernel would merge what came in frames.
            Ethtool::open(PEER).unwrap().set_offload(Offload::Gro, false).unwrap();
            PacketSocket::open(interface::index(PEER).unwrap(), Default::default())
        };
        let socket = hosts.client.run(open).unwrap();
        Arriving { socket, pool: FramePool::new(256, 2048).unwrap() }
    }

    /// Of up to a batch of packets: bytes from the Ethernet header on, and `gso_size`, which is 0 of those that
    /// are not to be cut.
    fn batch(&mut self) -> Vec<(usize, usize)> {
        let mut received = Vec::new();
        self.socket.receive(&mut self.pool, &mut received, BATCH).unwrap();
        let mut packets = Vec::new();
        for packet in received {
            let vnet = VirtioNetHdr::decode_legacy(&packet.vnet).unwrap();
            let len = packet.frame.len() + packet.overflow as usize;
            self.pool.free(packet.frame);
            let is_whole = matches!(vnet.gso_type, GsoType::Tcpv4 | GsoType::Tcpv6);
            packets.push((len, if is_whole { vnet.gso_size.into() } else { 0 }));
        }
        packets
    }

    /// The same of all packets until these are enough.
    fn while_it_goes_on(
        &mut self,
        enough: impl Fn(&[(usize, usize)]) -> bool,
    ) -> Vec<(usize, usize)> {
        let mut seen = Vec::new();
        let came = wait_until(|| {
            seen.extend(self.batch());
            enough(&seen)
        });
        assert!(came, "{} packets came", seen.len());
        seen
    }
}

/// The one rule, at each of its turns. Every byte arrives by each way.
#[test]
fn the_way_out_follows_the_rule() {
    if !have(&["sha256sum"]) {
        return;
    }
    let file = File::of("delay = \"100us\"\n");
    let cases: [(&[&str], bool, &str); 11] = [
        (&[], true, BY_PACKET),
        (&["wire.mode=xdp"], true, BY_PACKET),
        (&["gso.hardware=kernel"], true, BY_PACKET),
        (&["gso.hardware=off"], true, BY_XDP),
        (&["gso.tcp=false"], true, BY_XDP),
        (&["gso.enable=false"], true, BY_XDP),
        (&["wire.transmit=xdp"], true, BY_XDP),
        (&["wire.transmit=packet", "gso.hardware=off"], true, BY_PACKET),
        // The interface cannot cut.
        (&[], false, BY_XDP),
        (&["gso.hardware=kernel"], false, BY_PACKET),
        (&["wire.transmit=packet"], false, BY_PACKET),
    ];
    for (settings, cuts, says) in cases {
        let Some(hosts) = Plan::new(Port::Xdp).hosts() else { return };
        let tso = || Ethtool::open(WIRE).unwrap().set_offload(Offload::Tso, cuts);
        hosts.server.run(tso).unwrap();
        let words: Vec<&str> = settings.iter().flat_map(|word| ["--set", word]).collect();
        let up = up(hosts, says, &words);
        for ip in Ip::BOTH {
            transfer(&up.hosts, ip, Direction::Out, 4 * MB + 77);
            transfer(&up.hosts, ip, Direction::In, 2 * MB + 77);
            up.all_counted();
            let count = |name| up.counter(&ip.gso("tcp"), name);
            let (all, whole) = (count("super_packets"), count("hardware"));
            let off = settings.iter().any(|word| word.ends_with("=off"));
            let none =
                off || says == BY_XDP || (!cuts && !settings.contains(&"gso.hardware=kernel"));
            assert_eq!(whole, if none { 0 } else { all }, "{settings:?}, cuts: {cuts}");
            assert_eq!(all > 0, !settings.iter().any(|word| word.ends_with("=false")));
        }
        up.nothing_went_wrong();
    }
    // Behind a WAN all that leaves is frames.
    let Some(hosts) = Plan::new(Port::Xdp).hosts() else { return };
    let up = up(hosts, BY_XDP, &["--degen", file.path()]);
    transfer(&up.hosts, Ip::V4, Direction::Out, MB);
}

#[test]
fn a_wire_that_may_not_be_read_by_af_xdp_is_not_sent_to_by_it() {
    let Some(hosts) = Plan::new(Port::Packet).hosts() else { return };
    let words = ["up", "--wire", WIRE, "--host", HOST];
    let settings = ["--set", "wire.mode=packet", "--set", "wire.transmit=xdp"];
    let ended = hosts.server.output(wharf().args(words).args(settings));
    assert!(!ended.status.success(), "{ended}");
    assert!(ended.stderr.contains("wire.transmit=xdp needs AF_XDP on wire0"), "{ended}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended}");
}

/// The veth's other end has them as the host's kernel made them; but not while wharf is told to cut.
#[test]
fn super_packets_cross_a_veth_whole() {
    let Some(hosts) = Plan::new(Port::Xdp).hosts() else { return };
    let up = up(hosts, BY_PACKET, &[]);
    for ip in Ip::BOTH {
        let load = Load::start(&up.hosts, ip, Direction::Out, None);
        let mut arriving = Arriving::at(&up.hosts);
        arriving.while_it_goes_on(|seen| seen.iter().any(|(len, size)| *len > 1514 && *size > 0));
        super::running::set(&up, "gso.hardware", "off");
        load.goes_on();
        let mut arriving = Arriving::at(&up.hosts);
        load.goes_on();
        let seen = arriving.while_it_goes_on(|seen| seen.len() > 200);
        assert!(seen.iter().all(|(len, size)| *len <= 1514 && *size == 0), "{seen:?}");
        super::running::set(&up, "gso.hardware", "auto");
        load.finish();
    }
    up.nothing_went_wrong();
}

/// They are cut to the wire's MTU, also when it has become smaller.
#[test]
fn super_packets_are_cut_to_a_smaller_mtu() {
    if !have(&["ip"]) {
        return;
    }
    let Some(hosts) = Plan::new(Port::Xdp).hosts() else { return };
    let up = up(hosts, BY_PACKET, &[]);
    let load = Load::start(&up.hosts, Ip::V4, Direction::Out, None);
    load.goes_on();
    for mtu in [1300, 1500, 1280] {
        up.hosts.ip(&format!("link set {WIRE} mtu {mtu}"));
        let of_host = || up.hosts.server.run(|| Interface::by_name(HOST)).unwrap().mtu;
        assert!(wait_until(|| of_host() == mtu));
        load.goes_on();
        let mut arriving = Arriving::at(&up.hosts);
        let whole = |(_, size): &&(usize, usize)| *size > 0;
        let seen = arriving.while_it_goes_on(|seen| seen.iter().filter(whole).count() > 20);
        // With 20 bytes of IP and 32 of TCP with its timestamps.
        let most = mtu as usize - 52;
        assert!(seen.iter().all(|(_, size)| *size <= most), "{mtu}: {seen:?}");
    }
    load.finish();
    up.nothing_went_wrong();
}
