//! Two hosts with a TUN each, and a NIC between them: this process, which carries packets from the one to
//! the other, and has an engine. It decides who gets the packets of the one connection there is: the
//! kernel of the near host, or the engine.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use nic::repair::{from_kernel, to_kernel};
use sys::interface;
use sys::netlink::address;
use sys::netns::Namespace;
use sys::tap::{Tap, VNET_HDR_LEN};
use sys::tcp::repair;
use tcp::repair::Lost;
use tcp::{
    Config, FourTuple, Id, Nanos, Options, ReceiveError, Segment, Snapshot, Stack, StackConfig,
    State, Transmit,
};
use wire::{ETHERNET_LEN, Flags, Seq, Timestamps};

use super::frame::{self, Arrival};
use testkit::missing::lacks;

/// A host and its link.
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    tun: Tap,
}

impl Host {
    /// `None`, and a word why, where this process may not make one.
    pub(crate) fn new(ip: IpAddr) -> Option<Host> {
        let namespace = Namespace::new().inspect_err(|error| lacks(error)).ok()?;
        let tun = namespace.run(|| Tap::create_tun("tun0")).unwrap();
        let tun = tun.inspect_err(|error| lacks(error)).ok()?;
        let prefix = if ip.is_ipv4() { 24 } else { 64 };
        namespace
            .run(|| {
                address::add(tun.ifindex, ip, prefix, true).unwrap();
                interface::set_up("tun0").unwrap();
            })
            .unwrap();
        Some(Host { namespace, tun })
    }

    /// The next packet that its kernel sends, with Ethernet in front, or nothing.
    pub(crate) fn next(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 70_000];
        let len = self.tun.queues[0].read(&mut buffer).unwrap()?;
        let packet = &buffer[VNET_HDR_LEN..len];
        let kind: [u8; 2] = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
        Some([&[2; ETHERNET_LEN - 2][..], &kind, packet].concat())
    }

    pub(crate) fn give(&self, frame: &[u8]) {
        let header = [0; VNET_HDR_LEN];
        let slices = [IoSlice::new(&header), IoSlice::new(&frame[ETHERNET_LEN..])];
        self.tun.queues[0].writev(&slices).unwrap();
    }
}

/// See the module's documentation.
pub(crate) struct Lab {
    near: Host,
    far: Host,
    /// The socket of the near host. It is there even while the engine has the connection.
    socket: TcpStream,
    pub(crate) peer: TcpStream,
    path: FourTuple,
    stack: Stack,
    /// The engine has it.
    id: Option<Id>,
    since: Instant,
    /// What the socket had no room for when it got the connection back.
    left_over: Vec<u8>,
    /// The last timestamp of the peer that came by.
    ts_recent: Option<u32>,
    pub(crate) lost: Lost,
    pub(crate) moves: u32,
    /// The peer's next data is lost; where it begins.
    loses: bool,
    lost_at: Option<Seq>,
}

