//! What can be wrong with a capture.

use std::io;

/// Why a capture cannot be read or written; the file's name is the caller's to add.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Neither pcap nor pcapng.
    #[error("not a capture: pcap and pcapng are read, other formats are not")]
    NotACapture,
    /// Ends in the middle of the file header or, from 1 on, of a packet.
    #[error("{}; the rest of the capture is missing", truncated(*packet))]
    Truncated {
        /// Which, counted from 1; 0 is the file's header.
        packet: u64,
    },
    /// A field that makes no sense.
    #[error("damaged at packet {packet}: {what}")]
    Damaged {
        /// Which, counted from 1.
        packet: u64,
        /// What makes no sense.
        what: String,
    },
    /// Packets of a link layer that is not read.
    #[error("its link type is {0}, and only ETHERNET, RAW, LINUX_SLL and LINUX_SLL2 are read")]
    LinkType(String),
    /// An interface that is described behind the first packet has another link type than those before it.
    #[error(
        "packet {packet} is of an interface with the link type {link}, which is described too late: pcap, which the \
         first packets are written in, has one link type (`mergecap -w sorted.pcapng IN` describes all interfaces first)"
    )]
    LateInterface {
        /// Which packet, counted from 1.
        packet: u64,
        /// The name of its link type.
        link: String,
    },
    /// A timestamp that the pcap format cannot hold: its seconds have 32 bits.
    #[error("a packet's timestamp lies after the year 2106, which pcap cannot hold")]
    Timestamp,
    /// The operating system's word.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn truncated(packet: u64) -> String {
    match packet {
        0 => "truncated in the file header".to_owned(),
        packet => format!("truncated in packet {packet}"),
    }
}
