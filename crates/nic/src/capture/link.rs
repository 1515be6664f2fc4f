//! Link layers other than Ethernet, and captures of several interfaces.
//!
//! The cores take Ethernet frames. A packet of another link layer becomes one: a table has its link header, and the
//! header's number in the table takes the place of the Ethernet addresses. So packets with different link headers, or of
//! different interfaces, are never joined, and what leaves the cores gets its link header again.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use pcap_file::DataLink;

use super::Packet;
use crate::counters::Entry;

/// Numbers of link types (pcap-linktype(7)).
pub(super) const ETHERNET: u16 = 1;
const RAW: [u16; 5] = [12, 14, 101, 228, 229];
const LINUX_SLL: u16 = 113;
const LINUX_SLL2: u16 = 276;

/// Bytes of the two Ethernet addresses.
const ADDRESSES: usize = 12;
/// EtherType of a frame whose packet is not parsed: for local experiments (IEEE 802).
const OPAQUE: [u8; 2] = [0x88, 0xb5];

/// Form of a link header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Form {
    /// Two addresses, then the EtherType.
    Ethernet,
    /// None: the packet begins with its IP header.
    Raw,
    /// 14 bytes, then the EtherType.
    Sll,
    /// The EtherType, then 18 bytes.
    Sll2,
    /// Any other: the packet is copied.
    Opaque,
}

impl Form {
    fn of(link: u16) -> Form {
        match link {
            ETHERNET => Form::Ethernet,
            LINUX_SLL => Form::Sll,
            LINUX_SLL2 => Form::Sll2,
            link if RAW.contains(&link) => Form::Raw,
            _ => Form::Opaque,
        }
    }
}

/// A link header without its EtherType.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Head {
    interface: u32,
    form: Form,
    bytes: Vec<u8>,
}

/// Interfaces of a capture, and the link headers of its packets.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// The link type of each interface, in the order of the capture.
    pub(super) interfaces: Vec<u16>,
    /// Number of the section's first interface.
    pub(super) section: usize,
    /// Packets become Ethernet frames, and packets again.
    pub(super) is_translated: bool,
    heads: Vec<Head>,
    numbers: HashMap<Head, u32>,
    /// Packets that were copied, as their link layer is not read.
    copied: u64,
    /// Bytes of packets, in and out, with their own link headers.
    bytes: [u64; 2],
}

/// The links of a capture, for its reader and its writer.
pub(super) type SharedLinks = Rc<RefCell<Links>>;

/// Counts of a run over a capture of another link layer than Ethernet, beside its own counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkCounts {
    /// Bytes of packets that were read and written, with their own link headers; `None` if they were Ethernet frames.
    pub bytes: Option<[u64; 2]>,
    copied: u64,
}

impl LinkCounts {
    /// The counters.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        [Entry { group: "pcap", name: "other_link", value: self.copied }].into_iter()
    }
}

/// Returns true for a link type whose packets are read.
pub(super) fn is_read(link: u16) -> bool {
    Form::of(link) != Form::Opaque
}

/// The name of a link type.
pub(super) fn name(link: u16) -> String {
    match DataLink::from(u32::from(link)) {
        DataLink::Unknown(number) => format!("number {number}"),
        known => format!("{known:?}"),
    }
}

impl Links {
    /// The link type of all interfaces, if they have one; Ethernet if there are none.
    pub(super) fn common(&self) -> Option<u16> {
        let first = self.interfaces.first().copied().unwrap_or(ETHERNET);
        self.interfaces.iter().all(|link| *link == first).then_some(first)
    }

    pub(super) fn counts(&self) -> LinkCounts {
        LinkCounts { bytes: self.is_translated.then_some(self.bytes), copied: self.copied }
    }

    /// Makes an Ethernet frame of a packet.
    pub(super) fn translate(&mut self, interface: u32, packet: Packet) -> Packet {
        self.bytes[0] += packet.data.len() as u64;
        let link = self.interfaces.get(interface as usize).copied();
        let (form, split) = split(link.map_or(Form::Opaque, Form::of), &packet.data);
        self.copied += u64::from(form == Form::Opaque);
        let Split { head, kind, rest } = split;
        let number = self.number(Head { interface, form, bytes: head.to_vec() });
        let mut data = vec![0x02, 0x77];
        data.extend(number.to_be_bytes());
        data.extend([0x02, 0x77]);
        data.extend(number.to_be_bytes());
        data.extend(kind);
        data.extend(rest);
        let original_len = resized(packet.original_len, packet.data.len(), data.len());
        Packet { time: packet.time, original_len, data }
    }

    /// The interface and the packet of a frame that is the translation of one, or was made of some of one interface.
    pub(super) fn restore(
        &mut self,
        original_len: u32,
        frame: &[u8],
    ) -> Option<(u32, u32, Vec<u8>)> {
        let number = u32::from_be_bytes(*frame.get(2..)?.first_chunk()?);
        let Head { interface, form, bytes } = self.heads.get(number as usize)?;
        let (kind, rest) = frame.get(ADDRESSES..)?.split_at_checked(2)?;
        let data = match form {
            Form::Ethernet | Form::Sll => [bytes, kind, rest].concat(),
            Form::Raw | Form::Opaque => rest.to_vec(),
            Form::Sll2 => [kind, bytes, rest].concat(),
        };
        self.bytes[1] += data.len() as u64;
        Some((*interface, resized(original_len, frame.len(), data.len()), data))
    }

    fn number(&mut self, head: Head) -> u32 {
        if let Some(number) = self.numbers.get(&head) {
            return *number;
        }
        let number = self.heads.len() as u32;
        self.heads.push(head.clone());
        self.numbers.insert(head, number);
        number
    }
}

/// Length on the wire of a packet of which `before` bytes became `after`.
fn resized(original_len: u32, before: usize, after: usize) -> u32 {
    let cut = original_len.saturating_sub(before as u32);
    (after as u32).saturating_add(cut)
}

/// A packet in parts.
struct Split<'a> {
    head: &'a [u8],
    kind: [u8; 2],
    rest: &'a [u8],
}

/// Splits a packet. One whose link header is not whole is opaque.
fn split(form: Form, data: &[u8]) -> (Form, Split<'_>) {
    let parsed = match form {
        Form::Ethernet => behind(data, 12),
        Form::Sll => behind(data, 14),
        Form::Sll2 => data.split_first_chunk::<2>().and_then(|(kind, more)| {
            let (head, rest) = more.split_at_checked(18)?;
            Some(Split { head, kind: *kind, rest })
        }),
        Form::Raw => {
            let kind = match data.first().map(|first| first >> 4) {
                Some(4) => Some([0x08, 0x00]),
                Some(6) => Some([0x86, 0xdd]),
                _ => None,
            };
            kind.map(|kind| Split { head: &[], kind, rest: data })
        }
        Form::Opaque => None,
    };
    match parsed {
        Some(split) => (form, split),
        None => (Form::Opaque, Split { head: &[], kind: OPAQUE, rest: data }),
    }
}

/// Splits a packet whose EtherType is at this offset.
fn behind(data: &[u8], head: usize) -> Option<Split<'_>> {
    let (head, more) = data.split_at_checked(head)?;
    let (kind, rest) = more.split_first_chunk::<2>()?;
    Some(Split { head, kind: *kind, rest })
}
