//! Keeps the kernel's own stack from answering on the wire.
//!
//! With AF_XDP the frames never reach it. AF_PACKET only listens: the stack behind the wire sees
//! every frame as well, would accept those for addresses of the host interface (Linux answers for
//! any of its addresses on any interface), and the peer would hear two voices. So everything that
//! arrives is dropped behind the packet socket, by nftables. Where there is no nftables, three
//! switches of the wire make the stack deaf: strict reverse-path filtering, no answer to ARP, no
//! IPv6.

use sys::ingress::IngressDrop;
use sys::interface;
use sys::sysctl;

/// The stack behind an interface, silent for as long as this lives or, with the switches, until
/// they are put back.
#[derive(Debug)]
pub enum Quiet {
    /// Dropped by nftables; ends with this value, and with the process.
    Ingress(IngressDrop),
    /// Deaf by switches, which were like this before.
    Switches(Switches),
}

impl Quiet {
    /// Silences the stack behind `interface`.
    ///
    /// # Errors
    /// What the kernel says of the second way, when neither works.
    pub fn new(interface: &str) -> sys::Result<Self> {
        Self::or_switches(interface, IngressDrop::on(interface))
    }

    /// The same, but for what configures the interface (DHCP to a client, router advertisements).
    /// The switches cannot except that.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn but_configuration(interface: &str) -> sys::Result<Self> {
        Self::or_switches(interface, IngressDrop::but_configuration(interface))
    }

    fn or_switches(interface: &str, drop: sys::Result<IngressDrop>) -> sys::Result<Self> {
        match drop {
            Ok(drop) => {
                tracing::info!("nftables keeps the kernel's own stack from {interface}");
                return Ok(Quiet::Ingress(drop));
            }
            Err(error) => tracing::info!(
                "no nftables at the ingress of {interface} ({error}): rp_filter, arp_ignore and \
                 disable_ipv6 keep the kernel's own stack from it"
            ),
        }
        let switches = Switches::read(interface::index(interface)?);
        switches.quiet()?;
        Ok(Quiet::Switches(switches))
    }

    /// Follows a change of the interface's name, to `now`. The switches are the interface's own.
    ///
    /// # Errors
    /// What the kernel says; then all is as it was.
    pub(crate) fn follow(&mut self, now: &str) -> sys::Result<()> {
        if let Quiet::Ingress(drop) = self
            && drop.interface() != now
        {
            *drop = drop.renamed(now)?;
        }
        Ok(())
    }

    /// What is not silent, and what to do about it.
    pub fn gap(&self) -> Option<String> {
        match self {
            Quiet::Ingress(_) => None,
            Quiet::Switches(switches) => switches.gap(),
        }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Quiet::Switches(switches) = self {
            switches.restore();
        }
    }
}

/// The switches and what they are set to.
const IPV4: [(&str, &str); 2] = [("rp_filter", "1"), ("arp_ignore", "8")];
const IPV6: (&str, &str) = ("disable_ipv6", "1");

/// What the switches were before, to be put back. By the index of the interface: its name may change
/// meanwhile, and another may have the old one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Switches {
    index: u32,
    rp_filter: Option<String>,
    arp_ignore: Option<String>,
    disable_ipv6: Option<String>,
}

impl Switches {
    /// Reads the switches of the interface with this index. What cannot be read (a kernel without
    /// IPv6) is left alone later.
    pub fn read(index: u32) -> Self {
        let Ok(name) = interface::name(index) else { return Switches { index, ..Self::default() } };
        Switches {
            index,
            rp_filter: sysctl::ipv4_conf(&name, IPV4[0].0).ok(),
            arp_ignore: sysctl::ipv4_conf(&name, IPV4[1].0).ok(),
            disable_ipv6: sysctl::ipv6_conf(&name, IPV6.0).ok(),
        }
    }

    /// Makes the stack behind the wire deaf.
    ///
    /// # Errors
    /// What the kernel says; an ordinary user may do this in a namespace of its own only.
    fn quiet(&self) -> sys::Result<()> {
        let name = interface::name(self.index)?;
        for (key, value) in IPV4 {
            sysctl::set_ipv4_conf(&name, key, value)?;
        }
        if self.disable_ipv6.is_some() {
            sysctl::set_ipv6_conf(&name, IPV6.0, IPV6.1)?;
        }
        Ok(())
    }

    /// Of `rp_filter` the kernel goes by the larger of the interface's and that of `all`
    /// (`IN_DEV_MAXCONF`), and 2 is the loose mode, which lets everything in.
    fn gap(&self) -> Option<String> {
        let all = sysctl::ipv4_conf("all", IPV4[0].0).ok()?;
        let overrides = all.parse::<u32>().is_ok_and(|all| all > 1);
        let name = interface::name(self.index).ok()?;
        overrides.then(|| {
            format!(
                "there is no nftables, and net.ipv4.conf.all.rp_filter={all} overrides the strict \
                 filter of {name}: set it to 1 (sysctl net.ipv4.conf.all.rp_filter=1), or use a kernel \
                 with nftables at a device's ingress"
            )
        })
    }

    /// Puts everything back; an interface that is gone needs nothing.
    pub fn restore(&self) {
        let Ok(name) = interface::name(self.index) else { return };
        let v4 = [(IPV4[0].0, &self.rp_filter), (IPV4[1].0, &self.arp_ignore)];
        for (key, value) in v4 {
            if let Some(value) = value {
                let _ = sysctl::set_ipv4_conf(&name, key, value);
            }
        }
        if let Some(value) = &self.disable_ipv6 {
            let _ = sysctl::set_ipv6_conf(&name, IPV6.0, value);
        }
    }

    /// The values, in a fixed order, for another process to [restore](Self::from_values).
    pub fn values(&self) -> [Option<String>; 3] {
        [self.rp_filter.clone(), self.arp_ignore.clone(), self.disable_ipv6.clone()]
    }

    /// The switches of the interface with this index as [`values`](Self::values) gave them.
    pub fn from_values(index: u32, values: [Option<String>; 3]) -> Self {
        let [rp_filter, arp_ignore, disable_ipv6] = values;
        Switches { index, rp_filter, arp_ignore, disable_ipv6 }
    }
}
