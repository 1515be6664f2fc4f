//! The twelve commands between OS and NIC (figures 4 and 5 of the paper), 16 bytes each. The state of a
//! connection, where a command has one, follows it.
//!
//! ```text
//!   0        1        2                4                                8        12       16
//!   +--------+--------+----------------+--------------------------------+--------+--------+
//!   | opcode | detail | epoch          | cid                            | first  | second |
//!   +--------+--------+----------------+--------------------------------+--------+--------+
//! ```
//!
//! All is little-endian; what a command does not use is zero. Where the paper has a physical address there is
//! an offset into memory that both sides have. Commands carry no promise: who receives one validates the
//! offsets and lengths that it names, and looks whether its epoch is that of the connection.

mod control;
mod error;
mod field;

use crate::{Cid, Counts, Epoch, Named};

pub use control::{Keepalive, NicControl, OsControl, Resource};
pub use error::CommandError;
pub use field::Flags;
use field::{Body, Field};

/// Bytes of a command.
pub const COMMAND_LEN: usize = 16;

/// Where a field lies.
macro_rules! slot {
    ($body:ident detail) => {
        &mut $body.detail
    };
    ($body:ident first) => {
        &mut $body.first
    };
    ($body:ident second) => {
        &mut $body.second
    };
    ($body:ident all) => {
        &mut $body
    };
}

