//! The settings of the TCP engine.

use super::Config;

/// The TCP engine, of an endpoint on the NIC. What each is for, its range and its default, stand in the
/// [table of keys](super::KEYS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// `tcp.congestion`.
    pub congestion: tcp::Algorithm,
    /// `tcp.ecn`.
    pub ecn: tcp::Ecn,
    /// `tcp.timestamps`.
    pub timestamps: bool,
    /// `tcp.sack`.
    pub sack: bool,
    /// `tcp.window_scaling`.
    pub window_scaling: bool,
    /// `tcp.mtu` in bytes; 0 for the interface's.
    pub mtu: u16,
    /// `tcp.mss` in bytes; 0 for what the MTU gives.
    pub mss: u16,
    /// `tcp.probe_mtu`.
    pub probe_mtu: bool,
    /// `tcp.burst` in bytes.
    pub burst: u32,
    /// `tcp.send_buffer` in bytes.
    pub send_buffer: u32,
    /// `tcp.receive_buffer` in bytes.
    pub receive_buffer: u32,
    /// `tcp.receive_buffer_max` in bytes.
    pub receive_buffer_max: u32,
    /// `tcp.initial_window`.
    pub initial_window: u32,
    /// `tcp.no_delay`.
    pub no_delay: bool,
    /// `tcp.delayed_ack` in nanoseconds.
    pub delayed_ack: u64,
    /// `tcp.initial_rto` in nanoseconds.
    pub initial_rto: u64,
    /// `tcp.min_rto` in nanoseconds.
    pub min_rto: u64,
    /// `tcp.max_rto` in nanoseconds.
    pub max_rto: u64,
    /// `tcp.syn_retries`.
    pub syn_retries: u8,
    /// `tcp.syn_ack_retries`.
    pub syn_ack_retries: u8,
    /// `tcp.retries`.
    pub retries: u8,
    /// `tcp.user_timeout` in nanoseconds; 0 for what retries gives.
    pub user_timeout: u64,
    /// `tcp.user_timeout_option`.
    pub user_timeout_option: bool,
    /// `tcp.keepalive` in nanoseconds; 0 for none.
    pub keepalive: u64,
    /// `tcp.keepalive_interval` in nanoseconds.
    pub keepalive_interval: u64,
    /// `tcp.keepalive_probes`.
    pub keepalive_probes: u8,
    /// `tcp.time_wait` in nanoseconds.
    pub time_wait: u64,
    /// `tcp.fin_wait_2` in nanoseconds.
    pub fin_wait_2: u64,
    /// `tcp.urgent_inline`.
    pub urgent_inline: bool,
    /// `tcp.half_open`.
    pub half_open: u32,
    /// `tcp.connections`.
    pub connections: u32,
    /// `tcp.memory` in bytes; 0 for a quarter of what this process may have.
    pub memory: u64,
}

impl Tcp {
    /// Nothing: the table of keys has the defaults.
    pub(super) const fn blank() -> Self {
        Tcp {
            congestion: tcp::Algorithm::Cubic,
            ecn: tcp::Ecn::Off,
            timestamps: false,
            sack: false,
            window_scaling: false,
            mtu: 0,
            mss: 0,
            probe_mtu: false,
            burst: 0,
            send_buffer: 0,
            receive_buffer: 0,
            receive_buffer_max: 0,
            initial_window: 0,
            no_delay: false,
            delayed_ack: 0,
            initial_rto: 0,
            min_rto: 0,
            max_rto: 0,
            syn_retries: 0,
            syn_ack_retries: 0,
            retries: 0,
            user_timeout: 0,
            user_timeout_option: false,
            keepalive: 0,
            keepalive_interval: 0,
            keepalive_probes: 0,
            time_wait: 0,
            fin_wait_2: 0,
            urgent_inline: false,
            half_open: 0,
            connections: 0,
            memory: 0,
        }
    }
}

impl Config {
    /// Most memory of all connections of an endpoint, in bytes.
    pub fn tcp_memory(&self) -> u64 {
        match self.tcp.memory {
            0 => sys::memory::available() / 4,
            bytes => bytes,
        }
    }

    /// What a connection of the TCP engine goes by behind an interface of this MTU in bytes.
    pub fn tcp(&self, mtu: u32) -> tcp::Config {
        let tcp = &self.tcp;
        let mtu = u16::try_from(mtu).unwrap_or(u16::MAX);
        let keepalive = tcp::Keepalive {
            idle: tcp.keepalive,
            interval: tcp.keepalive_interval,
            probes: tcp.keepalive_probes,
        };
        tcp::Config {
            mtu: if tcp.mtu == 0 { mtu } else { tcp.mtu.min(mtu) },
            mss: tcp.mss,
            send_buffer: tcp.send_buffer,
            receive_buffer: tcp.receive_buffer.min(tcp.receive_buffer_max),
            receive_buffer_max: tcp.receive_buffer_max,
            congestion: tcp.congestion,
            initial_window: tcp.initial_window,
            timestamps: tcp.timestamps,
            sack: tcp.sack,
            window_scaling: tcp.window_scaling,
            ecn: tcp.ecn,
            delayed_ack: tcp.delayed_ack,
            initial_rto: tcp.initial_rto,
            min_rto: tcp.min_rto,
            max_rto: tcp.max_rto.max(tcp.min_rto),
            syn_retries: tcp.syn_retries,
            syn_ack_retries: tcp.syn_ack_retries,
            retries: tcp.retries,
            user_timeout: tcp.user_timeout,
            user_timeout_option: tcp.user_timeout_option,
            keepalive: (tcp.keepalive > 0).then_some(keepalive),
            no_delay: tcp.no_delay,
            time_wait: tcp.time_wait,
            fin_wait_2: tcp.fin_wait_2,
            burst: tcp.burst,
            probe_mtu: tcp.probe_mtu,
            urgent_inline: tcp.urgent_inline,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_gets_are_the_defaults_it_has_itself() {
        assert_eq!(Config::default().tcp(1500), tcp::Config::default());
    }

    #[test]
    fn the_engine_makes_no_packet_that_the_interface_does_not_take() {
        let mut config = Config::default();
        config.set("tcp.mtu", "9000").unwrap();
        assert_eq!((config.tcp(1500).mtu, config.tcp(65_536).mtu), (1500, 9000));
        config.set("tcp.mtu", "0").unwrap();
        assert_eq!(config.tcp(65_536).mtu, u16::MAX);
    }
}
