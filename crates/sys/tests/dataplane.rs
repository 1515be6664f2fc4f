//! Frames through a veth pair between two network namespaces: AF_XDP at one end or both ends
//! AF_PACKET. Needs root: see `testkit::missing`.

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use sys::ethtool::{Ethtool, Offload};
use sys::frames::{Frame, FramePool};
use sys::interface::{self, Interface};
use sys::netlink::link::{VethEnd, create_veth};
use sys::netns::Namespace;
use sys::packet::{self, Fanout, Filter, Membership, Message, PacketSocket, Received};
use sys::xdp::{self, Mode, Redirect, XdpSocket};
use testkit::missing::{kernel_lacks, lacks};

/// For local experiments (IEEE 802): no other traffic on the wire has it.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const NO_VNET: [u8; 10] = [0; 10];
const CHUNKS: u32 = 512;

/// `near` in one namespace, `far` in the other, both up.
struct Wire {
    near_namespace: Namespace,
    far_namespace: Namespace,
    near: u32,
    far: u32,
}

impl Wire {
    /// `None`, with a word why, where this process may not make one.
    fn lay(mtu: u32) -> Option<Self> {
        let namespaces = Namespace::new().and_then(|near| Ok((near, Namespace::new()?)));
        if let Err(error) = &namespaces
            && error.is_permission()
        {
            lacks(format!("root: {error}"));
            return None;
        }
        let (near_namespace, far_namespace) = namespaces.unwrap();
        let far_end = far_namespace.as_fd();
        near_namespace
            .run(|| {
                let near = VethEnd { mtu: Some(mtu), ..VethEnd::new("near") };
                let far =
                    VethEnd { mtu: Some(mtu), namespace: Some(far_end), ..VethEnd::new("far") };
                create_veth(&near, &far).unwrap();
                interface::set_up("near").unwrap();
            })
            .unwrap();
        far_namespace.run(|| interface::set_up("far").unwrap()).unwrap();
        let near = near_namespace.run(|| interface::index("near").unwrap()).unwrap();
        let far = far_namespace.run(|| interface::index("far").unwrap()).unwrap();
        Some(Self { near_namespace, far_namespace, near, far })
    }

    fn near_socket(&self) -> PacketSocket {
        let open = || PacketSocket::open(self.near, packet::Config::default()).unwrap();
        self.near_namespace.run(open).unwrap()
    }

    fn far_socket(&self) -> PacketSocket {
        let open = || PacketSocket::open(self.far, packet::Config::default()).unwrap();
        self.far_namespace.run(open).unwrap()
    }

    fn attach(&self, mode: Mode) -> sys::Result<Redirect> {
        self.far_namespace.run(|| Redirect::attach(self.far, mode)).unwrap()
    }

    fn xdp_socket(&self, pool: &mut FramePool, config: xdp::Config) -> std::io::Result<XdpSocket> {
        let far = self.far;
        self.far_namespace.run(move || XdpSocket::open(far, 0, pool, config)).unwrap()
    }

    fn far_has_xdp(&self) -> bool {
        self.far_namespace.run(|| Interface::by_index(self.far).unwrap().xdp).unwrap()
    }
}

fn frame_of(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xff; 12];
    bytes.extend(ETHERTYPE);
    bytes.extend((number as u32).to_be_bytes());
    bytes.extend((0..len - bytes.len()).map(|i| (i * 7 + number) as u8));
    bytes
}

fn is_ours(bytes: &[u8]) -> bool {
    bytes[12..14] == ETHERTYPE || bytes[16..18] == ETHERTYPE
}

/// Calls `step` until it returns true; it fails after ten seconds, far more than it takes.
fn until(what: &str, mut step: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !step() {
        assert!(Instant::now() < end, "gave up waiting: {what}");
        std::thread::yield_now();
    }
}

/// How many messages the kernel took; none if the veth's queue is full.
fn taken(sent: std::io::Result<usize>) -> usize {
    match sent {
        Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => 0,
        sent => sent.unwrap(),
    }
}

fn send_all(socket: &mut PacketSocket, frames: &[Vec<u8>]) {
    let messages: Vec<Message<'_>> = frames
        .iter()
        .map(|frame| {
            let (header, payload) = frame.split_at(14);
            Message { vnet: NO_VNET, header, payload }
        })
        .collect();
    let mut sent = 0;
    until("the packet socket takes all", || {
        sent += taken(socket.send(&messages[sent..]));
        sent == messages.len()
    });
}

