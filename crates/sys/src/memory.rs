//! The amount of memory.

use std::fs;

/// Bytes of memory that this process may have: the machine's, or fewer if its control group, or one around
/// it, is bounded (`memory.max` of cgroup v2).
pub fn available() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let machine = total(&meminfo).unwrap_or(u64::MAX);
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = ancestors(&own);
    let most = groups.iter().filter_map(|group| {
        let file = format!("/sys/fs/cgroup{group}/memory.max");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    });
    most.fold(machine, u64::min)
}

/// `MemTotal` of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The control group of version 2 in `/proc/self/cgroup`, and those around it.
fn ancestors(own: &str) -> Vec<String> {
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Vec::new();
    };
    let path = path.trim_end_matches('/');
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| path[..end].to_owned()).chain([String::new()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_some() {
        assert!(available() > 1 << 20);
        assert_eq!(total("Buffers: 1 kB\nMemTotal:  2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn a_group_is_bounded_by_those_around_it() {
        assert_eq!(ancestors("1:cpu:/x\n0::/a.slice/b\n"), ["/a.slice", "/a.slice/b", ""]);
        assert_eq!(ancestors("0::/\n"), ["", ""]);
        assert!(ancestors("").is_empty());
    }
}
