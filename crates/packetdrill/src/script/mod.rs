//! The syntax of packetdrill's language, and its parser.
//!
//! A script is options (`--name=value`), then events. An event has a time and does one of four things:
//! it is a packet that arrives (`<`) or that must leave (`>`), a system call, commands of a shell
//! between backquotes, or Python between `%{` and `}%`.

mod expression;
mod lexer;
mod packet;
mod parser;
pub mod symbols;
mod words;

pub use expression::Expression;
pub use packet::{
    Body, Direction, Ecn, IcmpSpec, Packet, Sequence, TcpOption, TcpSpec, encode_options,
};
pub use parser::parse;

use tcp::Nanos;

/// Where a script is wrong, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// What was expected there, in words.
    pub message: String,
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// A whole script.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Script {
    /// `--name=value` at the top, in order.
    pub options: Vec<(String, Option<String>)>,
    /// Commands before the first event.
    pub init: Option<String>,
    /// The events, in order.
    pub events: Vec<Event>,
    /// Commands after the last event.
    pub cleanup: Option<String>,
}

/// Something that happens at a time.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Line of the script, from 1.
    pub line: u32,
    /// When it happens.
    pub time: Time,
    /// What happens.
    pub action: Action,
}

/// When an event happens. All are nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Since the start of the script.
    Absolute(Nanos),
    /// `+`: since the event before.
    Relative(Nanos),
    /// `a~b`: between two times since the start.
    AbsoluteRange(Nanos, Nanos),
    /// `+a~+b`: between two times since the event before.
    RelativeRange(Nanos, Nanos),
    /// `*`: at any time.
    Any,
}

/// What an event is.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// A packet in or out.
    Packet(Packet),
    /// A system call.
    Call(Call),
    /// Lines for a shell.
    Command(String),
    /// Lines of Python over the fields of `struct tcp_info`.
    Code(String),
}

/// A system call, and its expected result.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// For a call that blocks: when it returns, with the same origin as the event's own time.
    pub end: Option<Nanos>,
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Expression>,
    /// What it must return.
    pub result: Expression,
    /// The errno that it must leave, by name.
    pub error: Option<String>,
}
