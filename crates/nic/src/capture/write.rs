//! Writing pcap.

use std::borrow::Cow;
use std::io::{self, Write};

use lro::Nanos;
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::{Endianness, PcapError, TsResolution};

use super::{CaptureError, Packet, Resolution};

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

/// Writes a capture of Ethernet frames in the classic pcap format.
#[derive(Debug)]
pub struct Writer<W: Write> {
    pcap: PcapWriter<W>,
    resolution: Resolution,
}

impl<W: Write> Writer<W> {
    /// Writes the file header to `stream`, which should be buffered.
    ///
    /// # Errors
    /// What the stream says.
    pub fn new(stream: W, resolution: Resolution) -> Result<Self, CaptureError> {
        let header = PcapHeader {
            snaplen: SNAPLEN,
            ts_resolution: match resolution {
                Resolution::Microseconds => TsResolution::MicroSecond,
                Resolution::Nanoseconds => TsResolution::NanoSecond,
            },
            endianness: Endianness::native(),
            ..PcapHeader::default()
        };
        let pcap = PcapWriter::with_header(stream, header).map_err(io_error)?;
        Ok(Writer { pcap, resolution })
    }

    /// Ends the capture and gives the stream back, flushed.
    ///
    /// # Errors
    /// What the stream says.
    pub fn finish(self) -> Result<W, CaptureError> {
        let mut stream = self.pcap.into_writer();
        stream.flush()?;
        Ok(stream)
    }
}

impl<W: Write> Output for Writer<W> {
    fn write(&mut self, time: Nanos, original_len: u32, data: &[u8]) -> Result<(), CaptureError> {
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
        self.pcap.write_raw_packet(&packet).map(drop).map_err(io_error)
    }
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
