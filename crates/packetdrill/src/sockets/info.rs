//! `struct tcp_info` (linux/tcp.h), as far as the engine has its values.

use tcp::snapshot::RecoveryState;
use tcp::{Info, Nanos};

use super::{Fd, Host, SocketState, Stop, fail};

/// The members, in their order: name, offset and bytes. Window scales share octet 6: the peer's is the low
/// half.
pub const FIELDS: [(&str, usize, usize); 56] = [
    ("tcpi_state", 0, 1),
    ("tcpi_ca_state", 1, 1),
    ("tcpi_retransmits", 2, 1),
    ("tcpi_probes", 3, 1),
    ("tcpi_backoff", 4, 1),
    ("tcpi_options", 5, 1),
    ("tcpi_wscales", 6, 1),
    ("tcpi_rto", 8, 4),
    ("tcpi_ato", 12, 4),
    ("tcpi_snd_mss", 16, 4),
    ("tcpi_rcv_mss", 20, 4),
    ("tcpi_unacked", 24, 4),
    ("tcpi_sacked", 28, 4),
    ("tcpi_lost", 32, 4),
    ("tcpi_retrans", 36, 4),
    ("tcpi_fackets", 40, 4),
    ("tcpi_last_data_sent", 44, 4),
    ("tcpi_last_ack_sent", 48, 4),
    ("tcpi_last_data_recv", 52, 4),
    ("tcpi_last_ack_recv", 56, 4),
    ("tcpi_pmtu", 60, 4),
    ("tcpi_rcv_ssthresh", 64, 4),
    ("tcpi_rtt", 68, 4),
    ("tcpi_rttvar", 72, 4),
    ("tcpi_snd_ssthresh", 76, 4),
    ("tcpi_snd_cwnd", 80, 4),
    ("tcpi_advmss", 84, 4),
    ("tcpi_reordering", 88, 4),
    ("tcpi_rcv_rtt", 92, 4),
    ("tcpi_rcv_space", 96, 4),
    ("tcpi_total_retrans", 100, 4),
    ("tcpi_pacing_rate", 104, 8),
    ("tcpi_max_pacing_rate", 112, 8),
    ("tcpi_bytes_acked", 120, 8),
    ("tcpi_bytes_received", 128, 8),
    ("tcpi_segs_out", 136, 4),
    ("tcpi_segs_in", 140, 4),
    ("tcpi_notsent_bytes", 144, 4),
    ("tcpi_min_rtt", 148, 4),
    ("tcpi_data_segs_in", 152, 4),
    ("tcpi_data_segs_out", 156, 4),
    ("tcpi_delivery_rate", 160, 8),
    ("tcpi_busy_time", 168, 8),
    ("tcpi_rwnd_limited", 176, 8),
    ("tcpi_sndbuf_limited", 184, 8),
    ("tcpi_delivered", 192, 4),
    ("tcpi_delivered_ce", 196, 4),
    ("tcpi_bytes_sent", 200, 8),
    ("tcpi_bytes_retrans", 208, 8),
    ("tcpi_dsack_dups", 216, 4),
    ("tcpi_reord_seen", 220, 4),
    ("tcpi_rcv_ooopack", 224, 4),
    ("tcpi_snd_wnd", 228, 4),
    ("tcpi_rcv_wnd", 232, 4),
    ("tcpi_rehash", 236, 4),
    ("tcpi_total_rto", 240, 2),
];

/// Bytes of the structure in Linux 6.18.
const LEN: usize = 280;

/// Values by name. Those that the engine does not have are 0 in the structure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    values: Vec<(&'static str, u64)>,
}

impl TcpInfo {
    /// The value of a member.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn set(&mut self, name: &'static str, value: impl Into<u64>) {
        self.values.push((name, value.into()));
    }

    /// The structure in the kernel's layout.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; LEN];
        for (name, at, len) in FIELDS {
            let value = self.get(name).unwrap_or(0).to_le_bytes();
            out[at..at + len].copy_from_slice(&value[..len]);
        }
        out
    }
}

