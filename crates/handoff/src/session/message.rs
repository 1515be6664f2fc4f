//! Messages by the Unix socket of a session.

use core::fmt;

use super::{BadLayout, Layout};
use crate::{Cid, RestoreReason};

/// Version of the messages and of the layout.
pub const VERSION: u16 = 5;

/// The owner of the note (elf(5)) in `libwharf.so` that says of which build that is: its kind is [`VERSION`], and its text
/// is [`BUILD`].
pub const BUILD_NOTE: &str = "wharf";

/// The build of this crate: wharf and `libwharf.so` must be of the same.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

/// Most NICs with which a process has a session each.
pub const NICS_MAX: usize = 8;

/// The sixth argument of system calls of the library's own, where a supervisor answers those that take fewer: they are the
/// kernel's. No program has that by chance.
pub const PAST_SUPERVISOR: u64 = 0x6ec7_13f0_a52d_99b1;

/// Bytes of a message.
pub const MESSAGE_LEN: usize = 32;

/// What wharf answers to [`Message::Hello`]. With it come descriptors: the memory, the eventfd by which the
/// application is woken, and for each worker one by which it is woken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// The memory's.
    pub layout: Layout,
    /// Index of the host's interface: connections whose route leads through it are the NIC's to take.
    pub interface: u32,
}

/// A message, little-endian, each as long as any other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The application begins.
    Hello,
    /// wharf's answer.
    Welcome(Welcome),
    /// The application offers a connection; with it comes its socket. Its number is free, and its status had this
    /// [count](super::status::count) of changes: with another one the offer is withdrawn. True if the process uses io_uring: then
    /// the connection is to stay with the kernel.
    Offer(Cid, u16, bool),
    /// The application wants a connection back, for this reason.
    Restore(Cid, RestoreReason),
    /// The application wants all its connections back, for this reason.
    RestoreAll(RestoreReason),
    /// The application has closed its last descriptor of the connection: what is queued is still sent.
    Close(Cid),
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// Their number is not [`MESSAGE_LEN`].
    Length(usize),
    /// Another version.
    Version(u16),
    /// No such message.
    Kind(u8),
    /// A value that it does not have.
    Value,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MessageError::Length(len) => write!(f, "a message of {len} bytes, not {MESSAGE_LEN}"),
            MessageError::Version(version) => {
                write!(
                    f,
                    "version {version} of the messages, not {VERSION}: use wharf and libwharf.so of one build"
                )
            }
            MessageError::Kind(kind) => write!(f, "no message has the number {kind}"),
            MessageError::Value => f.write_str("a message with a value that it does not have"),
        }
    }
}

impl core::error::Error for MessageError {}

impl From<BadLayout> for MessageError {
    fn from(_: BadLayout) -> Self {
        MessageError::Value
    }
}

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const OFFER: u8 = 3;
const RESTORE: u8 = 4;
const CLOSE: u8 = 5;
const RESTORE_ALL: u8 = 6;

/// Words behind version, kind and detail.
const NUMBERS: usize = 7;

impl Message {
    /// As bytes.
    pub fn encode(&self) -> [u8; MESSAGE_LEN] {
        let (kind, detail, numbers) = match *self {
            Message::Hello => (HELLO, 0, [0; NUMBERS]),
            Message::Welcome(Welcome { layout, interface }) => {
                let Layout { workers, commands, connections, send, receive } = layout;
                (WELCOME, 0, [workers, commands, connections, send, receive, interface, 0])
            }
            Message::Offer(cid, count, has_io_uring) => {
                (OFFER, has_io_uring.into(), [cid.0, count.into(), 0, 0, 0, 0, 0])
            }
            Message::Restore(cid, reason) => (RESTORE, reason.code(), [cid.0, 0, 0, 0, 0, 0, 0]),
            Message::RestoreAll(reason) => (RESTORE_ALL, reason.code(), [0; NUMBERS]),
            Message::Close(cid) => (CLOSE, 0, [cid.0, 0, 0, 0, 0, 0, 0]),
        };
        let mut bytes = [0; MESSAGE_LEN];
        bytes[..2].copy_from_slice(&VERSION.to_le_bytes());
        bytes[2..4].copy_from_slice(&[kind, detail]);
        for (bytes, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// From bytes.
    ///
    /// # Errors
    /// If they are no message that [`encode`](Self::encode) gives. Nothing is said of whether its connection exists.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let bytes: &[u8; MESSAGE_LEN] =
            bytes.try_into().map_err(|_| MessageError::Length(bytes.len()))?;
        let version = u16::from_le_bytes([bytes[0], bytes[1]]);
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        let mut numbers = [0; NUMBERS];
        for (number, bytes) in numbers.iter_mut().zip(bytes[4..].chunks_exact(4)) {
            *number = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [first, rest @ ..] = numbers;
        let message = match bytes[2] {
            HELLO => Message::Hello,
            WELCOME => {
                let [commands, connections, send, receive, interface, ..] = rest;
                let layout = Layout { workers: first, commands, connections, send, receive };
                layout.validate()?;
                Message::Welcome(Welcome { layout, interface })
            }
            OFFER => {
                let count = u16::try_from(rest[0]).map_err(|_| MessageError::Value)?;
                Message::Offer(Cid(first), count, bytes[3] == 1)
            }
            RESTORE | RESTORE_ALL => {
                let reason = RestoreReason::from_code(bytes[3]).ok_or(MessageError::Value)?;
                match bytes[2] {
                    RESTORE => Message::Restore(Cid(first), reason),
                    _ => Message::RestoreAll(reason),
                }
            }
            CLOSE => Message::Close(Cid(first)),
            other => return Err(MessageError::Kind(other)),
        };
        // What it does not use is zero.
        if message.encode() == *bytes { Ok(message) } else { Err(MessageError::Value) }
    }
}