/// What arrives at a packet socket, whole, with its virtio_net_hdr.
fn receive_all(
    socket: &mut PacketSocket,
    pool: &mut FramePool,
    count: usize,
) -> Vec<(Vec<u8>, [u8; 10])> {
    let mut packets = Vec::new();
    let mut batch: Vec<Received> = Vec::with_capacity(packet::BATCH);
    until("packets at the packet socket", || {
        socket.receive(pool, &mut batch, packet::BATCH).unwrap();
        for received in batch.drain(..) {
            let mut bytes = pool.bytes(&received.frame).to_vec();
            bytes.extend(socket.overflow(received.slot, received.overflow));
            packets.push((bytes, received.vnet));
            pool.free(received.frame);
        }
        packets.retain(|(bytes, _)| is_ours(bytes) || bytes[12..14] == [8, 0]);
        packets.len() >= count
    });
    packets
}

/// Packets that arrive at an AF_XDP socket, the frames of each joined.
fn receive_xdp(socket: &mut XdpSocket, pool: &mut FramePool, count: usize) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut batch: Vec<Frame> = Vec::new();
    until("frames at the AF_XDP socket", || {
        socket.receive(pool, &mut batch, 64);
        let mut whole = Vec::new();
        for frame in batch.drain(..) {
            pool.prefetch(&frame);
            whole.extend(pool.bytes(&frame));
            if !frame.continues() && is_ours(&whole) {
                packets.push(std::mem::take(&mut whole));
            } else if !frame.continues() {
                whole.clear();
            }
            pool.free(frame);
        }
        assert!(whole.is_empty(), "a call ended in the middle of a packet");
        socket.refill(pool);
        packets.len() >= count
    });
    packets
}

/// Queues `bytes` in as many frames as they need.
fn queue_xdp(socket: &mut XdpSocket, pool: &mut FramePool, bytes: &[u8]) {
    let mut pieces = bytes.chunks(pool.chunk_size()).peekable();
    while let Some(piece) = pieces.next() {
        let mut frame = pool.alloc().unwrap();
        pool.set_range(&mut frame, 0, piece.len());
        pool.bytes_mut(&mut frame).copy_from_slice(piece);
        frame.set_continues(pieces.peek().is_some());
        socket.transmit(frame).unwrap();
    }
}

fn frames_cross_both_ways(mode: Mode) {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(CHUNKS, 2048).unwrap();
    let mut near_pool = FramePool::new(CHUNKS, 2048).unwrap();
    let mut redirect = wire.attach(mode).unwrap();
    assert_eq!(redirect.mode(), mode);
    assert!(wire.far_has_xdp());
    let config = xdp::Config { fill_size: 256, headroom: 64, ..Default::default() };
    let mut far = wire.xdp_socket(&mut pool, config).unwrap();
    assert!(!far.zero_copy(), "veth has no zero-copy");
    far.refill(&mut pool);
    assert_eq!(pool.available(), pool.capacity() - 256);
    redirect.set(&far).unwrap();

    let mut near = wire.near_socket();
    let sent: Vec<_> = (0..200).map(|i| frame_of(i, 60 + 7 * i)).collect();
    send_all(&mut near, &sent);
    assert_eq!(receive_xdp(&mut far, &mut pool, sent.len()), sent);

    for frame in &sent {
        queue_xdp(&mut far, &mut pool, frame);
    }
    until("everything is sent", || {
        far.kick().unwrap();
        far.reap(&mut pool);
        far.tx_queued() == 0
    });
    let received = receive_all(&mut near, &mut near_pool, sent.len());
    assert!(received.iter().map(|(bytes, _)| bytes).eq(&sent));

    assert_eq!(
        far.statistics().unwrap(),
        xdp::Statistics {
            tx_ring_empty: far.statistics().unwrap().tx_ring_empty,
            ..Default::default()
        }
    );
    assert_eq!(far.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity());
    near.close(&mut near_pool);
    assert_eq!(near_pool.available(), near_pool.capacity());
    drop(redirect);
    assert!(!wire.far_has_xdp());
}

#[test]
fn frames_cross_both_ways_with_native_xdp() {
    frames_cross_both_ways(Mode::Native);
}

