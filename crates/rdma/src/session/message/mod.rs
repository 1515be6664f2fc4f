//! Messages by the Unix socket of a session.
//!
//! A message is a version and a kind, ten words, little-endian, and up to [`BYTES_MAX`] bytes. Each request is
//! answered by one [`Reply`], whose words are said below; those of an error are zero.
//!
//! | request | the reply's words | descriptors with the request; with the reply |
//! |---|---|---|
//! | [`Hello`](Request::Hello) | bytes of the shared memory; what is at the probe now | the process's memory; the shared memory, what wakes the device |
//! | [`Query`](Request::Query) | see [`Device`](super::device::Device) | |
//! | [`OpenContext`](Request::OpenContext) | its number | –; where its events are read |
//! | [`AllocPd`](Request::AllocPd) | its number | |
//! | [`Register`](Request::Register) | the STag | the file, if the memory is one's |
//! | [`AllocWindow`](Request::AllocWindow) | the STag | |
//! | [`CreateChannel`](Request::CreateChannel), [`CreateEvents`](Request::CreateEvents) | its number | –; where its events are read |
//! | [`CreateCq`](Request::CreateCq) | its number, its [`Area`](super::Area) | |
//! | [`CreateSrq`](Request::CreateSrq) | its number, its area | |
//! | [`CreateQp`](Request::CreateQp) | its number, the areas of its send and of its receive queue | |
//! | [`ModifyQp`](Request::ModifyQp), [`QueryQp`](Request::QueryQp) | its state | |
//! | [`QuerySrq`](Request::QuerySrq) | its limit | |
//! | [`CreateId`](Request::CreateId) | its number | |
//! | [`Bind`](Request::Bind), [`ResolveAddr`](Request::ResolveAddr), [`Listen`](Request::Listen) | its own address | |
//! | all others | none | |
//!
//! Events come as messages at the descriptors that replies bring, which end when the device does:
//!
//! | descriptor of | a message |
//! |---|---|
//! | a completion channel | the number of the completion queue, as a word |
//! | a context | the `ibv_event_type` and the number of the object, as two words |
//! | [`CreateEvents`](Request::CreateEvents) | a [`Reply`] that is a [`CmEvent`](super::cm::CmEvent) |

mod codec;
mod request;

use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

pub use request::{Connect, QpRequest, RegisterRequest, Request};

/// Version of the messages and of the shared memory.
pub const VERSION: u16 = 1;
/// Words of a message.
pub const WORDS: usize = 10;
/// Bytes of the longest private data (RFC 5044 section 7.1.1).
pub const BYTES_MAX: usize = 512;
const HEAD: usize = 8;
/// Bytes of the longest message.
pub const MESSAGE_MAX: usize = HEAD + WORDS * 8 + BYTES_MAX;

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// Their number is not possible.
    Length(usize),
    /// Another version.
    Version(u16),
    /// No such message.
    Kind(u16),
    /// A value that it does not have.
    Value,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::Length(len) => write!(f, "a message of {len} bytes"),
            MessageError::Version(version) => write!(
                f,
                "version {version} of the messages, not {VERSION}: use wharf and libwharf-rdma.so of one build"
            ),
            MessageError::Kind(kind) => write!(f, "no message has the number {kind}"),
            MessageError::Value => f.write_str("a message with a value that it does not have"),
        }
    }
}

impl core::error::Error for MessageError {}

pub(super) type Words = [u64; WORDS];

/// An address as three words; all zero is none.
pub fn words_of(address: Option<SocketAddr>) -> [u64; 3] {
    let (family, ip, port, scope) = match address {
        None => return [0; 3],
        Some(SocketAddr::V4(v4)) => (4, v4.ip().to_ipv6_mapped(), v4.port(), 0),
        Some(SocketAddr::V6(v6)) => (6, *v6.ip(), v6.port(), v6.scope_id()),
    };
    let bits = ip.to_bits();
    let first = u64::from(port) | family << 16 | u64::from(scope) << 32;
    [first, bits as u64, (bits >> 64) as u64]
}

/// From three words.
pub fn address_of(words: [u64; 3]) -> Option<SocketAddr> {
    let [first, low, high] = words;
    let (port, scope) = (first as u16, (first >> 32) as u32);
    let ip = Ipv6Addr::from_bits(u128::from(low) | u128::from(high) << 64);
    match (first >> 16) as u16 {
        4 => Some(SocketAddr::new(IpAddr::V4(ip.to_ipv4_mapped()?), port)),
        6 => Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope))),
        _ => None,
    }
}

/// The first words of a message.
fn padded<const N: usize>(first: [u64; N]) -> Words {
    let mut words = [0; WORDS];
    words[..N].copy_from_slice(&first);
    words
}

/// Two numbers as a word.
pub fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The two numbers of a word.
pub fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

fn encode(kind: u16, words: &Words, bytes: &[u8]) -> Result<Vec<u8>, MessageError> {
    if bytes.len() > BYTES_MAX {
        return Err(MessageError::Length(bytes.len()));
    }
    let mut message = Vec::with_capacity(HEAD + WORDS * 8 + bytes.len());
    message.extend_from_slice(&VERSION.to_le_bytes());
    message.extend_from_slice(&kind.to_le_bytes());
    message.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    words.iter().for_each(|word| message.extend_from_slice(&word.to_le_bytes()));
    message.extend_from_slice(bytes);
    Ok(message)
}

fn decode(bytes: &[u8]) -> Result<(u16, Words, &[u8]), MessageError> {
    let wrong = MessageError::Length(bytes.len());
    let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(wrong)?;
    let (given, private) = rest.split_at_checked(WORDS * 8).ok_or(wrong)?;
    let version = u16::from_le_bytes([head[0], head[1]]);
    if version != VERSION {
        return Err(MessageError::Version(version));
    }
    let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if len != private.len() || len > BYTES_MAX {
        return Err(wrong);
    }
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(given.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    Ok((u16::from_le_bytes([head[2], head[3]]), words, private))
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reply {
    /// The errno(3) of Linux; 0 if it was done.
    pub errno: u16,
    /// What it says: see [the table](self).
    pub words: [u64; WORDS],
    /// Private data.
    pub bytes: Vec<u8>,
}

impl Reply {
    /// It was done, and these are its words.
    pub fn done<const N: usize>(first: [u64; N]) -> Self {
        Reply { words: padded(first), ..Self::default() }
    }

    /// It was not done.
    pub fn error(errno: i32) -> Self {
        Reply { errno: u16::try_from(errno).unwrap_or(u16::MAX), ..Self::default() }
    }

    /// As bytes.
    ///
    /// # Errors
    /// [`MessageError::Length`] for bytes that are too many.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        encode(self.errno, &self.words, &self.bytes)
    }

    /// From bytes.
    ///
    /// # Errors
    /// If they are no reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let (errno, words, bytes) = decode(bytes)?;
        Ok(Reply { errno, words, bytes: bytes.to_vec() })
    }
}
