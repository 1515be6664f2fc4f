//! The host: its configuration and state, and the packets that it sends.

use alloc::vec::Vec;
use core::mem;
use core::net::{IpAddr, SocketAddr};

use siphasher::sip::SipHasher13;
use wire::arp::Arp;
use wire::ip::{self, IpHeader};
use wire::{ETHERNET_LEN, Mac, Sum, VirtioNetHdr, ndp, write_ethernet};

use crate::addresses::Addresses;
use crate::counters::{Counters, Dropped};
use crate::detect::{Detection, Duplicate};
use crate::neighbours::{Neighbours, Resolved, Waiting};
use crate::outbox::Outbox;
use crate::{Address, Nanos};

/// Configuration of a host.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its IP addresses and gateways.
    pub addresses: Addresses,
    /// Key of flow labels: random, and kept secret (RFC 6437 section 3).
    pub secret: [u8; 16],
    /// Probes for each address before it is used, a second apart (RFC 4862 section 5.1,
    /// DupAddrDetectTransmits; RFC 5227 section 1.1 has three). With 0 addresses are used at once.
    pub probes: u8,
}

/// See the crate's documentation.
#[derive(Debug)]
pub struct Interface {
    pub(crate) mac: Mac,
    pub(crate) addresses: Addresses,
    pub(crate) neighbours: Neighbours,
    pub(crate) outbox: Outbox,
    pub(crate) counters: Counters,
    pub(crate) detection: Detection,
    /// Whether it probes for its addresses and announces them.
    announces: bool,
    labels: SipHasher13,
    /// The frame that `poll_transmit` returned last.
    leaving: Waiting,
}

/// A frame that is to be sent now.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The header that came with the packet; none for the host's own messages.
    pub vnet: VirtioNetHdr,
    /// The frame, from the Ethernet header on.
    pub bytes: &'a [u8],
}

/// The next hop of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The Ethernet address of the next hop.
    At(Mac),
    /// The next hop, whose Ethernet address is being resolved: the packet is to be [held](Interface::hold).
    Asking(IpAddr),
}

/// A packet of the transport to be sent.
#[derive(Clone, Copy, Debug)]
pub struct UpperLayer {
    /// This end: one of the host's addresses.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Its IP protocol.
    pub protocol: u8,
    /// DSCP and ECN.
    pub tos: u8,
    /// Bytes from the transport's header to the end of the packet.
    pub len: usize,
}

/// The headers that were written in front of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// Bytes of the Ethernet and IP headers.
    pub len: usize,
    /// The sum of the pseudo-header.
    pub pseudo: Sum,
}

impl Interface {
    /// A host with an empty neighbour cache.
    pub fn new(config: Config) -> Self {
        Interface {
            mac: config.mac,
            detection: Detection::new(&config.addresses, config.probes),
            addresses: config.addresses,
            neighbours: Neighbours::default(),
            outbox: Outbox::default(),
            counters: Counters::default(),
            announces: true,
            labels: SipHasher13::new_with_key(&config.secret),
            leaving: Waiting::default(),
        }
    }

    /// For one of several interfaces with the same addresses, where another probes for them and announces
    /// them. The results of detection that it overhears hold for it as well.
    #[must_use]
    pub fn unannounced(mut self) -> Self {
        self.announces = false;
        self
    }

    /// Takes segments to an address from now on that another stack has and answers for: it is neither probed for nor
    /// announced, and there is no network around it. For an interface that begins without addresses.
    pub fn adopt(&mut self, ip: IpAddr) {
        self.addresses.add_alone(ip);
    }

    /// The host's addresses and gateways.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Counters since the host was made.
    pub fn counters(&self) -> Counters {
        Counters {
            neighbours: self.neighbours.len() as u64,
            neighbour_silent: self.neighbours.given_up(),
            ..self.counters.clone()
        }
    }

    /// Begins to use its addresses at `now`: they are probed for, if [`Config::probes`] asks for it, and then
    /// announced (RFC 5227 section 2.3, RFC 4861 section 7.2.6).
    pub fn start(&mut self, now: Nanos) {
        self.detection.start(now);
        if self.detection.is_over() && self.announces {
            for address in self.addresses.own() {
                announce(&mut self.outbox, self.mac, address);
            }
        }
    }

    /// Whether each address is either used or found to be a duplicate.
    pub fn is_settled(&self) -> bool {
        self.detection.is_over()
    }

    /// The next of its addresses that was found to be used by another host; such an address is never used.
    pub fn poll_duplicate(&mut self) -> Option<Duplicate> {
        self.detection.found()
    }