#[test]
fn frames_cross_both_ways_with_generic_xdp() {
    frames_cross_both_ways(Mode::Generic);
}

#[test]
fn packets_longer_than_a_chunk_cross_as_several_frames() {
    let Some(wire) = Wire::lay(9000) else { return };
    let mut pool = FramePool::new(CHUNKS, 4096).unwrap();
    let mut near_pool = FramePool::new(CHUNKS, 2048).unwrap();
    let mut redirect = wire.attach(Mode::Auto).unwrap();
    assert_eq!(redirect.mode(), Mode::Native);
    let config = xdp::Config { fill_size: 256, multi_buffer: true, ..Default::default() };
    let mut far = match wire.xdp_socket(&mut pool, config) {
        Ok(socket) => socket,
        Err(error) => return kernel_lacks(format!("XDP_USE_SG: {error}")),
    };
    far.refill(&mut pool);
    redirect.set(&far).unwrap();
    let mut near = wire.near_socket();
    let sent: Vec<_> = (0..20).map(|i| frame_of(i, 60 + 470 * i)).collect();
    send_all(&mut near, &sent);
    assert_eq!(receive_xdp(&mut far, &mut pool, sent.len()), sent);
    for frame in &sent {
        queue_xdp(&mut far, &mut pool, frame);
    }
    far.kick().unwrap();
    let received = receive_all(&mut near, &mut near_pool, sent.len());
    assert!(received.iter().map(|(bytes, _)| bytes).eq(&sent));
    far.reap(&mut pool);
    assert_eq!(far.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn what_an_xdp_socket_cannot_send_comes_back() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(8, 2048).unwrap();
    let mut other = FramePool::new(1, 2048).unwrap();
    let config = xdp::Config { tx_size: 2, ..Default::default() };
    let mut socket = wire.xdp_socket(&mut pool, config).unwrap();

    let empty = pool.alloc().unwrap();
    let mut empty = socket.transmit(empty).unwrap_err();
    pool.set_range(&mut empty, 0, 60);
    empty.set_continues(true);
    let continuing = socket.transmit(empty).unwrap_err();
    pool.free(continuing);
    let mut foreign = other.alloc().unwrap();
    other.set_range(&mut foreign, 0, 60);
    let foreign = socket.transmit(foreign).unwrap_err();
    other.free(foreign);

    for number in 0..2 {
        queue_xdp(&mut socket, &mut pool, &frame_of(number, 60));
    }
    assert_eq!(socket.tx_room(), 0);
    let mut third = pool.alloc().unwrap();
    pool.set_range(&mut third, 0, 60);
    let third = socket.transmit(third).unwrap_err();
    pool.free(third);
    assert_eq!(socket.close(&mut pool), 0);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn chunks_stay_with_the_kernel_while_a_duplicate_keeps_the_socket_open() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(8, 2048).unwrap();
    let mut socket = wire.xdp_socket(&mut pool, xdp::Config::default()).unwrap();
    socket.refill(&mut pool);
    let duplicate = socket.as_fd().try_clone_to_owned().unwrap();
    assert_eq!(socket.close(&mut pool), 8);
    assert_eq!(pool.available(), 0);
    drop(duplicate);
}

#[test]
fn a_queue_can_be_opened_again_at_once_and_what_cannot_work_says_why() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(8, 2048).unwrap();
    for _ in 0..3 {
        let mut socket = wire.xdp_socket(&mut pool, xdp::Config::default()).unwrap();
        socket.refill(&mut pool);
        assert_eq!(socket.close(&mut pool), 0);
    }
    let open = |ifindex, queue, pool: &mut FramePool, config| {
        let open = move || XdpSocket::open(ifindex, queue, pool, config);
        wire.far_namespace.run(open).unwrap().unwrap_err()
    };
    let config = xdp::Config::default();
    assert_eq!(open(9999, 0, &mut pool, config).raw_os_error(), Some(libc::ENODEV));
    assert_eq!(open(wire.far, 7, &mut pool, config).raw_os_error(), Some(libc::EINVAL));
    let odd = xdp::Config { rx_size: 100, ..config };
    assert_eq!(open(wire.far, 0, &mut pool, odd).kind(), std::io::ErrorKind::InvalidInput);
    let mut large = FramePool::new(1, 32768).unwrap();
    assert_eq!(open(wire.far, 0, &mut large, config).kind(), std::io::ErrorKind::InvalidInput);

    let attached = wire.attach(Mode::Auto).unwrap();
    let error = wire.attach(Mode::Auto).unwrap_err();
    assert!(matches!(error.errno(), Some(libc::EBUSY | libc::EEXIST)), "{error}");
    assert_eq!(error.interface(), Some("far"));
    drop(attached);
    let attach = || Redirect::attach(9999, Mode::Auto).unwrap_err();
    assert_eq!(wire.far_namespace.run(attach).unwrap().errno(), Some(libc::ENODEV));
}

