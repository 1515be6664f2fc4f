//! Keeps the kernel's own stack from answering on the wire.
//!
//! With AF_XDP frames never reach it. AF_PACKET only taps: the stack behind the wire receives every frame as
//! well, would accept those for addresses of the host interface (Linux answers for any of its addresses on
//! any interface), and the peer would get two answers. So all packets are dropped behind the packet socket,
//! by nftables. Where there is no nftables, three sysctls of the wire silence the stack: strict reverse-path
//! filtering, no answer to ARP, no IPv6.
//! IPv6.

use sys::ingress::IngressDrop;
use sys::interface;
use sys::sysctl;

/// The stack behind an interface, silent until this is dropped or, with the sysctls, until they are restored.
#[derive(Debug)]
pub enum Quiet {
    /// Packets are dropped by nftables; that ends with this value, and with the process.
    Ingress(IngressDrop),
    /// Silenced by sysctls, whose former values are here.
    Switches(Switches),
}

impl Quiet {
    /// Silences the stack behind `interface`.
    ///
    /// # Errors
    /// The kernel's error for the sysctls, if neither works.
    pub fn new(interface: &str) -> sys::Result<Self> {
        Self::or_switches(interface, IngressDrop::on(interface))
    }

    /// The same, except for packets that configure the interface (DHCP to a client, router advertisements).
    /// The sysctls cannot except these.
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

    /// Follows a change of the interface's name to `now`. The sysctls belong to the interface.
    ///
    /// # Errors
    /// The kernel's error; then nothing has changed.
    pub(crate) fn follow(&mut self, now: &str) -> sys::Result<()> {
        if let Quiet::Ingress(drop) = self
            && drop.interface() != now
        {
            *drop = drop.renamed(now)?;
        }
        Ok(())
    }

    /// What is not silenced, and what to do about it.
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

/// The sysctls, and their values while the stack is silent.
const IPV4: [(&str, &str); 2] = [("rp_filter", "1"), ("arp_ignore", "8")];
const IPV6: (&str, &str) = ("disable_ipv6", "1");

/// Former values of the sysctls, to be restored. The interface is identified by its index: its name may
/// change, and another may get the old one.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Switches {
    index: u32,
    rp_filter: Option<String>,
    arp_ignore: Option<String>,
    disable_ipv6: Option<String>,
}

impl Switches {
    /// Reads the sysctls of the interface with this index. Those that cannot be read (a kernel without IPv6)
    /// are not restored.
    pub fn read(index: u32) -> Self {
        let Ok(name) = interface::name(index) else { return Switches { index, ..Self::default() } };
        Switches {
            index,
            rp_filter: sysctl::ipv4_conf(&name, IPV4[0].0).ok(),
            arp_ignore: sysctl::ipv4_conf(&name, IPV4[1].0).ok(),
            disable_ipv6: sysctl::ipv6_conf(&name, IPV6.0).ok(),
        }
    }

    /// Silences the stack behind the wire.
    ///
    /// # Errors
    /// The kernel's error; an ordinary user may do this in its own namespaces only.
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

    /// For `rp_filter` the kernel uses the larger value of the interface's and that of `all`
    /// (`IN_DEV_MAXCONF`), and 2 is the loose mode, which accepts everything.
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

    /// Restores the sysctls, if the interface still exists.
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

    /// The values, in a fixed order, from which another process can [make](Self::from_values) this again.
    pub fn values(&self) -> [Option<String>; 3] {
        [self.rp_filter.clone(), self.arp_ignore.clone(), self.disable_ipv6.clone()]
    }

    /// The sysctls of the interface with this index, from [`values`](Self::values).
    pub fn from_values(index: u32, values: [Option<String>; 3]) -> Self {
        let [rp_filter, arp_ignore, disable_ipv6] = values;
        Switches { index, rp_filter, arp_ignore, disable_ipv6 }
    }
}
