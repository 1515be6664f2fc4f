//! What the agent tells the guard, with descriptors.

use handoff::Cid;
use handoff::session::Layout;
use wire::Mac;

/// Bytes of a message.
pub(super) const LEN: usize = 32;
const NUMBERS: usize = (LEN - 4) / 4;

/// A message, little-endian, each as long as any other. Both are of one build.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::handoff) enum Message {
    /// The memory of the records, with so many places; with it comes its descriptor.
    Mirror { places: u32 },
    /// The host's interface, which has this Ethernet address; with it comes a queue of the TAP.
    Host { mac: Mac },
    /// A process's session; with it come its memory, what wakes it, and what tells it that somebody has its
    /// connections.
    Session { number: u32, layout: Layout },
    /// A session is over.
    SessionEnd { number: u32 },
    /// A connection may be taken out of the kernel; with it comes its socket.
    Take { place: u32, session: u32, cid: Cid, reuse_address: bool },
    /// It is the kernel's again, or over.
    Gone { place: u32 },
    /// A service manager keeps the same; with it comes the memory that says what that is.
    Inventory,
}

const MIRROR: u8 = 1;
const HOST: u8 = 2;
const SESSION: u8 = 3;
const SESSION_END: u8 = 4;
const TAKE: u8 = 5;
const GONE: u8 = 6;
const INVENTORY: u8 = 7;

impl Message {
    /// Owner of the descriptors that come with it, as [`Foreign`](sys::foreign::Foreign) has it: no user has such a number.
    pub(super) fn owner(self) -> u32 {
        const SESSIONS: u32 = 1 << 31;
        match self {
            Message::Session { number, .. } | Message::SessionEnd { number } => SESSIONS | number,
            Message::Take { session, .. } => SESSIONS | session,
            Message::Mirror { .. }
            | Message::Host { .. }
            | Message::Gone { .. }
            | Message::Inventory => u32::MAX,
        }
    }

    pub(super) fn encode(self) -> [u8; LEN] {
        let (kind, numbers): (u8, [u32; NUMBERS]) = match self {
            Message::Mirror { places } => (MIRROR, [places, 0, 0, 0, 0, 0, 0]),
            Message::Host { mac: [a, b, c, d, e, f] } => {
                let high = u32::from_le_bytes([a, b, c, d]);
                (HOST, [high, u32::from_le_bytes([e, f, 0, 0]), 0, 0, 0, 0, 0])
            }
            Message::Session { number, layout } => {
                let Layout { workers, commands, connections, send, receive } = layout;
                (SESSION, [number, workers, commands, connections, send, receive, 0])
            }
            Message::SessionEnd { number } => (SESSION_END, [number, 0, 0, 0, 0, 0, 0]),
            Message::Take { place, session, cid, reuse_address } => {
                (TAKE, [place, session, cid.0, reuse_address.into(), 0, 0, 0])
            }
            Message::Gone { place } => (GONE, [place, 0, 0, 0, 0, 0, 0]),
            Message::Inventory => (INVENTORY, [0; NUMBERS]),
        };
        let mut bytes = [0; LEN];
        bytes[0] = kind;
        for (bytes, number) in bytes[4..].chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// `None` for what is none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Message> {
        let bytes: &[u8; LEN] = bytes.try_into().ok()?;
        let mut numbers = [0; NUMBERS];
        for (number, bytes) in numbers.iter_mut().zip(bytes[4..].chunks_exact(4)) {
            *number = u32::from_le_bytes(bytes.try_into().ok()?);
        }
        let [first, rest @ ..] = numbers;
        let message = match bytes[0] {
            MIRROR => Message::Mirror { places: first },
            HOST => {
                let ([a, b, c, d], [e, f, ..]) = (first.to_le_bytes(), rest[0].to_le_bytes());
                Message::Host { mac: [a, b, c, d, e, f] }
            }
            SESSION => {
                let [workers, commands, connections, send, receive, _] = rest;
                let layout = Layout { workers, commands, connections, send, receive };
                layout.validate().ok()?;
                Message::Session { number: first, layout }
            }
            SESSION_END => Message::SessionEnd { number: first },
            TAKE => {
                let [session, cid, reuse, ..] = rest;
                Message::Take { place: first, session, cid: Cid(cid), reuse_address: reuse != 0 }
            }
            GONE => Message::Gone { place: first },
            INVENTORY => Message::Inventory,
            _ => return None,
        };
        (message.encode() == *bytes).then_some(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let layout =
            Layout { workers: 1, commands: 256, connections: 64, send: 4096, receive: 8192 };
        let all = [
            Message::Mirror { places: 4096 },
            Message::Host { mac: [1, 2, 3, 4, 5, 6] },
            Message::Session { number: 3, layout },
            Message::SessionEnd { number: 3 },
            Message::Take { place: 7, session: 3, cid: Cid(9), reuse_address: true },
            Message::Gone { place: 7 },
            Message::Inventory,
        ];
        for message in all {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
        assert_eq!(Message::decode(&[9; LEN]), None);
        assert_eq!(Message::decode(&[1; 3]), None);
    }
}
