//! Reading pcap and pcapng.

use std::io::{self, Chain, Cursor, Read};

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

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
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// The packets of a capture, one by one. After an error there are no more.
pub struct Reader<R: Read> {
    format: Format<Source<R>>,
    resolution: Resolution,
    packets: u64,
    ended: bool,
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
        let (format, resolution) = if PCAP.contains(&magic) {
            let reader = PcapReader::new(stream).map_err(|error| in_packet(0, error))?;
            let header = reader.header();
            ethernet(header.datalink)?;
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
        Ok(Reader { format, resolution, packets: 0, ended: false })
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
        let next = match &mut self.format {
            Format::Pcap(reader) => next_of_pcap(reader, self.resolution, self.packets),
            Format::PcapNg(reader) => next_of_pcapng(reader, self.packets),
        };
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

fn next_of_pcap<R: Read>(
    reader: &mut PcapReader<R>,
    resolution: Resolution,
    number: u64,
) -> Result<Option<Packet>, CaptureError> {
    // Raw, because the checks of the cooked packet refuse what `tcpdump -s` writes.
    let Some(packet) = reader.next_raw_packet() else { return Ok(None) };
    let packet = packet.map_err(|error| in_packet(number, error))?;
    let fraction = match resolution {
        Resolution::Microseconds => 1_000,
        Resolution::Nanoseconds => 1,
    };
    let time = u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_frac) * fraction;
    let original_len = packet.orig_len.max(packet.incl_len);
    Ok(Some(Packet { time, original_len, data: packet.data.into_owned() }))
}

fn next_of_pcapng<R: Read>(
    reader: &mut PcapNgReader<R>,
    number: u64,
) -> Result<Option<Packet>, CaptureError> {
    loop {
        let Some(block) = reader.next_raw_block() else { return Ok(None) };
        let block = block.map_err(|error| in_packet(number, error))?;
        let kind = block.type_;
        if !matches!(kind, OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
            continue;
        }
        let body = block.body.into_owned();
        let fields = PacketFields::read(kind, &body, reader.section().endianness)
            .ok_or_else(|| damaged(number, "its block is too short"))?;
        let interface = reader
            .interfaces()
            .get(fields.interface)
            .ok_or_else(|| damaged(number, "its interface is not described"))?;
        ethernet(interface.linktype)?;
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
        return Ok(Some(Packet { time, original_len: fields.original_len.max(len), data }));
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
fn ethernet(link: DataLink) -> Result<(), CaptureError> {
    match DataLink::from(u32::from(link) & 0xffff) {
        DataLink::ETHERNET => Ok(()),
        DataLink::Unknown(number) => Err(CaptureError::LinkType(format!("number {number}"))),
        other => Err(CaptureError::LinkType(format!("{other:?}"))),
    }
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
