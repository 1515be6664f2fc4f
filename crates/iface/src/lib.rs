//! An IP host without IO: its addresses, its neighbours, and its replies to ARP, Neighbour Discovery and
//! ping. Packets and times go in; packets for a transport, replies, requests and a next deadline come out.
//!
//! ```text
//!   frame ──> Interface::receive ──> Received::Segment, Received::Error  (for the transport)
//!                  │ Consumed: ARP, ND, ping
//!   frame <── Interface::poll_transmit            replies, requests, what waited for a neighbour
//!   frame <── write_headers <── route             (of the transport)
//! ```
//!
//! # The loop around it
//! 0. [`Interface::start`] begins to use the addresses. With [`Config::probes`] they can be used once
//!    [`Interface::is_settled`], but for those that [`Interface::poll_duplicate`] returns.
//! 1. Each frame that arrives goes to [`Interface::receive`].
//! 2. When [`Interface::next_deadline`] has passed, [`Interface::on_time`] is called.
//! 3. [`Interface::poll_transmit`] is called until it returns `None`; each frame that it returns is sent.
//! 4. A packet of the transport asks [`Interface::route`] first. With [`Route::At`] it is sent behind the
//!    headers that [`Interface::write_headers`] writes; with [`Route::Asking`] it is given to
//!    [`Interface::hold`], and comes out of `poll_transmit` when its neighbour has answered.
//!
//! `on_time` may be called at any time; a call that comes late makes what is due late, and nothing else.
//! Times are nanoseconds of any clock that does not step back.
//!
//! # What it does
//! - ARP: requests and replies (RFC 826), announcements (RFC 5227 section 2.3).
//! - Neighbour Discovery: solicitations and advertisements (RFC 4861 section 7), with REACHABLE_TIME and
//!   RETRANS_TIMER of its section 10 for both IP versions. A neighbour that is in use is solicited again
//!   when its REACHABLE_TIME is over.
//! - Duplicate address detection (RFC 4862 section 5.4, RFC 5227 section 2.1). The host neither
//!   answers for a tentative address nor sends from it. It answers probes for one in use, which defends it.
//! - Echo replies (RFC 792, RFC 4443), and the errors that quote a segment of this host's.
//! - One gateway for each IP version.
//!
//! # What it does not do
//! - Defend an address in use by an announcement, when another host claims it (RFC 5227 section 2.4).
//! - Router discovery, redirects, fragments, VLANs, multicast groups, path MTU (that is the transport's).
//!
//! # What is bounded
//! 1024 neighbours, half of them not answered; 1 MB of packets that wait for them, 16 for each; 256 replies.
//!
//! ```
//! use iface::{Addresses, Config, Interface, Packet, Received};
//! use wire::arp::Arp;
//!
//! let own = vec!["10.0.0.2/24".parse()?];
//! let mac = [2, 0, 0, 0, 0, 2];
//! let addresses = Addresses::new(own, Vec::new())?;
//! let mut interface = Interface::new(Config { mac, addresses, secret: [7; 16], probes: 0 });
//!
//! let peer = ([2, 0, 0, 0, 0, 1], [10, 0, 0, 1].into());
//! let request = Arp::request(peer, [10, 0, 0, 2].into(), None);
//! let received = interface.receive(&Packet::frame(&request), 0);
//! assert!(matches!(received, Ok(Received::Consumed)));
//! let reply = interface.poll_transmit(0).expect("a reply");
//! assert_eq!(reply.bytes[..6], peer.0);
//! # Ok::<(), iface::AddressError>(())
//! ```
#![no_std]

extern crate alloc;

mod addresses;
mod counters;
mod detect;
mod input;
mod interface;
mod neighbours;
mod outbox;

pub use addresses::{Address, AddressError, Addresses};
pub use counters::{Counters, Dropped};
pub use detect::Duplicate;
pub use input::{Packet, Received, Segment};
pub use interface::{Config, Frame, Interface, Route, UpperLayer, Written};
pub use neighbours::{NEIGHBOURS_MAX, WAITING_BYTES};
pub use outbox::MESSAGES_MAX;
pub use wire::Nanos;
