//! What the loop of a process waits for, as the number of a descriptor.

use wire::Nanos;

/// When a descriptor is registered again that could not be.
pub(crate) const REGISTER_AGAIN: Nanos = 100_000_000;

/// See the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token {
    /// Messages of the process.
    Socket,
    /// It has posted while the device slept.
    Doorbell,
    /// It has ended.
    Process,
    /// A stream, by its number.
    Stream(u64),
    /// An identifier of the connection manager.
    Id(u32),
    /// There is room for events.
    Outlet(u32),
}

impl From<Token> for u64 {
    fn from(token: Token) -> u64 {
        match token {
            Token::Socket => 0,
            Token::Doorbell => 1,
            Token::Process => 2,
            Token::Stream(number) => 3 | number << 3,
            Token::Id(number) => 4 | u64::from(number) << 3,
            Token::Outlet(number) => 5 | u64::from(number) << 3,
        }
    }
}

impl From<u64> for Token {
    fn from(number: u64) -> Token {
        let value = number >> 3;
        match number & 7 {
            0 => Token::Socket,
            1 => Token::Doorbell,
            2 => Token::Process,
            3 => Token::Stream(value),
            4 => Token::Id(value as u32),
            _ => Token::Outlet(value as u32),
        }
    }
}
