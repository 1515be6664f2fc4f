//! What can be wrong with a segment (RFC 5041 section 7, with the codes of its section 7.2).

/// An error of DDP, as a Terminate message has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// 0x0: the local side cannot go on.
    Catastrophic,
    /// 0x1: about a tagged buffer.
    Tagged(Tagged),
    /// 0x2: about an untagged buffer.
    Untagged(Untagged),
}

/// Errors about tagged buffers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Tagged {
    /// The STag is not that of a buffer.
    InvalidStag = 0x00,
    /// The segment leaves the buffer.
    Bounds = 0x01,
    /// The STag is not for this stream.
    NotAssociated = 0x02,
    /// The offset passes 2^64.
    Wrap = 0x03,
    /// The version of DDP is another.
    Version = 0x04,
}

/// Errors about untagged buffers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Untagged {
    /// There is no such queue.
    InvalidQueue = 0x01,
    /// There is no buffer for the message.
    NoBuffer = 0x02,
    /// The message's number is not the next one.
    MsnRange = 0x03,
    /// The offset is not that of the next byte.
    InvalidOffset = 0x04,
    /// The message is longer than its buffer.
    TooLong = 0x05,
    /// The version of DDP is another.
    Version = 0x06,
}

impl Tagged {
    /// All of them.
    pub const ALL: [Tagged; 5] = {
        use Tagged::*;
        [InvalidStag, Bounds, NotAssociated, Wrap, Version]
    };
}

impl Untagged {
    /// All of them.
    pub const ALL: [Untagged; 6] = {
        use Untagged::*;
        [InvalidQueue, NoBuffer, MsnRange, InvalidOffset, TooLong, Version]
    };
}