impl Host {
    /// `getsockopt(TCP_INFO)`.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub fn info(&mut self, fd: Fd) -> Result<TcpInfo, Stop> {
        let mut info = TcpInfo::default();
        let id = match &self.tcp(fd)?.state {
            SocketState::Listening { .. } => {
                info.set("tcpi_state", 10u8);
                return Ok(info);
            }
            SocketState::New { .. } => {
                info.set("tcpi_state", 7u8);
                return Ok(info);
            }
            SocketState::Connection { id, .. } => *id,
        };
        let Some(connection) = self.stack.connection(id) else { return fail(libc::EBADF) };
        fill(&mut info, &connection.info());
        Ok(info)
    }
}

/// `TCP_ESTABLISHED` and so on (net/tcp_states.h).
fn kernel_state(state: tcp::State) -> u8 {
    match state {
        tcp::State::Closed => 7,
        tcp::State::SynSent => 2,
        tcp::State::SynReceived => 3,
        tcp::State::Established => 1,
        tcp::State::FinWait1 => 4,
        tcp::State::FinWait2 => 5,
        tcp::State::CloseWait => 8,
        tcp::State::Closing => 11,
        tcp::State::LastAck => 9,
        tcp::State::TimeWait => 6,
    }
}

fn kernel_recovery(state: RecoveryState) -> u8 {
    match state {
        RecoveryState::Open => 0,
        RecoveryState::Marked => 2,
        RecoveryState::Recovery => 3,
        RecoveryState::Loss => 4,
    }
}

fn fill(values: &mut TcpInfo, info: &Info) {
    let mss = u32::from(info.snd_mss).max(1);
    let segments = |bytes: u32| bytes.div_ceil(mss);
    let microseconds = |time: Nanos| (time / 1000) as u32;
    let options = u8::from(info.timestamps)
        | u8::from(info.sack) << 1
        | u8::from(info.window_scale.is_some()) << 2
        | u8::from(info.ecn) << 3;
    let (theirs, ours) = info.window_scale.unwrap_or_default();
    // The kernel counts segments; its slow start threshold without a bound is 2^31 - 1.
    let ssthresh =
        if info.snd_ssthresh == u32::MAX { i32::MAX as u32 } else { info.snd_ssthresh / mss };
    values.set("tcpi_state", kernel_state(info.state));
    // The kernel's state Disorder: there is reordering or perhaps loss, and no recovery yet.
    let disorder = info.recovery == RecoveryState::Open && info.sacked > 0;
    let ca_state = if disorder { 1 } else { kernel_recovery(info.recovery) };
    values.set("tcpi_ca_state", ca_state);
    values.set("tcpi_retransmits", info.retransmits);
    values.set("tcpi_probes", info.probes);
    values.set("tcpi_backoff", info.backoff);
    values.set("tcpi_options", options);
    values.set("tcpi_wscales", theirs | ours << 4);
    values.set("tcpi_rto", microseconds(info.rto));
    values.set("tcpi_snd_mss", info.snd_mss);
    values.set("tcpi_rcv_mss", info.rcv_mss);
    values.set("tcpi_unacked", segments(info.unacked));
    values.set("tcpi_sacked", segments(info.sacked));
    // In the kernel's count a lost segment that was retransmitted is lost until it is acknowledged.
    values.set("tcpi_lost", segments(info.lost + info.retransmitted));
    values.set("tcpi_retrans", segments(info.retransmitted));
    values.set("tcpi_advmss", info.advmss);
    values.set("tcpi_pmtu", info.pmtu);
    values.set("tcpi_rtt", microseconds(info.rtt));
    values.set("tcpi_rttvar", microseconds(info.rttvar));
    values.set("tcpi_snd_ssthresh", ssthresh);
    values.set("tcpi_snd_cwnd", info.snd_cwnd / mss);
    values.set("tcpi_notsent_bytes", info.notsent);
    values.set("tcpi_min_rtt", microseconds(info.min_rtt));
    values.set("tcpi_snd_wnd", info.snd_wnd);
    values.set("tcpi_rcv_wnd", info.rcv_wnd);
    values.set("tcpi_reord_seen", u8::from(info.reordering));
}
