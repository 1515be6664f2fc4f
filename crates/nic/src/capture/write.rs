//! Writing pcap, and pcapng.

use std::borrow::Cow;
use std::io::{self, Read, Write};
use std::rc::Rc;

use lro::Nanos;
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use super::link::{self, SharedLinks};
use super::{CaptureError, Packet, Reader, Resolution};

/// The longest packet that other programs expect in a capture (`tcpdump`'s own limit); an
/// aggregate of 64 KB with its Ethernet header is longer than the classic 65,535.
const SNAPLEN: u32 = 262_144;

/// Takes the packets that a run gives.
pub trait Output {
    /// One packet, of which `data` is what is known and `original_len` its length on the wire.
    ///
    /// # Errors
    /// When the packet cannot be kept.
    fn write(&mut self, time: Nanos, original_len: u32, data: &[u8]) -> Result<(), CaptureError>;
}

/// Writes a capture in the classic pcap format, or in pcapng where interfaces have different link types.
#[derive(Debug)]
pub struct Writer<W: Write> {
    format: Format<W>,
    resolution: Resolution,
    /// The links of the capture that was read, if its packets became Ethernet frames.
    links: Option<SharedLinks>,
}

#[derive(Debug)]
enum Format<W: Write> {
    Pcap(PcapWriter<W>),
    PcapNg {
        stream: W,
        /// Interfaces that are described so far.
        described: usize,
    },
}

/// Block types and fields of pcapng (draft-ietf-opsawg-pcapng, sections 4.1, 4.2 and 4.3).
const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
/// `if_tsresol`, and its one byte: nanoseconds.
const TIMESTAMP_RESOLUTION: [u16; 2] = [9, 1];
const NANOSECONDS: [u8; 4] = [9, 0, 0, 0];

/// Two fields of 16 bits, as the word that they are together.
fn pair(fields: [u16; 2]) -> u32 {
    let [[a, b], [c, d]] = fields.map(u16::to_ne_bytes);
    u32::from_ne_bytes([a, b, c, d])
}

impl<W: Write> Writer<W> {
    /// Writes the file header to `stream`, which should be buffered.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn new(stream: W, resolution: Resolution) -> Result<Self, CaptureError> {
        Self::pcap(stream, resolution, link::ETHERNET)
    }

    /// Writes the file header of a capture of the same link types as a reader's to `stream`, which should be buffered.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn like<R: Read>(stream: W, reader: &Reader<R>) -> Result<Self, CaptureError> {
        let (common, links) = reader.links();
        let writer = match common {
            Some(link) => Self::pcap(stream, reader.resolution(), link)?,
            None => Self::pcapng(stream)?,
        };
        let links = links.borrow().is_translated.then(|| Rc::clone(links));
        Ok(Writer { links, ..writer })
    }

    fn pcapng(mut stream: W) -> Result<Self, CaptureError> {
        // Version 1.0, of a length that is not known.
        block(&mut stream, SECTION, &[BYTE_ORDER, pair([1, 0]), u32::MAX, u32::MAX], &[])?;
        let format = Format::PcapNg { stream, described: 0 };
        Ok(Writer { format, resolution: Resolution::Nanoseconds, links: None })
    }

    fn pcap(stream: W, resolution: Resolution, link: u16) -> Result<Self, CaptureError> {
        let header = PcapHeader {
            snaplen: SNAPLEN,
            ts_resolution: match resolution {
                Resolution::Microseconds => TsResolution::MicroSecond,
                Resolution::Nanoseconds => TsResolution::NanoSecond,
            },
            endianness: Endianness::native(),
            datalink: DataLink::from(u32::from(link)),
            ..PcapHeader::default()
        };
        let pcap = PcapWriter::with_header(stream, header).map_err(io_error)?;
        Ok(Writer { format: Format::Pcap(pcap), resolution, links: None })
    }

    /// Ends the capture and gives the stream back, flushed.
    ///
    /// # Errors
    /// Errors of the stream.
    pub fn finish(self) -> Result<W, CaptureError> {
        let mut stream = match self.format {
            Format::Pcap(pcap) => pcap.into_writer(),
            Format::PcapNg { stream, .. } => stream,
        };
        stream.flush()?;
        Ok(stream)
    }
}

impl<W: Write> Output for Writer<W> {
    fn write(&mut self, time: Nanos, original_len: u32, data: &[u8]) -> Result<(), CaptureError> {
        let restored = match &self.links {
            Some(links) => links.borrow_mut().restore(original_len, data),
            None => None,
        };
        match restored {
            Some((interface, original_len, data)) => self.put(interface, time, original_len, &data),
            None => self.put(0, time, original_len, data),
        }
    }
}

impl<W: Write> Writer<W> {
    /// Writes a packet with its own link header.
    fn put(
        &mut self,
        interface: u32,
        time: Nanos,
        original_len: u32,
        data: &[u8],
    ) -> Result<(), CaptureError> {
        let pcap = match &mut self.format {
            Format::Pcap(pcap) => pcap,
            Format::PcapNg { stream, described } => {
                let links = self.links.as_ref().map(|links| links.borrow());
                let all = links.as_ref().map_or(&[][..], |links| &links.interfaces);
                for link in all.iter().skip(*described) {
                    let resolution = u32::from_ne_bytes(NANOSECONDS);
                    let words =
                        [pair([*link, 0]), SNAPLEN, pair(TIMESTAMP_RESOLUTION), resolution, 0];
                    block(stream, INTERFACE, &words, &[])?;
                }
                *described = all.len();
                let (high, low) = ((time >> 32) as u32, time as u32);
                let words = [interface, high, low, data.len() as u32, original_len];
                return block(stream, ENHANCED_PACKET, &words, data).map_err(CaptureError::Io);
            }
        };
        let fraction = (time % 1_000_000_000) as u32;
        let packet = RawPcapPacket {
            ts_sec: u32::try_from(time / 1_000_000_000).map_err(|_| CaptureError::Timestamp)?,
            ts_frac: match self.resolution {
                Resolution::Microseconds => fraction / 1_000,
                Resolution::Nanoseconds => fraction,
            },
            incl_len: data.len() as u32,
            orig_len: original_len,
            data: Cow::Borrowed(data),
        };
        pcap.write_raw_packet(&packet).map(drop).map_err(io_error)
    }
}

/// Writes a block of pcapng: words, then bytes.
fn block(stream: &mut impl Write, kind: u32, words: &[u32], bytes: &[u8]) -> io::Result<()> {
    let padding = bytes.len().next_multiple_of(4) - bytes.len();
    let len = (12 + 4 * words.len() + bytes.len() + padding) as u32;
    for word in [kind, len].iter().chain(words) {
        stream.write_all(&word.to_ne_bytes())?;
    }
    stream.write_all(bytes)?;
    stream.write_all(&[0; 3][..padding])?;
    stream.write_all(&len.to_ne_bytes())
}

/// Keeps the packets in memory.
impl Output for Vec<Packet> {
    fn write(&mut self, time: Nanos, original_len: u32, data: &[u8]) -> Result<(), CaptureError> {
        self.push(Packet { time, original_len, data: data.to_vec() });
        Ok(())
    }
}

/// The format's writer has no other errors than the stream's.
fn io_error(error: PcapError) -> CaptureError {
    match error {
        PcapError::IoError(error) => CaptureError::Io(error),
        other => CaptureError::Io(io::Error::other(other)),
    }
}
