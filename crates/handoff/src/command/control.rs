//! What `ch_nic_ctrl` and `ch_os_ctrl` change: the paper's `cmd`.

use core::mem::take;

use super::CommandError;
use super::field::{Body, Field};
use crate::Refusal;
use crate::named::named;

named! {
    /// What `ch_os_resource` advertises: the paper's `type`.
    pub enum Resource = Connections {
        /// Connections that the NIC could take.
        Connections = "connections",
        /// Bytes of memory for buffers, in pages of 4,096.
        Memory = "memory",
        /// Places in the queue of commands.
        Queue = "queue",
    }
}

/// Keepalive as `TCP_KEEPIDLE`, `TCP_KEEPINTVL` and `TCP_KEEPCNT` have it, which Linux bounds by 32,767 s, as long,
/// and 127.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Keepalive {
    /// Seconds without a segment before the first probe.
    pub idle: u16,
    /// Seconds between probes.
    pub interval: u16,
    /// Probes without an answer before the connection is given up.
    pub probes: u8,
}

/// A control operation of the application's on a connection of the NIC's. All of them say how something is to
/// be from now on, so that one that is done twice is as good as one that is done once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NicControl {
    /// `TCP_NODELAY`.
    NoDelay(bool),
    /// `TCP_CORK`.
    Cork(bool),
    /// `TCP_QUICKACK`.
    QuickAck(bool),
    /// `TCP_USER_TIMEOUT` in milliseconds.
    UserTimeout(u32),
    /// `TCP_NOTSENT_LOWAT` in bytes.
    NotSentLowat(u32),
    /// `SO_KEEPALIVE` and its times.
    Keepalive(Option<Keepalive>),
    /// `shutdown(SHUT_RD)`.
    ShutdownRead,
    /// `shutdown(SHUT_WR)`.
    ShutdownWrite,
    /// close(2): what is queued is still sent.
    Close,
    /// close(2) with `SO_LINGER` of 0: a RST.
    Abort,
    /// `TCP_INFO`: the connection's figures are put into its [`Info`](crate::session::info).
    Inform,
    /// The application has [lent](crate::ring::splice) the receive ring of this connection, and the send ring of the one with
    /// this number: what the one receives the other is to send.
    Splice(u32),
    /// Not the application's: the OS runs the connection again, and takes what was held for it.
    Restored,
    /// Not the application's: the connection is lost, and what was held for it is dropped.
    Abandoned,
}

impl Default for NicControl {
    fn default() -> Self {
        NicControl::NoDelay(false)
    }
}

/// The two numbers of a keepalive, of which the first is the two times.
const KEEPALIVE_ON: u32 = 1 << 8;

impl NicControl {
    /// Its number in commands.
    pub fn code(&self) -> u8 {
        use NicControl::*;
        match self {
            NoDelay(_) => 1,
            Cork(_) => 2,
            QuickAck(_) => 3,
            UserTimeout(_) => 4,
            NotSentLowat(_) => 5,
            Keepalive(_) => 6,
            ShutdownRead => 7,
            ShutdownWrite => 8,
            Close => 9,
            Abort => 10,
            Restored => 11,
            Abandoned => 12,
            Inform => 13,
            Splice(_) => 14,
        }
    }

    /// Whether it is an operation of the application's.
    pub fn is_of_application(&self) -> bool {
        !matches!(self, NicControl::Restored | NicControl::Abandoned)
    }

    fn value(&self) -> (u32, u32) {
        use NicControl::*;
        match *self {
            NoDelay(on) | Cork(on) | QuickAck(on) => (0, on.into()),
            UserTimeout(value) | NotSentLowat(value) | Splice(value) => (0, value),
            Keepalive(Some(keepalive)) => {
                let times = (u32::from(keepalive.idle) << 16) | u32::from(keepalive.interval);
                (times, KEEPALIVE_ON | u32::from(keepalive.probes))
            }
            Keepalive(None) | ShutdownRead | ShutdownWrite | Close | Abort | Inform | Restored
            | Abandoned => (0, 0),
        }
    }
}

/// A switch in a command.
fn switch(value: u32, code: u8) -> Result<bool, CommandError> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(CommandError::Value(code)),
    }
}

fn keepalive(times: u32, probes: u32, code: u8) -> Result<Option<Keepalive>, CommandError> {
    if (times, probes) == (0, 0) {
        return Ok(None);
    }
    if probes & !0xff != KEEPALIVE_ON {
        return Err(CommandError::Value(code));
    }
    Ok(Some(Keepalive { idle: (times >> 16) as u16, interval: times as u16, probes: probes as u8 }))
}

impl Field<Body> for NicControl {
    fn put(&self, part: &mut Body) {
        let (first, second) = self.value();
        *part = Body { detail: self.code(), first, second };
    }

    fn take(part: &mut Body) -> Result<Self, CommandError> {
        use NicControl::*;
        let code = take(&mut part.detail);
        let mut second = || take(&mut part.second);
        Ok(match code {
            1 => NoDelay(switch(second(), code)?),
            2 => Cork(switch(second(), code)?),
            3 => QuickAck(switch(second(), code)?),
            4 => UserTimeout(second()),
            5 => NotSentLowat(second()),
            6 => Keepalive(keepalive(take(&mut part.first), second(), code)?),
            7 => ShutdownRead,
            8 => ShutdownWrite,
            9 => Close,
            10 => Abort,
            11 => Restored,
            12 => Abandoned,
            13 => Inform,
            14 => Splice(second()),
            other => return Err(CommandError::Control(other)),
        })
    }
}

/// A change that the NIC tells the OS of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum OsControl {
    /// The NIC has allocated what the connection that was offered needs, and holds its packets: the OS may
    /// send its state.
    #[default]
    Allocated,
    /// The NIC runs the connection.
    HandedOff,
    /// The NIC does not take the connection.
    Refused(Refusal),
    /// The peer has closed its end.
    PeerClosed,
    /// The peer has reset the connection (`ECONNRESET`).
    Reset,
    /// The connection was given up (`ETIMEDOUT`).
    TimedOut,
    /// The peer cannot be reached: the error, as ICMP gave it, by the number of errno(3).
    Unreachable(u32),
    /// The connection has ended, and the NIC has de-allocated it.
    Deallocated,
}

impl OsControl {
    /// Its number in commands.
    pub fn code(&self) -> u8 {
        use OsControl::*;
        match self {
            Allocated => 1,
            HandedOff => 2,
            Refused(_) => 3,
            PeerClosed => 4,
            Reset => 5,
            TimedOut => 6,
            Unreachable(_) => 7,
            Deallocated => 8,
        }
    }
}

impl Field<Body> for OsControl {
    fn put(&self, part: &mut Body) {
        let second = match *self {
            OsControl::Refused(reason) => reason.code().into(),
            OsControl::Unreachable(errno) => errno,
            _ => 0,
        };
        *part = Body { detail: self.code(), first: 0, second };
    }

    fn take(part: &mut Body) -> Result<Self, CommandError> {
        use OsControl::*;
        let code = take(&mut part.detail);
        Ok(match code {
            1 => Allocated,
            2 => HandedOff,
            3 => {
                let reason = u8::try_from(take(&mut part.second)).ok();
                Refused(reason.and_then(Refusal::from_code).ok_or(CommandError::Value(code))?)
            }
            4 => PeerClosed,
            5 => Reset,
            6 => TimedOut,
            7 => Unreachable(take(&mut part.second)),
            8 => Deallocated,
            other => return Err(CommandError::Control(other)),
        })
    }
}
