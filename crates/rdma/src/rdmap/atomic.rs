//! Atomic operations (RFC 7306 section 5).

use super::{double, word};

/// What is done to the eight bytes, in one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// FetchAdd. Each set bit of the mask is the highest of a field: fields are added without carry from one to
    /// the next. No mask is one field.
    FetchAdd {
        /// What is added.
        add: u64,
        /// The highest bit of each field.
        mask: u64,
    },
    /// CmpSwap: if the bits of `compare_mask` are those of `compare`, those of `swap_mask` become those of `swap`.
    CompareSwap {
        /// What is compared.
        compare: u64,
        /// The bits of it that count.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits of it that are stored.
        swap_mask: u64,
    },
}

impl Operation {
    /// The operation of verbs: all 64 bits are one field.
    pub fn fetch_add(add: u64) -> Self {
        Operation::FetchAdd { add, mask: 0 }
    }

    /// The operation of verbs: all 64 bits count.
    pub fn compare_swap(compare: u64, swap: u64) -> Self {
        Operation::CompareSwap { compare, compare_mask: u64::MAX, swap, swap_mask: u64::MAX }
    }

    /// The new value, from the one that is there (RFC 7306 section 5.1).
    pub fn apply(self, value: u64) -> u64 {
        match self {
            Operation::FetchAdd { add, mask } => {
                // Sums without the highest bit of each field, which is then added without its carry.
                (value & !mask).wrapping_add(add & !mask) ^ ((value ^ add) & mask)
            }
            Operation::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                if (value ^ compare) & compare_mask == 0 {
                    (value & !swap_mask) | (swap & swap_mask)
                } else {
                    value
                }
            }
        }
    }
}

/// The header of an Atomic Request (RFC 7306 section 5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What the response names.
    pub id: u32,
    /// The buffer.
    pub stag: u32,
    /// The tagged offset of the eight bytes, a multiple of eight.
    pub offset: u64,
    /// What is done.
    pub operation: Operation,
}

/// The codes of the operations.
const FETCH_ADD: u32 = 0;
const COMPARE_SWAP: u32 = 2;

impl Request {
    /// Its length in bytes.
    pub const LEN: usize = 52;

    /// Its bytes. What an operation does not use is zero.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let (code, data) = match self.operation {
            Operation::FetchAdd { add, mask } => (FETCH_ADD, [add, mask, 0, 0]),
            Operation::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                (COMPARE_SWAP, [swap, swap_mask, compare, compare_mask])
            }
        };
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&code.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.id.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.stag.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.offset.to_be_bytes());
        for (value, place) in data.into_iter().zip(bytes[20..].chunks_exact_mut(8)) {
            place.copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    /// The request of these bytes; `None` if there is no such operation.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let value = |index: usize| double(bytes, 20 + 8 * index);
        // The upper 28 bits are reserved, and not looked at.
        let operation = match word(bytes, 0) & 0x0f {
            FETCH_ADD => Operation::FetchAdd { add: value(0), mask: value(1) },
            COMPARE_SWAP => Operation::CompareSwap {
                swap: value(0),
                swap_mask: value(1),
                compare: value(2),
                compare_mask: value(3),
            },
            _ => return None,
        };
        let (id, stag, offset) = (word(bytes, 4), word(bytes, 8), double(bytes, 12));
        Some(Self { id, stag, offset, operation })
    }
}

/// The header of an Atomic Response (RFC 7306 section 5.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response {
    /// The request that it answers.
    pub id: u32,
    /// What was there before.
    pub original: u64,
}

impl Response {
    /// Its length in bytes.
    pub const LEN: usize = 12;

    /// Its bytes.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&self.id.to_be_bytes());
        bytes[4..].copy_from_slice(&self.original.to_be_bytes());
        bytes
    }

    /// The response of these bytes.
    pub fn parse(bytes: &[u8; Self::LEN]) -> Self {
        Self { id: word(bytes, 0), original: double(bytes, 4) }
    }
}
