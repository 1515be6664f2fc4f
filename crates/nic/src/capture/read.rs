//! Reading pcap and pcapng.

use std::cell::RefCell;
use std::io::{self, Chain, Cursor, Read};
use std::rc::Rc;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use super::link::{self, LinkCounts, Links, SharedLinks};
use super::{CaptureError, Packet, Resolution};

/// The format's first bytes, byte-swapped or not (draft-ietf-opsawg-pcap, section 4).
const PCAP: [[u8; 4]; 4] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
];
/// A section header's block type, the same in both byte orders (draft-ietf-opsawg-pcapng, 4.1).
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Block types that hold packets (draft-ietf-opsawg-pcapng, sections 4.3, 4.4 and appendix A).
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// A section header, behind which interfaces are numbered from 0 again.
const SECTION: u32 = 0x0a0d_0d0a;

/// The packets of a capture, one by one. After an error there are no more.
///
/// Those of other link layers than Ethernet become Ethernet frames, which a [`Writer`](super::Writer) that was made
/// [`like`](super::Writer::like) this reader makes what they were. So do all where interfaces have different link types.
pub struct Reader<R: Read> {
    format: Format<Source<R>>,
    resolution: Resolution,
    packets: u64,
    ended: bool,
    /// The first packet, which was read to know the interfaces.
    first: Option<Result<Option<Raw>, CaptureError>>,
    links: SharedLinks,
    /// Link type of all packets; `None` if there are several.
    common: Option<u16>,
}

/// A packet as the capture has it.
struct Raw {
    interface: u32,
    packet: Packet,
}

/// The stream, with the bytes that were looked at put back in front.
type Source<R> = Chain<Cursor<[u8; 4]>, R>;

