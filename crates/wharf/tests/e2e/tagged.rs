//! Frames that wharf leaves alone: VLAN tags and unknown protocols pass untouched, in order.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sys::frames::FramePool;
use sys::packet::{Config, Message, PacketSocket, VNET_HDR_LEN};
use sys::poll::poll;
use testkit::lab::{Host, PATIENCE};
use testkit::missing::kernel_lacks;
use testkit::packet::{DESTINATION_MAC, PacketBuilder, SOURCE_MAC};

use super::setup::{HOST, Ip, PEER, Plan, Port, ping};

/// Raw frames at one interface.
pub(crate) struct Tap {
    socket: PacketSocket,
    pool: FramePool,
}

impl Tap {
    pub(crate) fn open(host: &Host, name: &str) -> Self {
        let open = || PacketSocket::open(sys::interface::index(name).unwrap(), Config::default());
        Self { socket: host.run(open).unwrap(), pool: FramePool::new(1024, 4096).unwrap() }
    }

    pub(crate) fn send(&mut self, frame: &[u8]) {
        let message = Message { vnet: [0; VNET_HDR_LEN], header: frame, payload: &[] };
        assert_eq!(self.socket.send(&[message]).unwrap(), 1);
    }

    /// The next frames that `ours` knows, so many.
    pub(crate) fn receive(&mut self, count: usize, ours: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let (until, mut all) = (Instant::now() + PATIENCE, Vec::new());
        while all.len() < count && Instant::now() < until {
            let a_while = Duration::from_millis(100).as_nanos() as u64;
            poll(&[self.socket.as_fd()], Some(a_while)).unwrap();
            let mut received = Vec::new();
            self.socket.receive(&mut self.pool, &mut received, 64).unwrap();
            for packet in received {
                let bytes = self.pool.bytes(&packet.frame).to_vec();
                self.pool.free(packet.frame);
                if ours(&bytes) {
                    all.push(bytes);
                }
            }
        }
        all
    }
}

/// Frames that must pass as they are, each with a number, which tells them apart and in order. The
/// TCP segments leave gaps, or they could be joined.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let tcp = |builder: PacketBuilder, n: u32| builder.seq(n * 1000).payload_pattern(100).build();
    let local = |n: u8| {
        // For local experiments (IEEE 802); shorter than the 60 bytes of a real wire.
        let mut frame = [DESTINATION_MAC, SOURCE_MAC].concat();
        frame.extend_from_slice(&[0x88, 0xb5, n]);
        frame
    };
    let mut frames = Vec::new();
    for n in 0..8u8 {
        let number = u32::from(n);
        frames.push(tcp(PacketBuilder::tcp4().vlan(0x2007), number));
        frames.push(tcp(PacketBuilder::tcp6().vlan(0x0fff), number));
        frames.push(PacketBuilder::udp4().vlan(5).payload(&[n; 30]).build());
        frames.push(local(n));
    }
    frames
}

fn pass_untouched(port: Port) {
    let Some(up) = Plan::new(port).up() else { return };
    let mut peer = Tap::open(&up.hosts.client, PEER);
    let mut host = Tap::open(&up.hosts.server, HOST);
    let frames = frames();
    let ours = |bytes: &[u8]| bytes.get(..12) == Some(&frames[0][..12]);
    frames.iter().for_each(|frame| peer.send(frame));
    let received = host.receive(frames.len(), ours);
    // Frames of one flow stay in order; flows may pass each other.
    same(&by_flow(received), &by_flow(frames.clone()), "from the wire to the host");
    frames.iter().for_each(|frame| host.send(frame));
    let received = peer.receive(frames.len(), ours);
    same(&by_flow(received), &by_flow(frames.clone()), "from the host to the wire");
}

fn same(received: &[Vec<u8>], sent: &[Vec<u8>], way: &str) {
    assert_eq!(received.len(), sent.len(), "frames {way}");
    for (received, sent) in received.iter().zip(sent) {
        assert_eq!(received, sent, "a frame {way}");
    }
}

/// Frames sorted by flow only: what `frames` makes four of, each in its order.
fn by_flow(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.sort_by_key(|frame| frame.len());
    frames
}

#[test]
fn tagged_and_unknown_frames_pass_untouched_by_af_xdp() {
    pass_untouched(Port::Xdp);
}

#[test]
fn tagged_and_unknown_frames_pass_untouched_by_af_packet() {
    pass_untouched(Port::Packet);
}

#[test]
fn tagged_and_unknown_frames_pass_untouched_by_veth() {
    pass_untouched(Port::Veth);
}

/// 802.1Q interfaces above the client's and wharf's, where the kernel has them.
#[test]
fn vlan_interfaces_talk_through_wharf() {
    for port in Port::EACH {
        let Some(up) = Plan::new(port).up() else { continue };
        let add = |host: &Host, parent: &str, number: u8| {
            let words = format!("link add link {parent} name vlan7 type vlan id 7");
            let made = host.output(std::process::Command::new("ip").args(words.split(' ')));
            if made.status.success() {
                host.succeed(
                    "ip",
                    &["address", "add", &format!("10.78.0.{number}/24"), "dev", "vlan7"],
                );
                host.succeed("ip", &["link", "set", "vlan7", "up"]);
            }
            made
        };
        let made = add(&up.hosts.client, PEER, 1);
        if !made.status.success() {
            return kernel_lacks(format!("VLAN interfaces: {made}"));
        }
        assert!(add(&up.hosts.server, HOST, 2).status.success());
        ping(&up.hosts.client, "10.78.0.2".parse().unwrap(), &[]);
        ping(&up.hosts.client, Ip::V4.server(), &[]);
    }
}