impl Lab {
    /// A connection from the near host to the far one, or the other way.
    pub(crate) fn new(v6: bool, accepted: bool) -> Option<Lab> {
        let ips = if v6 { ["fd00::1", "fd00::2"] } else { ["10.9.0.1", "10.9.0.2"] };
        let [near_ip, far_ip] = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
        let (near, far) = (Host::new(near_ip)?, Host::new(far_ip)?);
        let (server, client, ip) =
            if accepted { (&near, &far, near_ip) } else { (&far, &near, far_ip) };
        let listener = server.namespace.run(|| TcpListener::bind((ip, 80))).unwrap().unwrap();
        let connecting =
            client.namespace.spawn(move || TcpStream::connect((ip, 80)).unwrap()).unwrap();
        while !connecting.is_finished() {
            carry(&near, &far);
            carry(&far, &near);
        }
        let connected = connecting.join().unwrap().unwrap();
        listener.set_nonblocking(true).unwrap();
        let taken = loop {
            match listener.accept() {
                Ok((taken, _)) => break taken,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            carry(client, server);
        };
        let (socket, peer) = if accepted { (taken, connected) } else { (connected, taken) };
        socket.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let path =
            FourTuple { local: socket.local_addr().unwrap(), remote: socket.peer_addr().unwrap() };
        let config = StackConfig { secret: [7; 16], half_open: 16, connections: 16 };
        Some(Lab {
            near,
            far,
            socket,
            peer,
            path,
            stack: Stack::new(config),
            id: None,
            since: Instant::now(),
            left_over: Vec::new(),
            ts_recent: None,
            lost: Lost::default(),
            moves: 0,
            loses: false,
            lost_at: None,
        })
    }

    fn now(&self) -> Nanos {
        // Not from 0: the engine's clock may be any.
        1_000_000_000 + self.since.elapsed().as_nanos() as Nanos
    }

    /// Carries at most so many packets each way, and has the engine do what is due.
    pub(crate) fn pump(&mut self, most: usize) -> bool {
        let mut moved = false;
        for _ in 0..most {
            let Some(frame) = self.far.next() else { break };
            moved = true;
            let arrival = Arrival::parse(frame.clone()).filter(|arrival| arrival.path == self.path);
            if let Some(arrival) = &arrival {
                let options = Options::parse(arrival.tcp().option_bytes());
                self.ts_recent = options.timestamps.map(|timestamps| timestamps.value.0);
                if self.takes_away(arrival) {
                    continue;
                }
            }
            match arrival {
                Some(arrival) if self.id.is_some() => {
                    let pieces = [arrival.payload()];
                    let pieces = if pieces[0].is_empty() { &[][..] } else { &pieces[..] };
                    let now = self.now();
                    self.stack.receive(&arrival.path, &Segment::new(&arrival.tcp(), pieces), now);
                }
                _ => self.near.give(&frame),
            }
        }
        for _ in 0..most {
            let Some(frame) = self.near.next() else { break };
            moved = true;
            self.far.give(&frame);
        }
        let now = self.now();
        self.stack.on_time(now);
        // Each may be forty packets and more, and what a socket has no memory for is dropped.
        for _ in 0..most.min(2) {
            let Some(transmit) = self.stack.poll_transmit(now) else { break };
            moved = true;
            frame::write(&transmit, |frame| self.far.give(&frame));
        }
        while self.stack.next_event().is_some() {}
        moved
    }

    /// Writes as the near application, wherever the connection is; how much was taken.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let now = self.now();
        match self.id {
            Some(id) => self.stack.socket(id, now).unwrap().send(bytes).unwrap(),
            None => {
                while !self.left_over.is_empty() {
                    match write(&self.socket, &self.left_over) {
                        0 => return 0,
                        taken => drop(self.left_over.drain(..taken)),
                    }
                }
                write(&self.socket, bytes)
            }
        }
    }

