//! A script's options (`--name=value`).

use std::net::IpAddr;

use tcp::Nanos;

use crate::sockets::Settings;

/// Values of the options.
#[derive(Clone, Debug)]
pub(super) struct Options {
    tolerance: Nanos,
    tolerance_percent: f64,
    mtu: u16,
    v6: bool,
    /// Length of a tick of the timestamp clock in nanoseconds; 0 if timestamps are not compared.
    pub(super) tick: Nanos,
    /// A TSecr that was never sent is mapped by its distance from the first.
    pub(super) scaled_echo: bool,
    /// A packet of the script must be one packet, and not several segments of a burst.
    pub(super) strict_segments: bool,
}

impl Options {
    pub(super) fn read(options: &[(String, Option<String>)]) -> Result<Self, String> {
        // packetdrill's default: timers of a kernel are coarse.
        let mut read = Options {
            tolerance: 4_000_000,
            tolerance_percent: 12.5,
            mtu: 1500,
            v6: false,
            tick: 0,
            scaled_echo: false,
            strict_segments: false,
        };
        for (name, value) in options {
            let value = value.as_deref();
            let number = || value.and_then(|value| value.parse::<u64>().ok());
            let number = || number().ok_or_else(|| format!("--{name} needs a number"));
            match name.as_str() {
                "tolerance_usecs" => read.tolerance = number()? * 1000,
                "tolerance_percent" => {
                    let percent = value.and_then(|value| value.parse().ok());
                    read.tolerance_percent =
                        percent.ok_or_else(|| format!("--{name} needs a number"))?;
                }
                "mtu" => {
                    read.mtu = u16::try_from(number()?).map_err(|_| "--mtu is out of range")?;
                }
                "tcp_ts_tick_usecs" => read.tick = number()? * 1000,
                "tcp_ts_ecr_scaled" => read.scaled_echo = true,
                "strict_segments" => read.strict_segments = true,
                "ip_version" => match value {
                    Some("ipv4") => read.v6 = false,
                    Some("ipv6") => read.v6 = true,
                    _ => return Err("--ip_version is ipv4 or ipv6".to_owned()),
                },
                // Names of addresses and ports change nothing; --mss is for packetdrill's wire client.
                "local_ip" | "remote_ip" | "gateway_ip" | "netmask_ip" | "bind_port"
                | "connect_port" | "mss" | "speed" | "verbose" => {}
                other => return Err(format!("option --{other} is not supported")),
            }
        }
        Ok(read)
    }

    pub(super) fn apply(&self, settings: &mut Settings) {
        settings.config.mtu = self.mtu;
    }

    /// Addresses of this host and of the peer.
    pub(super) fn addresses(&self) -> (IpAddr, IpAddr) {
        if self.v6 {
            let net = |last| IpAddr::from([0xfd3d, 0x0a0b, 0, 0, 0, 0, 0, last]);
            return (net(1), net(2));
        }
        (IpAddr::from([192, 168, 0, 1]), IpAddr::from([192, 0, 2, 1]))
    }

    /// Tolerance in nanoseconds of an event that comes `after` the one before.
    pub(super) fn tolerance(&self, after: Nanos) -> Nanos {
        self.tolerance.max((self.tolerance_percent / 100.0 * after as f64) as Nanos)
    }
}