/// An Ethernet + IPv4 + `protocol` packet whose L4 checksum is left to be completed, and the
/// virtio_net_hdr for that. A `gso_size` of 0 makes it an ordinary one.
fn partial_packet(tag: &[u8], l4: &[u8], payload: usize, gso_size: u16) -> (Vec<u8>, [u8; 10]) {
    let udp = l4.len() == 8;
    let mut bytes = vec![2; 12];
    bytes.extend(tag);
    bytes.extend([8, 0]);
    let ip_start = bytes.len();
    let total = (20 + l4.len() + payload) as u16;
    let mut ip = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, if udp { 17 } else { 6 }, 0, 0];
    ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&folded.to_be_bytes());
    bytes.extend(ip);
    bytes.extend(l4);
    let header_len = bytes.len() as u16;
    bytes.extend((0..payload).map(|i| (i % 251) as u8));
    let mut vnet = NO_VNET;
    vnet[0] = 1;
    vnet[1] = u8::from(gso_size != 0);
    vnet[2..4].copy_from_slice(&header_len.to_ne_bytes());
    vnet[4..6].copy_from_slice(&gso_size.to_ne_bytes());
    vnet[6..8].copy_from_slice(&(ip_start as u16 + 20).to_ne_bytes());
    vnet[8..10].copy_from_slice(&(if udp { 6_u16 } else { 16 }).to_ne_bytes());
    (bytes, vnet)
}

fn tcp_header() -> Vec<u8> {
    let mut tcp = vec![0x10, 0, 0x20, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff];
    tcp.extend([0; 4]);
    tcp
}

#[test]
fn a_super_packet_passes_packet_sockets_whole() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(64, 2048).unwrap();
    let (mut near, mut far) = (wire.near_socket(), wire.far_socket());
    let (large, large_vnet) = partial_packet(&[], &tcp_header(), 30_000, 1448);
    // A veth passes on whole what is shorter than its gso_max_size of 65,536, Ethernet included.
    let (largest, largest_vnet) = partial_packet(&[], &tcp_header(), 65_481, 1448);
    let message = |bytes: &'static [u8], vnet| {
        let (header, payload) = bytes.split_at(54);
        Message { vnet, header, payload }
    };
    let (large, largest): (&'static [u8], &'static [u8]) = (large.leak(), largest.leak());
    let messages = [message(large, large_vnet), message(largest, largest_vnet)];
    let mut sent = 0;
    until("super-packets are taken", || {
        sent += taken(near.send(&messages[sent..]));
        sent == 2
    });
    let slices: Vec<IoSlice<'_>> = large.chunks(1448).map(IoSlice::new).collect();
    near.send_slices(&large_vnet, &slices).unwrap();

    let received = receive_all(&mut far, &mut pool, 3);
    for ((bytes, vnet), expected) in received.iter().zip([large, largest, large]) {
        assert!(bytes == expected, "{} bytes, expected {}", bytes.len(), expected.len());
        // gso_type and gso_size, csum_start and csum_offset.
        assert_eq!((vnet[1], &vnet[4..]), (1, &large_vnet[4..]));
    }
    far.close(&mut pool);
    assert_eq!(pool.available(), pool.capacity());
}

#[test]
fn a_vlan_tag_survives_both_ways() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(64, 2048).unwrap();
    let (mut near, mut far) = (wire.near_socket(), wire.far_socket());
    let tagged = |tag: [u8; 4]| {
        let mut bytes = frame_of(0, 100);
        bytes.splice(12..12, tag);
        bytes
    };
    let sent =
        vec![tagged([0x81, 0x00, 0x20, 0x07]), frame_of(1, 60), tagged([0x88, 0xa8, 0x0f, 0xfe])];
    send_all(&mut near, &sent);
    let received = receive_all(&mut far, &mut pool, sent.len());
    assert!(received.iter().map(|(bytes, _)| bytes).eq(&sent));
    send_all(&mut far, &sent);
    let received = receive_all(&mut near, &mut pool, sent.len());
    assert!(received.iter().map(|(bytes, _)| bytes).eq(&sent));
}

