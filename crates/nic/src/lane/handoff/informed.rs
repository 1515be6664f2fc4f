//! Figures of one connection: for those who ask for all, and for its application, which asks for `TCP_INFO`.

use handoff::session::info::INFO_LEN;
use tcp::repair::Repair;
use tcp::snapshot::RecoveryState;
use tcp::{Info, Nanos, Stack, State};
use wire::Seq;

use super::connections::{Connection, Running};
use super::figures::Figures;

/// Options that were agreed to (linux/tcp.h).
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALE: u8 = 4;
const ECN: u8 = 8;
/// Bytes of the timestamp option, padded (`TCPOLEN_TSTAMP_ALIGNED`).
const TIMESTAMP_LEN: u32 = 12;
/// `TCP_CLOSE` (include/net/tcp_states.h).
const CLOSED: u8 = 7;

/// `struct tcp_info` in the making.
struct Fields([u8; INFO_LEN]);

impl Fields {
    fn byte(&mut self, at: usize, value: u8) {
        self.0[at] = value;
    }

    fn put(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn put_long(&mut self, at: usize, value: u64) {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
}

fn micros(time: Nanos) -> u32 {
    u32::try_from(time / 1000).unwrap_or(u32::MAX)
}

fn millis(time: Nanos) -> u32 {
    u32::try_from(time / 1_000_000).unwrap_or(u32::MAX)
}

/// `enum tcp_ca_state` (linux/tcp.h).
fn ca_state(recovery: RecoveryState) -> u8 {
    match recovery {
        RecoveryState::Open => 0,
        RecoveryState::Marked => 2,
        RecoveryState::Recovery => 3,
        RecoveryState::Loss => 4,
    }
}

/// How it stands; `None` if the engine does not have it.
pub(super) fn figures(connection: &Connection, stack: &Stack) -> Option<Figures> {
    use State::{CloseWait, Closing, FinWait2, LastAck, TimeWait};
    let Running { id, carried, .. } = connection.engine.as_ref()?;
    let engine = stack.connection(*id)?;
    let (standing, info) = (engine.standing(), engine.info());
    // A FIN has a number, and is no byte.
    let our_fin = u32::from(matches!(standing.state, FinWait2 | TimeWait));
    let their_fin = u32::from(matches!(standing.state, CloseWait | Closing | LastAck | TimeWait));
    let back = |seq: Seq, by: u32| seq + by.wrapping_neg();
    let (sent, received) =
        carried.at(back(standing.snd_una, our_fin), back(standing.rcv_nxt, their_fin));
    let (state, rtt, cwnd) = (standing.state, info.rtt, info.snd_cwnd.into());
    Some(Figures { state, sent: Some(sent), received: Some(received), rtt, cwnd })
}

/// As the kernel would show it, where the engine knows; zeros elsewhere. Bytes are counted since the NIC has the
/// connection, as the kernel counts anew when it is given one.
pub(super) fn info(connection: &Connection, stack: &Stack, now: Nanos) -> Option<[u8; INFO_LEN]> {
    let running = connection.engine.as_ref()?;
    let info: Info = stack.connection(running.id)?.info();
    let figures = figures(connection, stack)?;
    let mss = u32::from(info.snd_mss).max(1);
    let segments = |bytes: u32| bytes.div_ceil(mss);
    let mut all = Fields([0; INFO_LEN]);
    all.byte(0, Repair::state_to_kernel(info.state).unwrap_or(CLOSED));
    all.byte(1, ca_state(info.recovery));
    all.byte(2, info.retransmits);
    all.byte(3, info.probes);
    all.byte(4, info.backoff);
    let options = [
        (info.timestamps, TIMESTAMPS),
        (info.sack, SACK),
        (info.window_scale.is_some(), WINDOW_SCALE),
        (info.ecn, ECN),
    ];
    all.byte(5, options.iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | bit));
    let (theirs, ours) = info.window_scale.unwrap_or((0, 0));
    // Two fields of four bits.
    all.byte(6, theirs & 15 | ours << 4);
    all.put(8, micros(info.rto));
    all.put(16, info.snd_mss.into());
    all.put(20, info.rcv_mss.into());
    all.put(24, segments(info.unacked));
    all.put(28, segments(info.sacked));
    all.put(32, segments(info.lost));
    all.put(36, segments(info.retransmitted));
    // Any segment of an established connection has an acknowledgment.
    let (sent, received) = stack.last_moved(running.id, now)?;
    all.put(44, millis(sent));
    all.put(56, millis(received));
    all.put(60, info.pmtu.into());
    all.put(64, info.rcv_wnd);
    all.put(68, micros(info.rtt));
    all.put(72, micros(info.rttvar));
    // TCP_INFINITE_SSTHRESH (include/net/tcp.h).
    all.put(
        76,
        if info.snd_ssthresh == u32::MAX { i32::MAX as u32 } else { segments(info.snd_ssthresh) },
    );
    all.put(80, segments(info.snd_cwnd));
    // Without the timestamp option (tcp_rcv_state_process).
    let timestamp = if info.timestamps { TIMESTAMP_LEN } else { 0 };
    all.put(84, u32::from(info.advmss).saturating_sub(timestamp));
    all.put(96, info.rcv_space);
    // No pace is set.
    all.put_long(112, u64::MAX);
    all.put_long(120, figures.sent.unwrap_or(0));
    all.put_long(128, figures.received.unwrap_or(0));
    all.put(144, info.notsent);
    all.put(148, micros(info.min_rtt));
    all.put(228, info.snd_wnd);
    all.put(232, info.rcv_wnd);
    Some(all.0)
}
