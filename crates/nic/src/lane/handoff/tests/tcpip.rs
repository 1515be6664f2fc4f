//! A host with a TCP of its own.

use std::net::IpAddr;

use iface::{Address, Addresses, Interface};
use tcp::{Due, FourTuple, Id, Stack, StackConfig};
use wire::{Mac, RxChecksum, VirtioNetHdr};

use crate::app::Lender;
use crate::lane::Arrived;
use crate::lane::node::Node;
use crate::port::slice;
use crate::wire_queue::{Packet, TxQueue};

#[derive(Default)]
pub(super) struct Out(Vec<(VirtioNetHdr, Vec<u8>)>);

impl TxQueue for Out {
    fn has_room(&self) -> bool {
        true
    }

    fn send(&mut self, packet: &Packet<'_>) {
        let [first, second] = packet.payload;
        let (mut one, mut two) = (Vec::new(), Vec::new());
        let (first, second) = (slice(first, &mut one), slice(second, &mut two));
        self.0.push((packet.vnet, [packet.header, first, second].concat()));
    }
}

/// All segments go to this Ethernet address.
pub(super) struct Through(Mac);

impl Lender for Through {
    fn next_hop(&self, _stack: &Stack, _due: &Due, _path: &FourTuple) -> Option<Mac> {
        Some(self.0)
    }
}

/// A host with a TCP of its own: the peer, or the kernel.
pub(super) struct Tcpip {
    pub(super) node: Node,
    pub(super) out: Out,
    pub(super) to: Mac,
}

impl Tcpip {
    pub(super) fn new(mac: Mac, own: u8, to: Mac) -> Self {
        let ip = |host: u8| IpAddr::from([10, 0, 0, host]);
        let addresses = Addresses::new(vec![Address { ip: ip(own), prefix_len: 24 }], Vec::new());
        let config =
            iface::Config { mac, addresses: addresses.unwrap(), secret: [own; 16], probes: 0 };
        let stack = StackConfig { secret: [own; 16], half_open: 10, connections: 10 };
        let node = Node::new(Interface::new(config), Stack::new(stack));
        Tcpip { node, out: Out::default(), to }
    }

    pub(super) fn receive(&mut self, vnet: VirtioNetHdr, bytes: &[u8], now: u64) {
        let checksum = RxChecksum::MaybePartial;
        let arrived = Arrived { bytes, rest: &[], checksum, gso_size: vnet.gso_size };
        self.node.receive(arrived, &mut (), now);
    }

    pub(super) fn turn(&mut self, now: u64) -> Vec<(VirtioNetHdr, Vec<u8>)> {
        self.node.on_time(now);
        let to = self.to;
        self.node.transmit(&mut self.out, now, (64, usize::MAX), &mut Through(to));
        std::mem::take(&mut self.out.0)
    }

    pub(super) fn send(&mut self, id: Id, bytes: &[u8], now: u64) -> usize {
        let mut socket = self.node.stack.socket(id, now).unwrap();
        socket.send(bytes).unwrap()
    }

    pub(super) fn recv(&mut self, id: Id, most: usize, now: u64) -> Vec<u8> {
        let mut bytes = vec![0; most];
        let mut socket = self.node.stack.socket(id, now).unwrap();
        let count = socket.receive(&mut bytes).unwrap_or(0);
        bytes.truncate(count);
        bytes
    }
}
