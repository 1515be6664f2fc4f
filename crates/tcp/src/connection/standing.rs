//! Where a connection stands: what its peer has been told, and has told.

use wire::Seq;

use crate::State;
use crate::connection::Connection;

/// What another stack needs to go on with a connection, beside what was agreed to when it was opened and its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// State.
    pub state: State,
    /// Payload bytes of a full segment, options taken off.
    pub mss: u16,
    /// MTU of the path in bytes.
    pub path_mtu: u16,
    /// First sequence number that is not acknowledged.
    pub snd_una: Seq,
    /// Next sequence number to be sent for the first time.
    pub snd_nxt: Seq,
    /// The peer's window in bytes, from `snd_una` on.
    pub snd_wnd: u32,
    /// Largest window that the peer offered, in bytes.
    pub max_wnd: u32,
    /// Sequence number of the last window update.
    pub snd_wl1: Seq,
    /// Bytes of the send queue, sent or not, that are not acknowledged.
    pub queued: u32,
    /// Next sequence number expected.
    pub rcv_nxt: Seq,
    /// Acknowledgment number of the last segment sent.
    pub rcv_acked: Seq,
    /// Right edge of the window as last offered.
    pub rcv_edge: Seq,
    /// The last timestamp to be echoed, 0 if none is known.
    pub ts_recent: u32,
    /// By so many milliseconds the clock of the timestamps was put ahead since the connection came from another stack: that
    /// had sent later ones than it told (RFC 7323 section 5.3).
    pub ts_ahead: u32,
    /// Bytes in order that were not read.
    pub unread: u32,
    /// The peer has sent an urgent byte that was not read.
    pub has_urgent: bool,
}

impl Connection {
    /// Where it stands now.
    #[inline]
    pub fn standing(&self) -> Standing {
        let hot = &self.hot;
        Standing {
            state: hot.state,
            mss: hot.mss,
            path_mtu: self.path_mtu,
            snd_una: hot.snd_una,
            snd_nxt: hot.snd_nxt,
            snd_wnd: hot.snd_wnd,
            max_wnd: self.max_snd_wnd,
            snd_wl1: hot.snd_wl1,
            queued: hot.send.len(),
            rcv_nxt: hot.rcv_nxt,
            rcv_acked: hot.rcv_acked,
            rcv_edge: hot.rcv_edge,
            ts_recent: hot.ts_recent,
            ts_ahead: self.ts_ahead,
            unread: hot.receive.len(),
            has_urgent: self.rcv_urgent.is_some(),
        }
    }
}