#[test]
fn a_partial_checksum_behind_a_vlan_tag_is_still_where_the_header_says() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(64, 2048).unwrap();
    let (mut near, mut far) = (wire.near_socket(), wire.far_socket());
    let udp = [0x10, 0, 0x20, 0, 0, 108, 0, 0];
    let (mut bytes, vnet) = partial_packet(&[0x81, 0, 0, 5], &udp, 100, 0);
    // IPv4 under a tag would be mistaken for nothing of ours: mark the inner EtherType.
    bytes[16..18].copy_from_slice(&ETHERTYPE);
    near.send_slices(&vnet, &[IoSlice::new(&bytes)]).unwrap();
    let received = receive_all(&mut far, &mut pool, 1);
    assert_eq!(received[0].0, bytes);
    assert_eq!((received[0].1[0], &received[0].1[6..]), (1, &vnet[6..]));
}

#[test]
fn packets_wait_while_the_pool_is_empty() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(4, 2048).unwrap();
    let (mut near, mut far) = (wire.near_socket(), wire.far_socket());
    let sent: Vec<_> = (0..50).map(|i| frame_of(i, 60)).collect();
    send_all(&mut near, &sent);
    let mut held: Vec<Received> = Vec::new();
    let mut taken = Vec::new();
    until("all frames, four at a time", || {
        far.receive(&mut pool, &mut held, packet::BATCH).unwrap();
        assert!(held.len() <= 4);
        for received in held.drain(..) {
            taken.push(pool.bytes(&received.frame).to_vec());
            pool.free(received.frame);
        }
        taken.retain(|bytes| is_ours(bytes));
        taken.len() == sent.len()
    });
    assert_eq!(taken, sent);
    assert_eq!(far.statistics().unwrap().dropped, 0);
}

#[test]
fn sockets_of_a_group_share_packets_by_flow_and_see_none_of_their_own() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(CHUNKS, 2048).unwrap();
    let config =
        packet::Config { fanout: Some(Fanout { group: 77, members: 2 }), ..Default::default() };
    let open = || PacketSocket::open(wire.far, config);
    let join = || wire.far_namespace.run(open).unwrap();
    let (mut first, mut second) = (join().unwrap(), join().unwrap());
    assert_eq!(join().unwrap_err().raw_os_error(), Some(libc::ENOSPC));

    // 32 flows of 4 packets each, by UDP source port.
    let mut near = wire.near_socket();
    let flow = |number: usize| {
        let udp = [0x10, number as u8, 0x20, 0, 0, 48, 0, 0];
        partial_packet(&[], &udp, 40, 0).0
    };
    send_all(&mut first, &[flow(200)]);
    let sent: Vec<_> = (0..128).map(|i| flow(i / 4)).collect();
    send_all(&mut near, &sent);
    let mut arrived = [Vec::new(), Vec::new()];
    let mut batch = Vec::new();
    until("every packet at one of the two", || {
        for (socket, arrived) in [&mut first, &mut second].into_iter().zip(&mut arrived) {
            socket.receive(&mut pool, &mut batch, packet::BATCH).unwrap();
            for received in batch.drain(..) {
                arrived.push(pool.bytes(&received.frame).to_vec());
                pool.free(received.frame);
            }
            arrived.retain(|bytes| bytes[12..14] == [8, 0]);
        }
        arrived[0].len() + arrived[1].len() >= sent.len()
    });
    let of_flow = |at: usize, number| arrived[at].iter().filter(|b| **b == flow(number)).count();
    for number in 0..32 {
        let counts = (of_flow(0, number), of_flow(1, number));
        assert!(matches!(counts, (4, 0) | (0, 4)), "flow {number}: {counts:?}");
    }
    assert_eq!(of_flow(0, 200) + of_flow(1, 200), 0);
    assert!(!arrived[0].is_empty() && !arrived[1].is_empty());
}

