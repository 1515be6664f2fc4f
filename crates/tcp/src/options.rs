//! TCP options: read from a segment, and written into one (RFC 9293 section 3.1, RFC 7323, RFC 2018,
//! RFC 5482).

use wire::{Seq, TcpOption, TcpOptions, Timestamps};

/// Most bytes of options in a header.
pub const OPTIONS_MAX: usize = 40;

/// Bytes that timestamps take of every segment, padded as all stacks pad them (RFC 7323 appendix A).
pub const TIMESTAMPS_LEN: usize = 12;

/// A part of the sequence space: the first byte, and the one after the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Block {
    /// First byte.
    pub start: Seq,
    /// One after the last byte.
    pub end: Seq,
}

impl Block {
    /// Bytes in it.
    pub fn len(self) -> u32 {
        self.end - self.start
    }

    /// Whether it holds nothing.
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether all of `other` is in it.
    pub fn contains(self, other: Block) -> bool {
        !other.start.before(self.start) && !other.end.after(self.end)
    }
}

/// The blocks of a SACK option, at most four (RFC 2018 section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SackBlocks {
    blocks: [Block; 4],
    len: u8,
}

impl SackBlocks {
    /// The blocks, in the order of the option.
    pub fn as_slice(&self) -> &[Block] {
        &self.blocks[..usize::from(self.len)]
    }

    /// One more at the end, if there is room for it.
    pub fn push(&mut self, block: Block) {
        if let Some(place) = self.blocks.get_mut(usize::from(self.len)) {
            *place = block;
            self.len += 1;
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Leaves the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.len = self.len.min(count as u8);
    }
}

/// The options that TCP acts on. Others are skipped, as RFC 9293 section 3.1 (MUST-6) asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Maximum segment size in bytes of payload (kind 2).
    pub mss: Option<u16>,
    /// Window scale shift as sent, which may be above 14 (kind 3).
    pub window_scale: Option<u8>,
    /// SACK permitted (kind 4).
    pub sack_permitted: bool,
    /// Timestamps (kind 8).
    pub timestamps: Option<Timestamps>,
    /// Selective acknowledgments (kind 5).
    pub sack: SackBlocks,
    /// User timeout in seconds (kind 28, RFC 5482).
    pub user_timeout: Option<u32>,
}

impl Options {
    /// Reads the bytes behind the fixed header. An option with a length that is wrong ends the list; those
    /// before it count.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Options {
        // Nearly every segment of nearly every connection has exactly these.
        if let [1, 1, 8, 10, values @ ..] = bytes
            && let Ok(values) = <&[u8; 8]>::try_from(values)
        {
            let timestamps = Timestamps { value: be32(values, 0), echo: be32(values, 4) };
            return Options { timestamps: Some(timestamps), ..Options::default() };
        }
        if bytes.is_empty() {
            return Options::default();
        }
        Options::parse_any(bytes)
    }

    #[cold]
    #[inline(never)]
    fn parse_any(bytes: &[u8]) -> Options {
        let mut options = Options::default();
        for option in TcpOptions::new(bytes) {
            match option {
                Ok(TcpOption::Timestamps(timestamps)) => options.timestamps = Some(timestamps),
                Ok(TcpOption::Other { kind, data }) => options.take(kind, data),
                Ok(TcpOption::Nop) => {}
                Err(_) => break,
            }
        }
        options
    }

    fn take(&mut self, kind: u8, data: &[u8]) {
        match (kind, data) {
            (2, &[high, low]) => self.mss = Some(u16::from_be_bytes([high, low])),
            (3, &[shift]) => self.window_scale = Some(shift),
            (4, []) => self.sack_permitted = true,
            (5, blocks) if blocks.len() % 8 == 0 => {
                for block in blocks.chunks_exact(8) {
                    self.sack.push(Block { start: be32(block, 0), end: be32(block, 4) });
                }
            }
            (28, &[high, low]) => {
                let value = u16::from_be_bytes([high, low]);
                let seconds = u32::from(value & 0x7fff);
                // The first bit is the granularity: minutes if it is set (RFC 5482 section 3).
                self.user_timeout = Some(if value >> 15 == 1 { seconds * 60 } else { seconds });
            }
            _ => {}
        }
    }

    /// The options as they stand in a header, padded to a multiple of four. SACK blocks that there is
    /// no room for are left out.
    #[inline]
    pub fn encode(&self) -> Encoded {
        let mut out = Encoded::default();
        if let (Some(timestamps), None, false, true, None) = (
            self.timestamps,
            self.mss,
            self.sack_permitted,
            self.sack.is_empty(),
            self.user_timeout,
        ) && self.window_scale.is_none()
        {
            out.put(&[1, 1, 8, 10]);
            out.put_timestamps(timestamps);
            return out;
        }
        self.encode_any(&mut out);
        out
    }

    /// In the order of Linux, so that headers look alike.
    fn encode_any(&self, out: &mut Encoded) {
        if let Some(mss) = self.mss {
            let [high, low] = mss.to_be_bytes();
            out.put(&[2, 4, high, low]);
        }
        if let Some(timestamps) = self.timestamps {
            let lead = if self.sack_permitted { [4, 2, 8, 10] } else { [1, 1, 8, 10] };
            out.put(&lead);
            out.put_timestamps(timestamps);
        } else if self.sack_permitted {
            out.put(&[1, 1, 4, 2]);
        }
        if let Some(shift) = self.window_scale {
            out.put(&[1, 3, 3, shift]);
        }
        if let Some(seconds) = self.user_timeout {
            let value = if seconds > 0x7fff {
                0x8000 | u16::try_from(seconds / 60).unwrap_or(u16::MAX).min(0x7fff)
            } else {
                seconds as u16
            };
            let [high, low] = value.to_be_bytes();
            out.put(&[28, 4, high, low]);
        }
        let room = (OPTIONS_MAX - usize::from(out.len)).saturating_sub(4) / 8;
        let blocks = &self.sack.as_slice()[..self.sack.as_slice().len().min(room)];
        if !blocks.is_empty() {
            out.put(&[1, 1, 5, 2 + 8 * blocks.len() as u8]);
            for block in blocks {
                out.put(&block.start.0.to_be_bytes());
                out.put(&block.end.0.to_be_bytes());
            }
        }
    }
}

/// Options as bytes of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encoded {
    bytes: [u8; OPTIONS_MAX],
    len: u8,
}

impl Default for Encoded {
    fn default() -> Self {
        Encoded { bytes: [0; OPTIONS_MAX], len: 0 }
    }
}

impl Encoded {
    /// The bytes: a multiple of four.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let from = usize::from(self.len);
        // Every caller has made sure of the room; without it nothing is written.
        if let Some(place) = self.bytes.get_mut(from..from + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len() as u8;
        }
    }

    #[inline]
    fn put_timestamps(&mut self, timestamps: Timestamps) {
        self.put(&timestamps.value.0.to_be_bytes());
        self.put(&timestamps.echo.0.to_be_bytes());
    }
}

#[inline]
fn be32(bytes: &[u8], at: usize) -> Seq {
    Seq(u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]))
}