/// The commands of one side: a type for each, and one for all.
macro_rules! commands {
    (
        $(#[$doc:meta])* $module:ident $all:ident $kind:ident $counts:ident
        $($(#[$about:meta])* $opcode:literal $name:literal $type:ident {
            $($(#[$field_doc:meta])* $slot:ident $field:ident: $of:ty,)*
        })*
    ) => {
        $(#[$doc])*
        pub mod $module {
            use super::*;

            $(
                $(#[$about])*
                #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
                pub struct $type {
                    /// The connection.
                    pub cid: Cid,
                    /// The [tag](Epoch::tag) of the connection's epoch.
                    pub epoch: u16,
                    $($(#[$field_doc])* pub $field: $of,)*
                }

                impl $type {
                    #[doc = concat!("`", $name, "` of a connection, all else the least.")]
                    pub fn new(cid: Cid, epoch: Epoch) -> Self {
                        Self { cid, epoch: epoch.tag(), $($field: Default::default(),)* }
                    }
                }

                impl From<$type> for $all {
                    fn from(command: $type) -> Self {
                        $all::$type(command)
                    }
                }
            )*
        }

        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $all {
            $(#[doc = concat!("`", $name, "`")] $type($module::$type),)*
        }

        $(#[$doc])*
        /// The kinds, for counters.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $kind {
            $(#[doc = concat!("`", $name, "`")] $type,)*
        }

        impl Named for $kind {
            const ALL: &'static [Self] = &[$(Self::$type,)*];

            fn index(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                match self { $(Self::$type => $name,)* }
            }
        }

        /// Commands by name.
        pub type $counts = Counts<$kind, { <$kind as Named>::ALL.len() }>;

        impl $all {
            /// Its kind.
            pub fn kind(&self) -> $kind {
                match self { $(Self::$type(_) => $kind::$type,)* }
            }

            /// The connection that it is about.
            pub fn cid(&self) -> Cid {
                match self { $(Self::$type(command) => command.cid,)* }
            }

            /// The [tag](Epoch::tag) of the epoch in which it was given.
            pub fn epoch(&self) -> u16 {
                match self { $(Self::$type(command) => command.epoch,)* }
            }

            /// As bytes.
            pub fn encode(&self) -> [u8; COMMAND_LEN] {
                match self {
                    $(Self::$type(command) => {
                        #[allow(unused_mut)] // not all have fields
                        let mut body = Body::default();
                        $(command.$field.put(slot!(body $slot));)*
                        field::join($opcode, command.cid, command.epoch, body)
                    })*
                }
            }

            /// From bytes.
            ///
            /// # Errors
            /// If they are no command that [`encode`](Self::encode) gives. Nothing is said of whether the
            /// connection exists, and whether offsets and lengths are within its memory.
            pub fn decode(bytes: [u8; COMMAND_LEN]) -> Result<Self, CommandError> {
                let (opcode, cid, epoch, mut body) = field::split(bytes);
                let command = match opcode {
                    $($opcode => {
                        $(let $field = <$of>::take(slot!(body $slot))?;)*
                        Self::$type($module::$type { cid, epoch, $($field,)* })
                    })*
                    other => return Err(CommandError::Opcode(other)),
                };
                // What was taken is zero now.
                if body == Body::default() { Ok(command) } else { Err(CommandError::Reserved) }
            }
        }
    };
}

commands! {
    /// Commands provided by the NIC (figure 4 of the paper).
    nic NicCommand NicKind NicCounts

    /// `ch_nic_handoff(connection)`: with length 0 the offer of a connection, for which the NIC allocates what
    /// it needs, or refuses; else its state, which the NIC goes on from.
    0x01 "ch_nic_handoff" Handoff {
        /// All 32 bits of the epoch, which the rings have.
        first full_epoch: Epoch,
        /// Bytes of state that follow.
        second len: u32,
    }

    /// `ch_nic_restore(cid)`: the NIC gives the state of the connection to the OS, and de-allocates it.
    0x02 "ch_nic_restore" Restore {
        /// Why.
        detail reason: crate::RestoreReason,
    }

    /// `ch_nic_send(cid, paddr, len, flags)`: the application has written data.
    0x03 "ch_nic_send" Send {
        /// What kind of data.
        detail flags: Flags,
        /// Where the data begins in the connection's send ring.
        first paddr: u32,
        /// Bytes.
        second len: u32,
    }

    /// `ch_nic_recvd(cid, len)`: the application has read data, whose space is free.
    0x04 "ch_nic_recvd" Recvd {
        /// Bytes.
        second len: u32,
    }

    /// `ch_nic_ctrl(cid, cmd)`: a control operation of the application's.
    0x05 "ch_nic_ctrl" Ctrl {
        /// Which.
        all cmd: NicControl,
    }

    /// `ch_nic_forward(cid, paddr, len)`: an IP packet of the connection that the OS has received, to be
    /// processed as if it came from the network. Length 0 says that no more follow, so that the NIC goes on
    /// to packets that it has held itself.
    0x06 "ch_nic_forward" Forward {
        /// Where the packet lies in memory for packets.
        first paddr: u32,
        /// Bytes.
        second len: u32,
    }

    /// `ch_nic_post(cid, paddr, len)`: a buffer is there to receive into.
    0x07 "ch_nic_post" Post {
        /// Where.
        first paddr: u32,
        /// Bytes.
        second len: u32,
    }
}

commands! {
    /// Commands provided by the OS (figure 5 of the paper).
    os OsCommand OsKind OsCounts

    /// `ch_os_recv(cid, addr, len, flags)`: data has come.
    0x81 "ch_os_recv" Recv {
        /// What kind of data.
        detail flags: Flags,
        /// Where the data begins in the connection's receive ring.
        first addr: u32,
        /// Bytes.
        second len: u32,
    }

    /// `ch_os_ack(cid, len)`: the peer has acknowledged data, whose space is free.
    0x82 "ch_os_ack" Ack {
        /// Bytes.
        second len: u32,
    }

    /// `ch_os_ctrl(cid, cmd)`: the state of the connection changes.
    0x83 "ch_os_ctrl" Ctrl {
        /// How.
        all cmd: OsControl,
    }

    /// `ch_os_resource(cid, type, num)`: so many items of a resource are available.
    0x84 "ch_os_resource" Resource {
        /// Which resource: the paper's `type`.
        detail kind: crate::command::Resource,
        /// Items.
        second num: u32,
    }

    /// `ch_os_restore(cid)`: the NIC gives the connection back. Its state follows; without state, the
    /// connection has never left the OS.
    0x85 "ch_os_restore" Restore {
        /// Why.
        detail reason: crate::RestoreReason,
        /// Bytes of state that follow.
        second len: u32,
    }
}
