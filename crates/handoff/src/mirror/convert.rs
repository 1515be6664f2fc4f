//! Records from the engine's connections, and for the kernel.

use alloc::vec::Vec;
use core::fmt;

use tcp::repair::{Repair, RepairPath, RepairWindow};
use tcp::snapshot::SocketOptions;
use tcp::{Snapshot, Standing, State};
use wire::{Nanos, Seq};

use super::{Agreed, Closing, Moving, Record};
use crate::{Cid, Epoch};

const MILLISECOND: Nanos = 1_000_000;
/// `TCP_INFINITE_SSTHRESH` (include/net/tcp.h).
const INFINITE_SSTHRESH: u32 = 0x7fff_ffff;
/// Segments of an initial window (RFC 6928).
const INITIAL_WINDOW: u32 = 10;

/// Why a record and the bytes of the rings make no connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MirrorError {
    /// The send ring has fewer bytes than were sent and not acknowledged: its index was written over.
    Sent,
    /// A connection of this state is not put back.
    State(State),
}

impl fmt::Display for MirrorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MirrorError::Sent => f.write_str("the send ring lacks bytes that were sent"),
            MirrorError::State(state) => write!(f, "a connection in {state} is not put back"),
        }
    }
}

impl core::error::Error for MirrorError {}

/// Milliseconds of CLOCK_MONOTONIC, as timestamps count.
fn clock(monotonic: Nanos) -> u32 {
    (monotonic / MILLISECOND) as u32
}

impl Agreed {
    /// Of a snapshot that was taken at this time of CLOCK_MONOTONIC.
    pub fn of(snapshot: &Snapshot, cid: Cid, epoch: Epoch, monotonic: Nanos) -> Agreed {
        let agreed = &snapshot.agreed;
        Agreed {
            cid,
            epoch,
            local: snapshot.local,
            remote: snapshot.remote,
            iss: agreed.iss,
            irs: agreed.irs,
            peer_mss: agreed.peer_mss,
            our_mss: agreed.our_mss,
            window_scale: agreed.window_scale,
            sack: agreed.sack,
            timestamps: agreed.timestamps,
            ecn: agreed.ecn,
            ts_offset: snapshot.ts_now.wrapping_sub(clock(monotonic)),
        }
    }
}

impl Moving {
    /// Of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Moving {
        let (send, receive) = (&snapshot.send, &snapshot.receive);
        Moving {
            state: snapshot.state,
            mss: snapshot.mss,
            path_mtu: snapshot.path_mtu,
            snd_una: send.una,
            snd_nxt: send.nxt,
            snd_wnd: send.wnd,
            max_wnd: send.max_wnd,
            snd_wl1: send.wl1,
            rcv_nxt: receive.nxt,
            rcv_wup: receive.acked,
            rcv_edge: receive.edge,
            ts_recent: receive.ts_recent.0,
            ts_ahead: 0,
            closing: Closing::Open,
        }
    }

    /// Of a connection that stands so, with what its application has closed.
    pub fn standing(standing: &Standing, closing: Closing) -> Moving {
        Moving {
            state: standing.state,
            mss: standing.mss,
            path_mtu: standing.path_mtu,
            snd_una: standing.snd_una,
            snd_nxt: standing.snd_nxt,
            snd_wnd: standing.snd_wnd,
            max_wnd: standing.max_wnd,
            snd_wl1: standing.snd_wl1,
            rcv_nxt: standing.rcv_nxt,
            rcv_wup: standing.rcv_acked,
            rcv_edge: standing.rcv_edge,
            ts_recent: standing.ts_recent,
            ts_ahead: standing.ts_ahead,
            closing,
        }
    }

    /// Sequence number of the first byte of the send ring that counts: in FIN-WAIT-2 the peer has acknowledged our FIN, too.
    pub fn sent_from(&self) -> Seq {
        let fin = self.state == State::FinWait2;
        self.snd_una + if fin { u32::MAX } else { 0 }
    }

    /// Sequence number behind the last byte in order: a FIN of the peer's counts as one.
    pub fn received_end(&self) -> Seq {
        let fin = matches!(self.state, State::CloseWait | State::Closing | State::LastAck);
        self.rcv_nxt + if fin { u32::MAX } else { 0 }
    }
}

