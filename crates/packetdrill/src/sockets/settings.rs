//! The kernel's settings (`sysctl net.ipv4.*`) that the engine has as well.

use tcp::config::{MILLISECOND, SECOND};
use tcp::{Algorithm, Config, Ecn, Keepalive};

/// Settings of new sockets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Settings of the engine.
    pub config: Config,
    /// Keep-alive that `SO_KEEPALIVE` switches on.
    pub keepalive: Keepalive,
    /// Whether super-packets are shown as such, as behind a card with TSO, or as segments.
    pub super_packets: bool,
    /// When SYNs are answered by cookies.
    pub syn_cookies: SynCookies,
}

impl Default for Settings {
    /// The kernel's own defaults. Super-packets have two segments: at the rates of scripts the kernel's
    /// pacing allows no more than `tcp_min_tso_segs`.
    fn default() -> Self {
        let config = Config { burst: 2 * SEGMENT, ..Config::default() };
        Settings {
            config,
            keepalive: Keepalive::default(),
            super_packets: true,
            syn_cookies: SynCookies::WhenFull,
        }
    }
}

/// When SYNs are answered by cookies (RFC 4987 section 3.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SynCookies {
    /// Never: the queue of half-open connections has practically no bound.
    Never,
    /// When the queue is full.
    WhenFull,
    /// Always.
    Always,
}

impl SynCookies {
    /// Half-open connections that are kept.
    pub(super) fn half_open(self) -> u32 {
        match self {
            SynCookies::Never => 1 << 20,
            SynCookies::WhenFull => 1024,
            SynCookies::Always => 0,
        }
    }
}

/// Payload of a segment on an Ethernet.
const SEGMENT: u32 = 1460;

/// Why a setting is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The engine has no such setting.
    Unknown,
    /// The engine does not have this value of it.
    Value,
}

/// Settings that change nothing of what a script of one connection sees, or nothing but how the
/// kernel sends super-packets.
const WITHOUT_EFFECT: [&str; 15] = [
    "tcp_tso_win_divisor",
    "tcp_tso_rtt_log",
    "tcp_pacing_ss_ratio",
    "tcp_pacing_ca_ratio",
    "tcp_notsent_lowat",
    "tcp_fastopen",
    "tcp_fastopen_key",
    "tcp_fastopen_blackhole_timeout_sec",
    "tcp_ecn_option",
    "tcp_ecn_option_beacon",
    "tcp_fack",
    "tcp_no_metrics_save",
    "tcp_autocorking",
    "tcp_limit_output_bytes",
    "tcp_metrics_save",
];

/// Settings that are fixed in the engine, with the values that agree.
const ALWAYS: [(&str, &[i64]); 14] = [
    ("tcp_dsack", &[1]),
    ("tcp_slow_start_after_idle", &[1]),
    ("tcp_frto", &[1, 2]),
    ("tcp_early_retrans", &[3, 4]),
    ("tcp_recovery", &[1]),
    ("tcp_reordering", &[3]),
    ("tcp_adv_win_scale", &[1]),
    ("tcp_moderate_rcvbuf", &[1]),
    ("tcp_rfc1337", &[0]),
    ("tcp_tw_reuse", &[0, 1, 2]),
    ("tcp_abort_on_overflow", &[0]),
    ("tcp_stdurg", &[0]),
    ("tcp_invalid_ratelimit", &[500]),
    ("tcp_syn_linear_timeouts", &[0]),
];

/// All names that [`Settings::set`] acts on.
pub const NAMES: [&str; 19] = [
    "tcp_min_tso_segs",
    "tcp_timestamps",
    "tcp_sack",
    "tcp_window_scaling",
    "tcp_ecn",
    "tcp_congestion_control",
    "tcp_syn_retries",
    "tcp_synack_retries",
    "tcp_retries2",
    "tcp_keepalive_time",
    "tcp_keepalive_intvl",
    "tcp_keepalive_probes",
    "tcp_fin_timeout",
    "tcp_rmem",
    "tcp_wmem",
    "tcp_mtu_probing",
    "tcp_syncookies",
    "tcp_rto_min_us",
    "tcp_rto_max_ms",
];

