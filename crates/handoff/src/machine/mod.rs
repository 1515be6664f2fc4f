//! A connection that changes sides, as its OS side ([`OsSide`]) and its NIC side ([`NicSide`]) see it: events in,
//! outputs out, no IO.
//!
//! ```text
//!            OS                                        NIC
//!            at the OS                                 free
//!  Pick      offered      ── offer ────────────────>   allocated: packets are held from now on
//!            freezing     <──────────── Allocated ──
//!  Frozen    handing off  ── state, forwarded packets, end ─>  thaws; running
//!            on the NIC   <──────────── HandedOff ──
//!  WantBack  restoring    ── ch_nic_restore ───────>   freezes; packets are held, calls lose
//!            thawing      <──── ch_os_restore, state ──
//!  Thawed    at the OS    ── Restored ─────────────>   what was held goes to the OS; free
//! ```
//!
//! The NIC gives back without being asked as well, and `ch_nic_restore` may cross that. The OS keeps the state that
//! it has sent until the NIC says `HandedOff`, and goes on from it if the NIC refuses late.
//!
//! Packets. At any time one side has them: the NIC's lookup takes those that come from the wire to the engine, holds
//! them, or passes them to the OS. What reaches the OS although the NIC has the connection is forwarded. Both hold at most
//! [`HELD_MAX`]; what comes then is dropped and counted, and TCP sends it again. Order is kept if each direction between
//! the two sides is one queue for messages and packets; with several queues packets may pass each other, as in any
//! network, but none is lost or there twice. What the NIC said before it died is given to the OS side before
//! [`OsEvent::NicGone`].
//!
//! Control operations say how something is to be, so that the OS does all of them again after a restore, and none that
//! a restore crossed is lost.

mod controls;
mod held;
mod nic;
mod os;

use crate::command::{NicControl, OsControl};
use crate::{Epoch, RefusalCounts, RestoreCounts, RestoreReason};

pub use held::HELD_MAX;
pub use nic::{NicEvent, NicOutput, NicSide};
pub use os::{OsEvent, OsOutput, OsSide};

/// Where a connection is, as the OS sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Where {
    /// The kernel runs it.
    Os,
    /// The kernel runs it; the NIC was asked whether it takes it.
    Offered,
    /// Its state is on its way to the NIC.
    HandingOff,
    /// The NIC runs it.
    Nic,
    /// Its state is on its way to the OS.
    Restoring,
    /// It has ended on the NIC.
    Closed,
    /// It could not be put back: the NIC died without a mirror of it, or the kernel did not take it.
    Lost,
}

/// What the OS tells the NIC, with the [tag](Epoch::tag) of the connection's epoch beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToNic<P, S> {
    /// `ch_nic_handoff` without state: asks for room for the connection, which would be of this epoch.
    Offer(Epoch),
    /// `ch_nic_handoff` with the state.
    Handoff(S),
    /// `ch_nic_restore`.
    Restore(RestoreReason),
    /// `ch_nic_ctrl`.
    Control(NicControl),
    /// `ch_nic_forward`.
    Forward(P),
    /// `ch_nic_forward` of length 0.
    ForwardEnd,
}

/// What the NIC tells the OS, with the [tag](Epoch::tag) of the connection's epoch beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ToOs<S> {
    /// `ch_os_ctrl`.
    Control(OsControl),
    /// `ch_os_restore`: with the state, or without it if the connection never left.
    Restore(RestoreReason, Option<S>),
}

/// Counters of one side, of all its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SideCounts {
    /// Connections that the NIC has taken over.
    pub handoffs: u64,
    /// Those that were refused, by reason.
    pub refused: RefusalCounts,
    /// Those that went back, by reason.
    pub restored: RestoreCounts,
    /// Those that were lost.
    pub lost: u64,
    /// Packets held while the connection moved.
    pub held: u64,
    /// Packets forwarded: by the OS to the NIC, or by the NIC to the OS after a restore.
    pub forwarded: u64,
    /// Packets dropped because so many were held.
    pub held_full: u64,
    /// Packets dropped because their connection was lost or had ended.
    pub abandoned: u64,
    /// Messages of another epoch, which were ignored.
    pub stale: u64,
    /// Messages that mean nothing in the state of the connection, such as a restore that crossed another.
    pub crossed: u64,
}
