//! What joins the hosts of a bench, which are network namespaces: veth pairs, and degen between them.

use std::os::fd::AsFd;

use nic::degen::Settings;
use nic::degen::bridge::{Bridge, Carriage};
use sys::ethtool::{Ethtool, Offload};
use sys::netlink::link::{VethEnd, create_veth};
use sys::netns::Namespace;
use sys::sysfs::Sysfs;

use crate::Error;
use crate::sink::io;

/// The thread that degen runs in.
pub(crate) const DEGEN: &str = "wharf-degen";

/// A veth pair, of which each end is in one namespace.
pub(crate) fn veth(
    (host, near): (&Namespace, &str),
    (other, far): (&Namespace, &str),
) -> Result<(), Error> {
    let namespace = other.as_fd().try_clone_to_owned().map_err(io("keep a network namespace"))?;
    let far = VethEnd { namespace: Some(namespace.as_fd()), ..VethEnd::new(far) };
    Ok(host.run(|| create_veth(&VethEnd::new(near), &far))??)
}

/// Turns offloads off, as `ethtool -K` does. What an interface does not know is off.
pub(crate) fn without(name: &str, offloads: &[Offload]) -> sys::Result<()> {
    let features = Ethtool::open(name)?;
    for &offload in offloads {
        match features.set_offload(offload, false) {
            Err(_) if features.offload(offload).is_ok_and(|on| !on) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Nothing but what is measured: no router is looked for.
pub(crate) fn quiet(name: &str) {
    let _ = sys::sysctl::set_ipv6_conf(name, "disable_ipv6", "1");
}

/// Receive packet steering: frames that arrive at an interface of a host's are the business of this CPU.
///
/// # Errors
/// What the kernel says, such as that this process may not mount sysfs.
pub(crate) fn steer(host: &Namespace, name: &str, cpu: usize) -> Result<(), Error> {
    host.run(move || -> Result<(), Error> {
        let setting = Sysfs::mount()?.queue_setting(name, 0, "rps_cpus")?;
        setting.set(&cpu_mask(cpu)).map_err(io("steer what is received to a CPU"))
    })?
}

/// The bit of one CPU as `rps_cpus` takes it: groups of 32, the highest first.
pub(crate) fn cpu_mask(cpu: usize) -> String {
    format!("{:x}", 1_u32 << (cpu % 32)) + &",0".repeat(cpu / 32)
}

/// degen between two interfaces of a namespace. It has a CPU of its own as
/// far as it needs it, and senders and receivers have another.
pub(crate) fn degen(
    middle: &Namespace,
    between: [&str; 2],
    settings: &Settings,
    carriage: Carriage,
) -> Result<Bridge, Error> {
    let bridge = middle.run(|| Bridge::start(between, settings, carriage))??;
    if let Some(thread) = sys::process::thread(DEGEN) {
        let cpus = sys::affinity::cpus().unwrap_or_default();
        let _ = cpus.last().map(|cpu| sys::affinity::pin_thread(thread, *cpu));
    }
    Ok(bridge)
}

#[cfg(test)]
mod tests {
    use super::cpu_mask;

    #[test]
    fn a_cpu_is_one_bit_of_its_group() {
        assert_eq!(cpu_mask(1), "2");
        assert_eq!(cpu_mask(31), "80000000");
        assert_eq!(cpu_mask(65), "2,0,0");
    }
}