impl Settings {
    /// Sets `name`, without `net.ipv4.`, to `value` as `sysctl` takes it.
    ///
    /// # Errors
    /// The engine has no such setting, or not this value of it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Refused> {
        if WITHOUT_EFFECT.contains(&name) {
            return Ok(());
        }
        if name == "tcp_congestion_control" {
            self.config.congestion = match value {
                "cubic" => Algorithm::Cubic,
                "reno" => Algorithm::NewReno,
                _ => return Err(Refused::Value),
            };
            return Ok(());
        }
        let numbers: Option<Vec<i64>> =
            value.split_whitespace().map(|word| word.parse().ok()).collect();
        let numbers = numbers.filter(|numbers| !numbers.is_empty()).ok_or(Refused::Value)?;
        if let Some((_, values)) = ALWAYS.iter().find(|(known, _)| *known == name) {
            return if values.contains(&numbers[0]) { Ok(()) } else { Err(Refused::Value) };
        }
        match name {
            "tcp_rmem" | "tcp_wmem" => self.set_memory(name, &numbers),
            _ => self.set_number(name, numbers[0]),
        }
    }

    fn set_number(&mut self, name: &str, value: i64) -> Result<(), Refused> {
        let config = &mut self.config;
        let positive = u64::try_from(value).map_err(|_| Refused::Value)?;
        let byte = || u8::try_from(value).map_err(|_| Refused::Value);
        match name {
            "tcp_timestamps" => config.timestamps = value != 0,
            "tcp_sack" => config.sack = value != 0,
            "tcp_window_scaling" => config.window_scaling = value != 0,
            "tcp_ecn" => {
                config.ecn = match value {
                    0 => Ecn::Off,
                    1 => Ecn::On,
                    2 => Ecn::Passive,
                    // 3 and above are accurate ECN.
                    _ => return Err(Refused::Value),
                }
            }
            "tcp_syn_retries" => config.syn_retries = byte()?,
            "tcp_synack_retries" => config.syn_ack_retries = byte()?,
            "tcp_retries2" => config.retries = byte()?,
            "tcp_keepalive_time" => self.keepalive.idle = positive * SECOND,
            "tcp_keepalive_intvl" => self.keepalive.interval = positive * SECOND,
            "tcp_keepalive_probes" => self.keepalive.probes = byte()?,
            "tcp_fin_timeout" => config.fin_wait_2 = positive * SECOND,
            "tcp_mtu_probing" => config.probe_mtu = value != 0,
            "tcp_syncookies" => {
                self.syn_cookies = match value {
                    0 => SynCookies::Never,
                    1 => SynCookies::WhenFull,
                    2 => SynCookies::Always,
                    _ => return Err(Refused::Value),
                }
            }
            "tcp_rto_min_us" => config.min_rto = positive * 1000,
            "tcp_rto_max_ms" => config.max_rto = positive * MILLISECOND,
            "tcp_min_tso_segs" => {
                config.burst = u32::try_from(value).map_err(|_| Refused::Value)? * SEGMENT;
            }
            _ => return Err(Refused::Unknown),
        }
        Ok(())
    }

    /// Least, default and most bytes.
    fn set_memory(&mut self, name: &str, numbers: &[i64]) -> Result<(), Refused> {
        let &[_, usual, most] = numbers else { return Err(Refused::Value) };
        let bytes = |value: i64| u32::try_from(value).map_err(|_| Refused::Value);
        if name == "tcp_rmem" {
            // Half of it is the kernel's own overhead (tcp_adv_win_scale is 1), and the first window
            // is never above 64 KB, unscaled (tcp_select_initial_window).
            self.config.receive_buffer = (bytes(usual)? / 2).min(65_535);
            self.config.receive_buffer_max = bytes(most)?;
        } else {
            self.config.send_buffer = bytes(most)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_acted_on() {
        for name in NAMES {
            let value = match name {
                "tcp_congestion_control" => "reno",
                "tcp_rmem" | "tcp_wmem" => "4096 131072 6291456",
                _ => "1",
            };
            assert_eq!(Settings::default().set(name, value), Ok(()), "{name}");
        }
        assert_eq!(Settings::default().set("tcp_nothing", "1"), Err(Refused::Unknown));
        assert_eq!(Settings::default().set("tcp_ecn", "3"), Err(Refused::Value));
        assert_eq!(Settings::default().set("tcp_sack", "yes"), Err(Refused::Value));
    }
}