#[test]
fn a_socket_that_only_sends_receives_nothing() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut pool = FramePool::new(CHUNKS, 2048).unwrap();
    let config = packet::Config { send_only: true, ..Default::default() };
    let open = || PacketSocket::open(wire.far, config).unwrap();
    let mut sends = wire.far_namespace.run(open).unwrap();
    let (mut near, mut far) = (wire.near_socket(), wire.far_socket());
    send_all(&mut sends, &[frame_of(1, 100)]);
    assert_eq!(receive_all(&mut near, &mut pool, 1)[0].0, frame_of(1, 100));
    send_all(&mut near, &[frame_of(2, 100)]);
    assert_eq!(receive_all(&mut far, &mut pool, 1)[0].0, frame_of(2, 100));
    let mut batch = Vec::new();
    assert_eq!(sends.receive(&mut pool, &mut batch, packet::BATCH).unwrap(), 0);
}

#[test]
fn a_message_that_the_kernel_refuses_is_the_first_of_the_rest() {
    let Some(wire) = Wire::lay(1500) else { return };
    let mut near = wire.near_socket();
    let (good, long) = (frame_of(0, 100), frame_of(1, 3000));
    let message = |payload| Message { vnet: NO_VNET, header: &[], payload };
    let messages = [message(&good), message(&long), message(&good)];
    assert_eq!(near.send(&messages).unwrap(), 1);
    let error = near.send(&messages[1..]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    assert_eq!(near.send(&messages[2..]).unwrap(), 1);
    wire.far_namespace.run(|| interface::set_mtu("far", 500).unwrap()).unwrap();
    let dropped = frame_of(1, 1000);
    let error = near.send(&[message(&dropped), message(&good)]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOBUFS));
    let too_many = vec![IoSlice::new(&good); 1024];
    let error = near.send_slices(&NO_VNET, &too_many).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    let missing = PacketSocket::open(9999, packet::Config::default()).unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
}

#[test]
fn a_membership_lasts_as_long_as_it_is_held() {
    let Some(wire) = Wire::lay(1500) else { return };
    // Where iproute2 is missing, only that nothing fails is seen.
    let counts = || {
        let shown = std::process::Command::new("ip").args(["-d", "link", "show", "far"]).output();
        let text = String::from_utf8(shown.ok()?.stdout).ok()?;
        let count = |name| text.split_whitespace().skip_while(|word| *word != name).nth(1);
        Some((count("promiscuity")?.to_owned(), count("allmulti")?.to_owned()))
    };
    // A program that another test is about to start has copies of this one's descriptors until it is executed.
    let expect = |promiscuous: &str, all_multicast: &str| {
        until("the counts", || {
            counts().is_none_or(|counts| (&*counts.0, &*counts.1) == (promiscuous, all_multicast))
        });
    };
    let work = || {
        let all_multicast = Membership::hold(wire.far, Filter::AllMulticast).unwrap();
        expect("0", "1");
        let promiscuous = Membership::hold(wire.far, Filter::Promiscuous).unwrap();
        expect("1", "1");
        drop((all_multicast, promiscuous));
        expect("0", "0");
        assert!(Membership::hold(9999, Filter::Promiscuous).is_err());
    };
    wire.far_namespace.run(work).unwrap();
}

#[test]
fn a_sender_without_segmentation_offload_still_reaches_xdp() {
    let Some(wire) = Wire::lay(1500) else { return };
    let tso_off = || Ethtool::open("near").and_then(|near| near.set_offload(Offload::Tso, false));
    wire.near_namespace.run(tso_off).unwrap().unwrap();
    let mut pool = FramePool::new(CHUNKS, 2048).unwrap();
    let mut redirect = wire.attach(Mode::Native).unwrap();
    let config = xdp::Config { fill_size: 256, ..Default::default() };
    let mut far = wire.xdp_socket(&mut pool, config).unwrap();
    far.refill(&mut pool);
    redirect.set(&far).unwrap();
    let mut near = wire.near_socket();
    let (bytes, vnet) = partial_packet(&[], &tcp_header(), 3 * 1448, 1448);
    near.send_slices(&vnet, &[IoSlice::new(&bytes)]).unwrap();
    let mut frames = Vec::new();
    let mut lengths = Vec::new();
    until("three segments", || {
        far.receive(&mut pool, &mut frames, 64);
        for frame in frames.drain(..) {
            if pool.bytes(&frame)[12..14] == [8, 0] {
                lengths.push(frame.len());
            }
            pool.free(frame);
        }
        lengths.len() == 3
    });
    assert_eq!(lengths, [1502; 3]);
}
