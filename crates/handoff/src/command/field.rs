//! The bytes of a command.

use core::mem::take;

use super::{COMMAND_LEN, CommandError, Resource};
use crate::{Cid, Epoch, RestoreReason};

/// What a command has beside its opcode and its connection.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Body {
    pub(super) detail: u8,
    pub(super) first: u32,
    pub(super) second: u32,
}

/// A value in a part of the body. It takes its part out, which leaves zero.
pub(super) trait Field<Part>: Sized {
    fn put(&self, part: &mut Part);
    fn take(part: &mut Part) -> Result<Self, CommandError>;
}

/// What kind of data it is: the paper's `flags`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags {
    /// Urgent: out-of-band.
    pub urgent: bool,
    /// More data follows (`MSG_MORE`).
    pub more: bool,
}

const URGENT: u8 = 1;
const MORE: u8 = 2;

impl Field<u8> for Flags {
    fn put(&self, part: &mut u8) {
        *part = (u8::from(self.urgent) * URGENT) | (u8::from(self.more) * MORE);
    }

    fn take(part: &mut u8) -> Result<Self, CommandError> {
        let bits = take(part);
        if bits & !(URGENT | MORE) != 0 {
            return Err(CommandError::Flags(bits));
        }
        Ok(Flags { urgent: bits & URGENT != 0, more: bits & MORE != 0 })
    }
}

impl Field<u32> for u32 {
    fn put(&self, part: &mut u32) {
        *part = *self;
    }

    fn take(part: &mut u32) -> Result<Self, CommandError> {
        Ok(take(part))
    }
}

impl Field<u32> for Epoch {
    fn put(&self, part: &mut u32) {
        *part = self.0;
    }

    fn take(part: &mut u32) -> Result<Self, CommandError> {
        Ok(Epoch(take(part)))
    }
}

impl Field<u8> for RestoreReason {
    fn put(&self, part: &mut u8) {
        *part = self.code();
    }

    fn take(part: &mut u8) -> Result<Self, CommandError> {
        let code = take(part);
        Self::from_code(code).ok_or(CommandError::Reason(code))
    }
}

impl Field<u8> for Resource {
    fn put(&self, part: &mut u8) {
        *part = self.code();
    }

    fn take(part: &mut u8) -> Result<Self, CommandError> {
        let code = take(part);
        Self::from_code(code).ok_or(CommandError::Resource(code))
    }
}

pub(super) fn join(opcode: u8, cid: Cid, epoch: u16, body: Body) -> [u8; COMMAND_LEN] {
    let mut bytes = [0; COMMAND_LEN];
    bytes[0] = opcode;
    bytes[1] = body.detail;
    bytes[2..4].copy_from_slice(&epoch.to_le_bytes());
    bytes[4..8].copy_from_slice(&cid.0.to_le_bytes());
    bytes[8..12].copy_from_slice(&body.first.to_le_bytes());
    bytes[12..].copy_from_slice(&body.second.to_le_bytes());
    bytes
}

pub(super) fn split(bytes: [u8; COMMAND_LEN]) -> (u8, Cid, u16, Body) {
    let [opcode, detail, e0, e1, c0, c1, c2, c3, f0, f1, f2, f3, s0, s1, s2, s3] = bytes;
    let body = Body {
        detail,
        first: u32::from_le_bytes([f0, f1, f2, f3]),
        second: u32::from_le_bytes([s0, s1, s2, s3]),
    };
    (opcode, Cid(u32::from_le_bytes([c0, c1, c2, c3])), u16::from_le_bytes([e0, e1]), body)
}
