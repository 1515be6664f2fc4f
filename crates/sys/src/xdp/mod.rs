//! AF_XDP: frames straight from and to a driver's queue, through memory shared with the kernel.
//!
//! A [`Redirect`] is the XDP program on an interface; it hands each frame of a queue to the
//! [`XdpSocket`] bound to that queue. The socket's UMEM is a [`FramePool`](crate::frames::FramePool),
//! so a received frame is a token and no byte is copied on this side.
//!
//! The driver's metadata of a frame is lost: a checksum that was left partial (veth peers with `tx`
//! checksumming on) and a VLAN tag that the sender or the card moved into metadata (`txvlan` of a veth peer,
//! `rxvlan` of a card). Turn those features off with ethtool, or use AF_PACKET, which reports both.

mod ledger;
mod program;
mod ring;
mod socket;
mod umem;

pub use program::{Mode, QUEUES, Redirect};
pub use socket::{Config, Refused, Statistics, XdpSocket, ZeroCopy};
