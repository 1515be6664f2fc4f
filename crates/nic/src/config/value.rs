//! Values as text: choices by name, durations with their unit.

/// A value that is one of a few named ones.
pub trait Choice: Copy + PartialEq + 'static {
    /// All values.
    const VALUES: &'static [Self];
    /// The name that the configuration knows each by, in the same order.
    const NAMES: &'static [&'static str];

    /// The value's place in [`VALUES`](Self::VALUES).
    fn index(self) -> usize {
        Self::VALUES.iter().position(|value| *value == self).unwrap_or_default()
    }

    /// The name that the configuration knows the value by.
    fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

/// Which kernel interface moves the wire's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireMode {
    /// AF_XDP where it works, else AF_PACKET.
    Auto,
    /// AF_XDP.
    Xdp,
    /// AF_PACKET with `virtio_net_hdr`.
    Packet,
}

/// Where the XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver where it can, else in the kernel's generic path.
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic path, after it has made an skb.
    Generic,
}

/// Whether the driver may receive into and send from wharf's memory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Where the driver can.
    Auto,
    /// Never: the kernel copies.
    Off,
}

/// What the host's interface is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostKind {
    /// A TAP where there is `/dev/net/tun`, else a veth pair.
    Auto,
    /// A TAP with `virtio_net_hdr`.
    Tap,
    /// One end of a veth pair, the other read through AF_PACKET.
    Veth,
}

/// Who cuts super-packets on their way to the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoHardware {
    /// The interface, where the port lets it.
    Auto,
    /// The kernel, where the port lets it: what the interface cannot cut, the kernel cuts before it.
    Kernel,
    /// wharf.
    Off,
}

/// Whose packet is next where several workers share a queue of the host port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// A queue for each worker, one request from each in turn (the paper, section V.B).
    RoundRobin,
    /// One stack for all, the latest request first: the DMA engine that the paper found, for the
    /// bench that shows how it starves connections. It also turns the packets of each connection around.
    Lifo,
}

/// Who may connect to the control socket, as the mode of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMode {
    /// All users of this machine.
    All,
    /// Root and a group.
    Group,
    /// Root.
    Owner,
}

impl AccessMode {
    /// The mode as the kernel takes it.
    pub fn bits(self) -> u32 {
        match self {
            AccessMode::All => 0o666,
            AccessMode::Group => 0o660,
            AccessMode::Owner => 0o600,
        }
    }
}

/// Which segments may become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LroProfile {
    /// Lossless while this host forwards the packets of others, else endpoint.
    Auto,
    /// For a host that terminates TCP.
    Endpoint,
    /// Only what can be restored bit for bit.
    Lossless,
}

/// Names the values of a [`Choice`].
macro_rules! named {
    ($choice:ty: $($value:ident = $name:literal),+) => {
        impl Choice for $choice {
            const VALUES: &'static [Self] = &[$(<$choice>::$value),+];
            const NAMES: &'static [&'static str] = &[$($name),+];
        }
    };
}

named!(WireMode: Auto = "auto", Xdp = "xdp", Packet = "packet");
named!(XdpMode: Auto = "auto", Native = "native", Generic = "generic");
named!(ZeroCopy: Auto = "auto", Off = "off");
named!(HostKind: Auto = "auto", Tap = "tap", Veth = "veth");
named!(GsoHardware: Auto = "auto", Kernel = "kernel", Off = "off");
named!(AccessMode: All = "0666", Group = "0660", Owner = "0600");
named!(Order: RoundRobin = "round_robin", Lifo = "lifo");
named!(tcp::Algorithm: Cubic = "cubic", NewReno = "newreno");
named!(tcp::Ecn: Off = "off", Passive = "passive", On = "on");
named!(LroProfile: Auto = "auto", Endpoint = "endpoint", Lossless = "lossless");
named!(lro::ActiveAck: Off = "off", Safe = "safe");

/// The number of a group of this machine (group(5)).
pub(super) fn parse_group(name: &str) -> Option<u64> {
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    let number = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    };
    groups.lines().find_map(number)
}

/// Nanoseconds in each unit, the largest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// Reads "100us", "5ms", "1s" or "250ns" as nanoseconds; a bare "0" needs no unit.
pub(super) fn parse_duration(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, nanoseconds) = UNITS.into_iter().find(|(name, _)| *name == unit.trim_start())?;
    number.parse::<u64>().ok()?.checked_mul(nanoseconds)
}

/// Writes nanoseconds in the largest unit that keeps the number whole.
pub(super) fn format_duration(nanoseconds: u64) -> String {
    if nanoseconds == 0 {
        return "0".to_owned();
    }
    let whole = |(_, size): &(&str, u64)| nanoseconds.is_multiple_of(*size);
    let (name, size) = UNITS.into_iter().find(whole).unwrap_or(("ns", 1));
    format!("{}{name}", nanoseconds / size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn durations_read_back(nanoseconds: u64) {
            prop_assert_eq!(parse_duration(&format_duration(nanoseconds)), Some(nanoseconds));
        }

        #[test]
        fn any_text_is_a_duration_or_not(text: String) {
            let _ = parse_duration(&text);
        }
    }

    #[test]
    fn groups_are_known_by_name() {
        assert_eq!(parse_group("root"), Some(0));
        assert_eq!(parse_group("no such group"), None);
    }

    #[test]
    fn durations_need_a_number_and_a_unit() {
        assert_eq!(parse_duration("1500us"), Some(1_500_000));
        assert_eq!(parse_duration("2 ms"), Some(2_000_000));
        for wrong in ["", "us", "10", "-1us", "1.5ms", "1h", "99999999999999999999s", "1us "] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
        assert_eq!(format_duration(1_500), "1500ns");
    }
}