enum Format<R: Read> {
    Pcap(PcapReader<R>),
    PcapNg(PcapNgReader<R>),
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of `stream` and finds out the format.
    ///
    /// # Errors
    /// All of [`CaptureError`] but `Timestamp`.
    pub fn new(mut stream: R) -> Result<Self, CaptureError> {
        let mut magic = [0; 4];
        stream.read_exact(&mut magic).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => CaptureError::NotACapture,
            _ => CaptureError::Io(error),
        })?;
        let stream = Cursor::new(magic).chain(stream);
        let mut links = Links::default();
        let (mut format, resolution) = if PCAP.contains(&magic) {
            let reader = PcapReader::new(stream).map_err(|error| in_packet(0, error))?;
            let header = reader.header();
            links.interfaces.push(link_type(header.datalink));
            let resolution = match header.ts_resolution {
                TsResolution::MicroSecond => Resolution::Microseconds,
                TsResolution::NanoSecond => Resolution::Nanoseconds,
            };
            (Format::Pcap(reader), resolution)
        } else if magic == PCAPNG {
            let reader = PcapNgReader::new(stream).map_err(|error| in_packet(0, error))?;
            // Each interface has its own; none is lost in nanoseconds.
            (Format::PcapNg(reader), Resolution::Nanoseconds)
        } else {
            return Err(CaptureError::NotACapture);
        };
        let first = match &mut format {
            Format::Pcap(_) => None,
            Format::PcapNg(reader) => Some(next_of_pcapng(reader, &mut links, 1)),
        };
        let common = links.common();
        if let Some(link) = common.filter(|link| !link::is_read(*link)) {
            return Err(CaptureError::LinkType(link::name(link)));
        }
        links.is_translated = common != Some(link::ETHERNET);
        let links = Rc::new(RefCell::new(links));
        Ok(Reader { format, resolution, packets: 0, ended: false, first, links, common })
    }

    /// Link type of all packets, if they have one, and the links.
    pub(super) fn links(&self) -> (Option<u16>, &SharedLinks) {
        (self.common, &self.links)
    }

    /// Returns a function for the counts beside those of a run, to be called when the reader is used up.
    pub fn counts(&self) -> impl Fn() -> LinkCounts + use<R> {
        let links = Rc::clone(&self.links);
        move || links.borrow().counts()
    }

    fn next_raw(&mut self) -> Result<Option<Raw>, CaptureError> {
        if let Some(first) = self.first.take() {
            return first;
        }
        match &mut self.format {
            Format::Pcap(reader) => next_of_pcap(reader, self.resolution, self.packets),
            Format::PcapNg(reader) => {
                next_of_pcapng(reader, &mut self.links.borrow_mut(), self.packets)
            }
        }
    }

    /// The packet, as an Ethernet frame.
    fn frame(&self, Raw { interface, packet }: Raw) -> Result<Packet, CaptureError> {
        let mut links = self.links.borrow_mut();
        let link = links.interfaces.get(interface as usize).copied();
        if let (Some(common), Some(link)) = (self.common, link)
            && link != common
        {
            let link = link::name(link);
            return Err(CaptureError::LateInterface { packet: self.packets, link });
        }
        Ok(if links.is_translated { links.translate(interface, packet) } else { packet })
    }

    /// What an output needs so that no timestamp loses anything.
    pub fn resolution(&self) -> Resolution {
        self.resolution
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Packet, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        self.packets += 1;
        let next = self.next_raw();
        let next = next.and_then(|raw| raw.map(|raw| self.frame(raw)).transpose());
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

fn next_of_pcap<R: Read>(
    reader: &mut PcapReader<R>,
    resolution: Resolution,
    number: u64,
) -> Result<Option<Raw>, CaptureError> {
    // Raw, because the checks of the cooked packet refuse what `tcpdump -s` writes.
    let Some(packet) = reader.next_raw_packet() else { return Ok(None) };
    let packet = packet.map_err(|error| in_packet(number, error))?;
    let fraction = match resolution {
        Resolution::Microseconds => 1_000,
        Resolution::Nanoseconds => 1,
    };
    let time = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * fraction;
    let original_len = packet.orig_len.max(packet.incl_len);
    let packet = Packet { time, original_len, data: packet.data.into_owned() };
    Ok(Some(Raw { interface: 0, packet }))
}

fn next_of_pcapng<R: Read>(
    reader: &mut PcapNgReader<R>,
    links: &mut Links,
    number: u64,
) -> Result<Option<Raw>, CaptureError> {
    loop {
        let Some(block) = reader.next_raw_block() else { return Ok(None) };
        let block = block.map_err(|error| in_packet(number, error))?;
        let kind = block.type_;
        if kind == SECTION {
            links.section = links.interfaces.len();
        }
        let body = block.body.into_owned();
        if kind == INTERFACE {
            let described = reader.interfaces().last();
            links.interfaces.extend(described.map(|interface| link_type(interface.linktype)));
        }
        if !matches!(kind, OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
            continue;
        }
        let fields = PacketFields::read(kind, &body, reader.section().endianness)
            .ok_or_else(|| damaged(number, "its block is too short"))?;
        let interface = reader
            .interfaces()
            .get(fields.interface)
            .ok_or_else(|| damaged(number, "its interface is not described"))?;
        let time = nanoseconds(interface, fields.time)
            .ok_or_else(|| damaged(number, "its timestamp makes no sense"))?;
        let len = match kind {
            // The only block that does not say how much was captured.
            SIMPLE_PACKET => {
                let snaplen = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
                fields.original_len.min(snaplen)
            }
            _ => fields.captured_len,
        };
        let data = body[fields.data_at..]
            .get(..len as usize)
            .ok_or_else(|| damaged(number, "it is longer than its block"))?
            .to_vec();
        let packet = Packet { time, original_len: fields.original_len.max(len), data };
        let interface = (links.section + fields.interface) as u32;
        return Ok(Some(Raw { interface, packet }));
    }
}

/// The fixed part of a block that holds a packet. Options after the data are not looked at.
struct PacketFields {
    interface: usize,
    time: u64,
    captured_len: u32,
    original_len: u32,
    data_at: usize,
}

impl PacketFields {
    /// `None` if the block is too short for its kind.
    fn read(kind: u32, body: &[u8], order: Endianness) -> Option<PacketFields> {
        let word = |at: usize| {
            let bytes = body.get(at..at + 4)?.try_into().ok()?;
            Some(if order.is_big() { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        if kind == SIMPLE_PACKET {
            let original_len = word(0)?;
            return Some(PacketFields {
                interface: 0,
                time: 0,
                captured_len: 0,
                original_len,
                data_at: 4,
            });
        }
        let interface = match (kind, word(0)?) {
            (ENHANCED_PACKET, interface) => interface,
            // Two halves: the interface, then a count of drops.
            (_, halves) if order.is_big() => halves >> 16,
            (_, halves) => halves & 0xffff,
        };
        Some(PacketFields {
            interface: interface as usize,
            time: u64::from(word(4)?) << 32 | u64::from(word(8)?),
            captured_len: word(12)?,
            original_len: word(16)?,
            data_at: 20,
        })
    }
}

/// A timestamp in nanoseconds, by the interface's `if_tsresol` and `if_tsoffset`
/// (draft-ietf-opsawg-pcapng, section 4.2).
fn nanoseconds(interface: &InterfaceDescriptionBlock<'_>, time: u64) -> Option<u64> {
    let mut resolution = 6;
    let mut offset = 0;
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(value) => resolution = *value,
            InterfaceDescriptionOption::IfTsOffset(value) => offset = *value as i64,
            _ => {}
        }
    }
    let power = u32::from(resolution & 0x7f);
    let per_second =
        if resolution & 0x80 == 0 { 10u128.checked_pow(power) } else { 2u128.checked_pow(power) }?;
    let nanoseconds = u128::from(time) * 1_000_000_000 / per_second;
    let offset = i128::from(offset) * 1_000_000_000;
    u64::try_from(i128::try_from(nanoseconds).ok()? + offset).ok()
}

/// The link type's upper half says how long the frame check sequence is; it is cut off like
/// Ethernet padding.
fn link_type(link: DataLink) -> u16 {
    u32::from(link) as u16
}

fn damaged(packet: u64, what: &str) -> CaptureError {
    CaptureError::Damaged { packet, what: what.to_owned() }
}

/// What the format's reader says about packet `packet`.
fn in_packet(packet: u64, error: PcapError) -> CaptureError {
    match error {
        PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            CaptureError::Truncated { packet }
        }
        PcapError::IoError(error) => CaptureError::Io(error),
        PcapError::IncompleteBuffer => CaptureError::Truncated { packet },
        other => CaptureError::Damaged { packet, what: other.to_string() },
    }
}
