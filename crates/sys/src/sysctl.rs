//! Network settings under `/proc/sys/net`, of the calling thread's network namespace.
//!
//! Names are path parts, not dotted strings, because an interface's name may contain a dot
//! (`eth0.100`), which `sysctl(8)` would take for a separator.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::{Error, Result};

/// The value of a setting, without the line end: `read(&["ipv4", "ip_forward"])`.
pub fn read(parts: &[&str]) -> Result<String> {
    let path = path(parts)?;
    let value = fs::read_to_string(&path)
        .map_err(|cause| Error::new(format!("read {}", path.display()), cause))?;
    Ok(value.trim_end().to_owned())
}

/// Sets a setting: `write(&["ipv4", "ip_forward"], "1")`.
pub fn write(parts: &[&str], value: &str) -> Result<()> {
    let path = path(parts)?;
    fs::write(&path, value)
        .map_err(|cause| Error::new(format!("write {value:?} to {}", path.display()), cause))
}

/// An IPv4 setting of one interface (or `all`, `default`): `ipv4_conf("eth0", "rp_filter")`.
pub fn ipv4_conf(interface: &str, key: &str) -> Result<String> {
    read(&["ipv4", "conf", interface, key])
}

/// Sets an IPv4 setting of one interface (or `all`, `default`).
pub fn set_ipv4_conf(interface: &str, key: &str, value: &str) -> Result<()> {
    write(&["ipv4", "conf", interface, key], value)
}

/// An IPv6 setting of one interface (or `all`, `default`): `ipv6_conf("eth0", "disable_ipv6")`.
/// [`Error::is_missing`] when the kernel has no IPv6.
pub fn ipv6_conf(interface: &str, key: &str) -> Result<String> {
    read(&["ipv6", "conf", interface, key])
}

/// Sets an IPv6 setting of one interface (or `all`, `default`).
pub fn set_ipv6_conf(interface: &str, key: &str, value: &str) -> Result<()> {
    write(&["ipv6", "conf", interface, key], value)
}

/// Joins the parts below `/proc/sys/net`, refusing any that would leave it.
fn path(parts: &[&str]) -> Result<PathBuf> {
    let mut path = PathBuf::from("/proc/sys/net");
    for part in parts {
        if part.is_empty() || *part == "." || *part == ".." || part.contains(['/', '\0']) {
            let cause = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(Error::new(format!("name a setting {part:?}"), cause));
        }
        path.push(part);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_in_a_name_stays_in_its_part() {
        let path = path(&["ipv4", "conf", "eth0.100", "rp_filter"]).unwrap();
        assert_eq!(path.to_str(), Some("/proc/sys/net/ipv4/conf/eth0.100/rp_filter"));
    }

    #[test]
    fn no_part_leaves_the_directory() {
        for part in ["", ".", "..", "a/b", "/etc"] {
            assert!(path(&["ipv4", part]).is_err(), "{part:?}");
        }
    }

    #[test]
    fn an_absent_setting_is_missing() {
        assert!(ipv4_conf("no-such-if", "rp_filter").unwrap_err().is_missing());
    }
}
