//! Why bytes are no command.

use core::fmt;

/// Why bytes are no command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// No command of that side has this opcode.
    Opcode(u8),
    /// Flags that do not exist.
    Flags(u8),
    /// A control operation that does not exist.
    Control(u8),
    /// A value that this control operation cannot have.
    Value(u8),
    /// A resource that does not exist.
    Resource(u8),
    /// A reason that does not exist.
    Reason(u8),
    /// What the command does not use is not zero.
    Reserved,
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use CommandError::*;
        match self {
            Opcode(code) => write!(f, "no command has the opcode {code:#04x}"),
            Flags(flags) => write!(f, "no data has the flags {flags:#04x}"),
            Control(code) => write!(f, "no control operation has the number {code}"),
            Value(code) => write!(f, "control operation {code} has no such value"),
            Resource(code) => write!(f, "no resource has the number {code}"),
            Reason(code) => write!(f, "no reason has the number {code}"),
            Reserved => f.write_str("what a command does not use is not zero"),
        }
    }
}

impl core::error::Error for CommandError {}
