//! TCP headers and options (RFC 9293 section 3.1).

use core::fmt;

use crate::malformed::Malformed;
use crate::{Seq, be16, be32, put16, put32};

/// Bytes of a TCP header without options.
pub const TCP_MIN_LEN: usize = 20;

/// The control bits of a TCP header, without AE (AccECN, RFC 9768; once NS).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push: deliver the data received so far.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment number is valid.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is valid.
    pub const URG: Flags = Flags(0x20);
    /// Congestion was experienced (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// Whether any of `other` is set.
    #[inline]
    pub const fn any(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }

    /// Both sets together.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// `self` less all of `other`.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut between = "";
        for (bit, name) in NAMES.iter().enumerate() {
            if self.0 & (1 << bit) != 0 {
                write!(f, "{between}{name}")?;
                between = "|";
            }
        }
        Ok(())
    }
}

/// A view of a TCP header; the header, options included, is in range.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<T>(T);

impl<T: AsRef<[u8]>> Tcp<T> {
    /// Checks that `bytes` (the IP payload) hold a whole header, options included.
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        if bytes.as_ref().len() < TCP_MIN_LEN {
            return Err(Malformed::ShortTcp);
        }
        let view = Tcp(bytes);
        let len = view.header_len();
        if len < TCP_MIN_LEN || len > view.0.as_ref().len() {
            return Err(Malformed::TcpDataOffset);
        }
        Ok(view)
    }

    /// A header that [`new`](Self::new) has accepted before.
    #[inline]
    pub(crate) fn parsed(bytes: T) -> Self {
        Tcp(bytes)
    }

    /// Source port.
    #[inline]
    pub fn source(&self) -> u16 {
        be16(self.0.as_ref(), 0)
    }

    /// Destination port.
    #[inline]
    pub fn destination(&self) -> u16 {
        be16(self.0.as_ref(), 2)
    }

    /// Sequence number of the first payload byte (of the SYN, if set).
    #[inline]
    pub fn seq(&self) -> Seq {
        Seq(be32(self.0.as_ref(), 4))
    }

    /// Acknowledgment number.
    #[inline]
    pub fn ack(&self) -> Seq {
        Seq(be32(self.0.as_ref(), 8))
    }

    /// Header length in bytes, options included (data offset x 4).
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[12] >> 4) * 4
    }

    /// The four bits between data offset and flags: three reserved, then AE (RFC 9768).
    #[inline]
    pub fn reserved(&self) -> u8 {
        self.0.as_ref()[12] & 0x0f
    }

    /// Control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(self.0.as_ref()[13])
    }

    /// Window field, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        be16(self.0.as_ref(), 14)
    }

    /// Checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        be16(self.0.as_ref(), 16)
    }

    /// Urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        be16(self.0.as_ref(), 18)
    }

    /// The bytes of all options, padding included.
    #[inline]
    pub fn option_bytes(&self) -> &[u8] {
        &self.0.as_ref()[TCP_MIN_LEN..self.header_len()]
    }

    /// The options, one by one.
    #[inline]
    pub fn options(&self) -> TcpOptions<'_> {
        TcpOptions::new(self.option_bytes())
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Tcp<T> {
    /// Sets the sequence number.
    #[inline]
    pub fn set_seq(&mut self, seq: Seq) {
        put32(self.0.as_mut(), 4, seq.0);
    }

    /// Sets the acknowledgment number.
    #[inline]
    pub fn set_ack(&mut self, ack: Seq) {
        put32(self.0.as_mut(), 8, ack.0);
    }

    /// Sets the control bits.
    #[inline]
    pub fn set_flags(&mut self, flags: Flags) {
        self.0.as_mut()[13] = flags.0;
    }

    /// Sets the window field.
    #[inline]
    pub fn set_window(&mut self, window: u16) {
        put16(self.0.as_mut(), 14, window);
    }

    /// Sets the checksum field.
    #[inline]
    pub fn set_checksum(&mut self, value: u16) {
        put16(self.0.as_mut(), 16, value);
    }
}

/// One TCP option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpOption<'a> {
    /// Padding between options (kind 1).
    Nop,
    /// Timestamps (kind 8, RFC 7323 section 3.2).
    Timestamps(Timestamps),
    /// Any other kind, with its data.
    Other {
        /// Option kind.
        kind: u8,
        /// The bytes after kind and length.
        data: &'a [u8],
    },
}

/// The two values of a timestamps option (RFC 7323 section 3.2). They compare as sequence numbers do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timestamps {
    /// TSval: the sender's timestamp clock.
    pub value: Seq,
    /// TSecr: the echoed timestamp.
    pub echo: Seq,
}

/// Iterator over TCP options; ends at End-of-Options (kind 0) or after the first malformed option.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a>(&'a [u8]);

impl<'a> TcpOptions<'a> {
    /// The options in `bytes`, as [`Tcp::option_bytes`] gives them.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        TcpOptions(bytes)
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = Result<TcpOption<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&kind, rest) = self.0.split_first()?;
        match kind {
            0 => {
                self.0 = &[];
                None
            }
            1 => {
                self.0 = rest;
                Some(Ok(TcpOption::Nop))
            }
            _ => {
                let len = rest.first().map_or(0, |&l| usize::from(l));
                if len < 2 || len > self.0.len() {
                    self.0 = &[];
                    return Some(Err(Malformed::TcpOptionLength));
                }
                let data = &self.0[2..len];
                self.0 = &self.0[len..];
                Some(Ok(match (kind, data.len()) {
                    (8, 8) => TcpOption::Timestamps(Timestamps {
                        value: Seq(be32(data, 0)),
                        echo: Seq(be32(data, 4)),
                    }),
                    _ => TcpOption::Other { kind, data },
                }))
            }
        }
    }
}