    /// Reads as the near application; nothing at the end of the stream.
    pub(crate) fn read(&mut self, most: usize) -> Option<Vec<u8>> {
        let now = self.now();
        let Some(id) = self.id else { return read(&self.socket, most) };
        let mut into = vec![0; most];
        match self.stack.socket(id, now).unwrap().receive(&mut into) {
            Ok(0) => None,
            Ok(taken) => {
                into.truncate(taken);
                Some(into)
            }
            Err(ReceiveError::Empty) => Some(Vec::new()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Closes the near application's half.
    pub(crate) fn shut_down(&mut self) {
        let now = self.now();
        match self.id {
            Some(id) => self.stack.socket(id, now).unwrap().shutdown(),
            None => self.socket.shutdown(Shutdown::Write).unwrap(),
        }
    }

    /// From the kernel to the engine, or back.
    pub(crate) fn hand_over(&mut self) {
        self.moves += 1;
        self.loses = false;
        match self.id.take() {
            None => self.move_to_engine(),
            Some(id) => self.move_to_kernel(id),
        }
    }

    fn move_to_engine(&mut self) {
        let mut repair = from_kernel(repair::take(&self.socket).unwrap()).unwrap();
        // What the kernel does not tell, the NIC has seen.
        repair.ts_recent = if self.moves % 4 == 1 { self.ts_recent } else { None };
        let mut snapshot = Snapshot::from_repair(&repair).unwrap();
        snapshot.send.queue.append(&mut self.left_over);
        let now = self.now();
        self.id = Some(self.stack.thaw(&snapshot, Arc::new(Config::default()), now).unwrap());
    }

    fn move_to_kernel(&mut self, id: Id) {
        let now = self.now();
        let snapshot = self.stack.freeze(id, now).unwrap();
        let (repair, lost) = snapshot.to_repair().unwrap();
        self.lost = lost;
        let parts = to_kernel(repair).unwrap();
        let left_over = repair::put_back(&self.socket, &parts).unwrap();
        self.left_over = parts.send_queue[parts.send_queue.len() - left_over..].to_vec();
        if parts.peer_closed() {
            self.give_fin(&snapshot);
        }
    }

    /// The kernel has it back with bytes that were never sent, and a peer that takes so many of them. The peer says its
    /// window once more, then that it has as many and takes no more. The window that the kernel goes by afterwards.
    pub(crate) fn window_closes(&mut self, takes: u32, unsent: &[u8]) -> u32 {
        let mut parts = repair::take(&self.socket).unwrap();
        parts.window.snd_wnd = takes;
        parts.send_queue.extend(unsent);
        for count in [&mut parts.write_seq, &mut parts.unacknowledged, &mut parts.unsent] {
            *count = count.wrapping_add(unsent.len() as u32);
        }
        let una = Seq(parts.write_seq.wrapping_sub(parts.unacknowledged));
        assert_eq!(repair::put_back(&self.socket, &parts).unwrap(), 0);
        let mut sent = una;
        for (ack, window) in [(una, takes), (una + takes, 0)] {
            let stamps = Timestamps { value: Seq(1), echo: Seq(parts.timestamp) };
            let says = Transmit {
                path: FourTuple { local: self.path.remote, remote: self.path.local },
                seq: Seq(parts.rcv_nxt),
                ack,
                flags: Flags::ACK,
                window: (window >> parts.snd_wscale) as u16,
                urgent: 0,
                options: Options { timestamps: Some(stamps), ..Options::default() }.encode(),
                payload: [&[], &[]],
                lent: 0,
                gso_size: 0,
                ect: false,
            };
            frame::write(&says, |frame| self.near.give(&frame));
            // The peer's kernel knows of none of this.
            let begun = Instant::now();
            while sent != una + takes {
                let next = self.near.next().and_then(Arrival::parse);
                sent = next.map_or(sent, |it| sent.max(it.end()));
                assert!(begun.elapsed() < super::PATIENCE, "{} bytes are sent", sent - una);
            }
        }
        repair::take(&self.socket).unwrap().window.snd_wnd
    }

    /// The peer's FIN once more, which the kernel has not seen.
    fn give_fin(&mut self, snapshot: &Snapshot) {
        let timestamps = snapshot.agreed.timestamps.then_some(Timestamps {
            value: Seq(snapshot.receive.ts_recent.0),
            echo: Seq(snapshot.ts_now),
        });
        let fin = Transmit {
            path: FourTuple { local: self.path.remote, remote: self.path.local },
            seq: snapshot.receive.fin.unwrap(),
            ack: snapshot.send.una,
            flags: Flags::ACK.with(Flags::FIN),
            window: (snapshot.send.wnd >> snapshot.agreed.window_scale.map_or(0, |(peer, _)| peer))
                as u16,
            urgent: 0,
            options: Options { timestamps, ..Options::default() }.encode(),
            payload: [&[], &[]],
            lent: 0,
            gso_size: 0,
            ect: false,
        };
        frame::write(&fin, |frame| self.near.give(&frame));
    }

    /// The engine has the connection, and the peer's FIN.
    pub(crate) fn peer_has_closed(&self) -> bool {
        let connection = self.id.and_then(|id| self.stack.connection(id));
        connection.is_some_and(|connection| connection.state() == State::CloseWait)
    }

    /// The peer has acknowledged all, the end included.
    pub(crate) fn is_acknowledged(&self) -> bool {
        match self.id.and_then(|id| self.stack.connection(id)) {
            Some(connection) => connection.state() == State::FinWait2,
            None => sys::tcp::state(&self.socket).unwrap() == repair::state::FIN_WAIT2,
        }
    }

    /// The engine has bytes that lie behind a hole.
    pub(crate) fn has_out_of_order(&self) -> bool {
        self.stack.counters().out_of_order > 0
    }

    /// The peer's next data is lost, and as soon as there is a hole it is lost as often as it is sent, until
    /// the connection is handed over. What else its host sends is not, as are Router Solicitations of IPv6.
    pub(crate) fn lose_one(&mut self) {
        (self.loses, self.lost_at) = (true, None);
    }

    fn takes_away(&mut self, arrival: &Arrival) -> bool {
        if !self.loses || arrival.payload().is_empty() {
            return false;
        }
        let seq = arrival.tcp().seq();
        match self.lost_at {
            Some(at) => at == seq && self.has_out_of_order(),
            None => {
                self.lost_at = Some(seq);
                true
            }
        }
    }

    /// Bytes that the engine has in order.
    pub(crate) fn readable(&self) -> usize {
        let connection = self.id.and_then(|id| self.stack.connection(id));
        connection.map_or(0, |connection| connection.readable_len())
    }

    /// The peer's end has a connection, and no error.
    pub(crate) fn is_peer_content(&self) -> bool {
        self.peer.take_error().unwrap().is_none()
    }

    /// For messages.
    pub(crate) fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.path.local, self.path.remote)
    }
}

fn carry(from: &Host, to: &Host) {
    while let Some(frame) = from.next() {
        to.give(&frame);
    }
}

/// What a socket that does not block takes.
pub(crate) fn write(mut socket: &TcpStream, bytes: &[u8]) -> usize {
    match socket.write(bytes) {
        Ok(taken) => taken,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    }
}

/// What a socket that does not block has; nothing at the end of the stream.
pub(crate) fn read(mut socket: &TcpStream, most: usize) -> Option<Vec<u8>> {
    let mut into = vec![0; most];
    match socket.read(&mut into) {
        Ok(0) => None,
        Ok(taken) => {
            into.truncate(taken);
            Some(into)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(Vec::new()),
        Err(error) => panic!("{error}"),
    }
}