impl Record {
    /// The connection as the kernel takes it, at this time of CLOCK_MONOTONIC, with the bytes of its rings: those
    /// written from [`Moving::sent_from`] on, and those up to [`Moving::received_end`] that were not read. What the
    /// kernel cannot be told is not in a record; [`Snapshot::from_repair`] makes of this what an engine goes on
    /// from, and says whether it can be a connection.
    ///
    /// # Errors
    /// If the bytes are not those of the record, or its state is one that is not put back.
    pub fn to_repair(
        &self,
        send_queue: Vec<u8>,
        recv_queue: Vec<u8>,
        monotonic: Nanos,
    ) -> Result<Repair, MirrorError> {
        let (agreed, moving) = (&self.agreed, &self.moving);
        let sent = moving.snd_nxt - moving.snd_una;
        let state = match (moving.state, moving.closing) {
            (state, Closing::Open) => state,
            // Its FIN has waited for room.
            (State::Established, _) => State::FinWait1,
            (State::CloseWait, _) => State::LastAck,
            (state, _) => state,
        };
        let fin = fin_to_be_acknowledged(state)?;
        let unacknowledged = u32::try_from(send_queue.len())
            .ok()
            .and_then(|len| len.checked_add(fin))
            .ok_or(MirrorError::Sent)?;
        let unsent = unacknowledged.checked_sub(sent).ok_or(MirrorError::Sent)?;
        Ok(Repair {
            is_deaf: false,
            behind_hole: Vec::new(),
            sacked: Vec::new(),
            local: agreed.local,
            remote: agreed.remote,
            state,
            write_seq: moving.snd_una + unacknowledged,
            unacknowledged,
            unsent,
            rcv_nxt: moving.rcv_nxt,
            send_queue,
            recv_queue,
            timestamps: agreed.timestamps,
            sack: agreed.sack,
            window_scale: agreed.window_scale,
            mss_clamp: agreed.peer_mss,
            ecn: agreed.ecn,
            timestamp: self.timestamp(monotonic),
            ts_recent: (moving.ts_recent != 0).then_some(moving.ts_recent),
            window: RepairWindow {
                snd_wl1: moving.snd_wl1,
                snd_wnd: moving.snd_wnd,
                max_window: moving.max_wnd.max(moving.snd_wnd),
                rcv_wnd: moving.rcv_edge.distance(moving.rcv_wup).max(0) as u32,
                rcv_wup: moving.rcv_wup,
            },
            path: self.path(),
            socket_options: SocketOptions::default(),
        })
    }

    /// One that is after all that were sent, and even: the lowest bit of what the kernel takes says that its
    /// clock counts microseconds. One millisecond is for the part of one that the offset was rounded by.
    fn timestamp(&self, monotonic: Nanos) -> u32 {
        let offset = self.agreed.ts_offset.wrapping_add(self.moving.ts_ahead);
        clock(monotonic).wrapping_add(offset).wrapping_add(2) & !1
    }

    /// A path of which nothing is known but its MTU.
    fn path(&self) -> RepairPath {
        RepairPath {
            rto: 1_000_000,
            min_rtt: u32::MAX,
            snd_cwnd: INITIAL_WINDOW,
            snd_ssthresh: INFINITE_SSTHRESH,
            snd_mss: self.moving.mss.into(),
            rcv_mss: self.agreed.our_mss.into(),
            advmss: self.agreed.our_mss.into(),
            pmtu: self.moving.path_mtu.into(),
            ..RepairPath::default()
        }
    }
}

/// Sequence numbers of a FIN of ours that is not acknowledged.
fn fin_to_be_acknowledged(state: State) -> Result<u32, MirrorError> {
    match state {
        State::Established | State::CloseWait | State::FinWait2 => Ok(0),
        State::FinWait1 | State::Closing | State::LastAck => Ok(1),
        State::Closed | State::SynSent | State::SynReceived | State::TimeWait => {
            Err(MirrorError::State(state))
        }
    }
}