    /// Whether `ip` is one of its addresses, and in use.
    #[inline]
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.addresses.is_own(ip) && !self.detection.bars(ip)
    }

    /// Sends the probes that are due, and the requests for neighbours.
    pub fn on_time(&mut self, now: Nanos) {
        let Interface { neighbours, outbox, addresses, counters, mac, detection, .. } = self;
        outbox.is_muted = !self.announces;
        detection.on_time(now, *mac, outbox, |outbox, address| announce(outbox, *mac, address));
        outbox.is_muted = false;
        neighbours.on_time(now, |ip, known| {
            counters.solicitations += 1;
            let source = addresses.source_among(ip, |own| !detection.bars(own));
            match (ip, source) {
                (IpAddr::V4(ip), Some(IpAddr::V4(own))) => {
                    outbox.frame(&Arp::request((*mac, own), ip, known))
                }
                (IpAddr::V6(ip), Some(IpAddr::V6(own))) => {
                    outbox.frame(&ndp::solicitation((*mac, own), ip, known))
                }
                _ => false,
            };
        });
    }

    /// When [`on_time`](Self::on_time) is to be called; `None` if nothing is due.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.neighbours.next_deadline().into_iter().chain(self.detection.next_deadline()).min()
    }

    /// The next frame to send: packets that waited for a neighbour, replies, requests.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Frame<'_>> {
        self.outbox.reuse(mem::take(&mut self.leaving.bytes));
        self.leaving = self.next_to_leave(now)?;
        Some(Frame { vnet: self.leaving.vnet, bytes: &self.leaving.bytes })
    }

    fn next_to_leave(&mut self, now: Nanos) -> Option<Waiting> {
        loop {
            if let Some(waiting) = self.neighbours.released() {
                return Some(waiting);
            }
            let mut reply = self.outbox.next()?;
            let vnet = VirtioNetHdr::default();
            match reply.hop.map(|hop| (hop, self.neighbours.resolve(hop, now))) {
                None => return Some(Waiting { vnet, bytes: reply.bytes }),
                Some((_, Resolved::At(mac))) => {
                    reply.bytes[..mac.len()].copy_from_slice(&mac);
                    return Some(Waiting { vnet, bytes: reply.bytes });
                }
                Some((hop, Resolved::Asking)) => self.neighbours.hold(hop, vnet, reply.bytes),
                Some((_, Resolved::TooMany)) => {
                    self.counters.drop(Dropped::TooManyNeighbours);
                    self.outbox.reuse(reply.bytes);
                }
            }
        }
    }

    /// The next hop of a packet of the transport to `to`.
    ///
    /// # Errors
    /// The packet is dropped, and counted, for this reason.
    #[inline]
    pub fn route(&mut self, to: IpAddr, now: Nanos) -> Result<Route, Dropped> {
        let why = match self.addresses.next_hop(to) {
            Some(hop) => match self.neighbours.resolve(hop, now) {
                Resolved::At(mac) => return Ok(Route::At(mac)),
                Resolved::Asking => return Ok(Route::Asking(hop)),
                Resolved::TooMany => Dropped::TooManyNeighbours,
            },
            None => Dropped::NoRoute,
        };
        self.counters.drop(why);
        Err(why)
    }

    /// Keeps a frame until this neighbour, which is [being resolved](Route::Asking), has answered. The
    /// destination Ethernet address is written then.
    pub fn hold(&mut self, hop: IpAddr, vnet: VirtioNetHdr, bytes: Vec<u8>) {
        self.neighbours.hold(hop, vnet, bytes);
    }

    /// Writes Ethernet and IP headers to the start of `into`. `None` if the ends are of two IP versions.
    ///
    /// # Panics
    /// If `into` is shorter than the headers.
    #[inline]
    pub fn write_headers(&self, into: &mut [u8], to: Mac, packet: &UpperLayer) -> Option<Written> {
        let addresses = ip::Addresses::new(packet.local.ip(), packet.remote.ip())?;
        let header = IpHeader {
            tos: packet.tos,
            flow_label: self.flow_label(packet),
            ..IpHeader::new(addresses, packet.protocol)
        };
        write_ethernet(into, to, self.mac, header.ether_type());
        header.write(&mut into[ETHERNET_LEN..], packet.len);
        let len = ETHERNET_LEN + header.header_len();
        Some(Written { len, pseudo: header.pseudo_header(packet.len) })
    }

    /// The flow label of IPv6: the same for all packets of a connection (RFC 6437 section 3).
    #[inline]
    fn flow_label(&self, packet: &UpperLayer) -> u32 {
        let (IpAddr::V6(local), IpAddr::V6(remote)) = (packet.local.ip(), packet.remote.ip())
        else {
            return 0;
        };
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&local.octets());
        bytes[16..32].copy_from_slice(&remote.octets());
        bytes[32..34].copy_from_slice(&packet.local.port().to_be_bytes());
        bytes[34..].copy_from_slice(&packet.remote.port().to_be_bytes());
        self.labels.hash(&bytes) as u32 & 0xf_ffff
    }
}

/// Announces to all neighbours that `mac` has an address.
fn announce(outbox: &mut Outbox, mac: Mac, address: &Address) {
    match address.ip {
        IpAddr::V4(ip) => outbox.frame(&Arp::request((mac, ip), ip, None)),
        IpAddr::V6(ip) => outbox.frame(&ndp::advertisement(mac, ip, None)),
    };
}
