//! Tables of iptables and ip6tables as they were before nftables (`iptables-legacy`): whether the firewall has a say.
//!
//! The kernel makes a table in a network namespace when it is first asked for, with hooks that cost each packet
//! something. So only those are asked for that are there. Nothing tells of changes.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::error::check;
use crate::{Error, Result, Versions};

/// linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h, which have the same numbers.
const SO_GET_INFO: libc::c_int = 64;
const SO_GET_ENTRIES: libc::c_int = 65;
const TABLE_MAXNAMELEN: usize = 32;
/// `struct ipt_getinfo`: a name, then `valid_hooks`, `hook_entry[5]`, `underflow[5]`, `num_entries` and `size`.
const GETINFO: usize = TABLE_MAXNAMELEN + 13 * 4;
/// `struct ipt_get_entries`: a name and `size`, and the entries where they are aligned.
const GET_ENTRIES: usize = TABLE_MAXNAMELEN + 8;
/// Most bytes of entries that are looked at for the policies.
const ENTRIES_MAX: usize = 1 << 24;
/// Hooks (linux/netfilter.h) but for that of packets that are forwarded.
const HOOKS: [usize; 4] = [0, 1, 3, 4];
/// A verdict of a standard target: -`NF_ACCEPT` - 1.
const ACCEPT: i32 = -2;
/// `struct xt_standard_target`: `struct xt_entry_target` of 32 bytes, and the verdict.
const VERDICT: usize = 32;

/// A family of tables.
#[derive(Clone, Copy, Debug)]
struct Family {
    /// Lists the tables that are there.
    names: &'static str,
    /// Where a socket of the family is bound.
    any: &'static str,
    level: libc::c_int,
    /// Size of `struct ipt_ip`, or of `struct ip6t_ip6`, and of what is before `target_offset`.
    target_offset: usize,
    versions: Versions,
}

const FAMILIES: [Family; 2] = [
    Family {
        names: "/proc/thread-self/net/ip_tables_names",
        any: "0.0.0.0:0",
        level: libc::IPPROTO_IP,
        target_offset: 84 + 4,
        versions: Versions { v4: true, v6: false },
    },
    Family {
        names: "/proc/thread-self/net/ip6_tables_names",
        any: "[::]:0",
        level: libc::IPPROTO_IPV6,
        target_offset: 136 + 4,
        versions: Versions { v4: false, v6: true },
    },
];

/// What `SO_GET_INFO` says of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Info {
    valid_hooks: u32,
    hook_entry: [u32; 5],
    underflow: [u32; 5],
    size: usize,
}

impl Info {
    fn new(bytes: &[u8; GETINFO]) -> Info {
        let word = |at: usize| {
            let at = TABLE_MAXNAMELEN + 4 * at;
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Info {
            valid_hooks: word(0),
            hook_entry: std::array::from_fn(|hook| word(1 + hook)),
            underflow: std::array::from_fn(|hook| word(6 + hook)),
            size: word(12) as usize,
        }
    }

    /// The hooks at which it sees packets of this machine.
    fn hooks(&self) -> impl Iterator<Item = usize> + '_ {
        HOOKS.into_iter().filter(|hook| self.valid_hooks & 1 << hook != 0)
    }

    /// Whether it has rules there. What comes last is the policy.
    fn has_rules(&self) -> bool {
        self.hooks().any(|hook| self.hook_entry[hook] != self.underflow[hook])
    }

    /// Whether all policies are to accept, in these entries. Entries that are not understood do not accept.
    fn accepts(&self, entries: &[u8], target_offset: usize) -> bool {
        self.hooks().all(|hook| {
            let at = self.underflow[hook] as usize;
            let offset = entries.get(at + target_offset..at + target_offset + 2);
            let offset = offset.map(|o| usize::from(u16::from_ne_bytes([o[0], o[1]])));
            let verdict = offset.and_then(|offset| {
                let at = at + offset + VERDICT;
                entries.get(at..at + 4)?.try_into().ok()
            });
            verdict.map(i32::from_ne_bytes) == Some(ACCEPT)
        })
    }
}

/// Which packets they decide about, of those that this machine sends or receives, in the calling thread's network
/// namespace. The first packets of connections, which the table `nat` sees, are none of them.
///
/// # Errors
/// The kernel's: `EACCES` or `EPERM` where only another user or `CAP_NET_ADMIN` may look.
pub fn sees() -> Result<Versions> {
    let mut seen = Versions::NONE;
    for family in FAMILIES {
        for table in tables(family)?.into_iter().filter(|table| table != "nat") {
            let fail = |cause| Error::new(format!("look at the table {table} of iptables"), cause);
            if decides(family, &table).map_err(fail)? {
                seen = seen.or(family.versions);
            }
        }
    }
    Ok(seen)
}

/// The tables of a family that are there.
fn tables(family: Family) -> Result<Vec<String>> {
    match fs::read_to_string(family.names) {
        Ok(names) => Ok(names.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(Error::new(format!("read {}", family.names), cause)),
    }
}

fn decides(family: Family, table: &str) -> io::Result<bool> {
    let socket = UdpSocket::bind(family.any)?;
    let mut info = [0; GETINFO];
    put_name(&mut info, table)?;
    get(socket.as_fd(), family.level, SO_GET_INFO, &mut info)?;
    let info = Info::new(&info);
    if info.has_rules() || info.size > ENTRIES_MAX {
        return Ok(true);
    }
    let mut entries = vec![0; GET_ENTRIES + info.size];
    put_name(&mut entries, table)?;
    entries[TABLE_MAXNAMELEN..TABLE_MAXNAMELEN + 4]
        .copy_from_slice(&(info.size as u32).to_ne_bytes());
    match get(socket.as_fd(), family.level, SO_GET_ENTRIES, &mut entries) {
        Ok(()) => Ok(!info.accepts(&entries[GET_ENTRIES..], family.target_offset)),
        // It has changed in between: there was no need for that if it had no rules still.
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(true),
        Err(error) => Err(error),
    }
}

fn put_name(bytes: &mut [u8], name: &str) -> io::Result<()> {
    let room = bytes.get_mut(..TABLE_MAXNAMELEN - 1).and_then(|room| room.get_mut(..name.len()));
    room.ok_or(io::ErrorKind::InvalidInput)?.copy_from_slice(name.as_bytes());
    Ok(())
}

/// `getsockopt` of what begins with a question.
fn get(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    bytes: &mut [u8],
) -> io::Result<()> {
    let mut len = bytes.len() as libc::socklen_t;
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: the kernel reads and writes at most `len` bytes of `bytes`.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, to, &raw mut len) };
    check(got).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;
    use proptest::prelude::*;

    const SO_SET_REPLACE: libc::c_int = 64;
    /// `struct ipt_entry`, and the same with a standard target of 40 bytes.
    const ENTRY: usize = 112;
    const STANDARD: usize = ENTRY + 40;
    const NAME: &str = "filter";

    /// Policies for INPUT, FORWARD and OUTPUT, and a rule in INPUT that accepts, if `has_rule`: offsets and entries.
    fn table(policy: i32, has_rule: bool) -> (Info, Vec<u8>) {
        let verdicts = if has_rule {
            vec![ACCEPT, policy, ACCEPT, ACCEPT]
        } else {
            vec![policy, ACCEPT, ACCEPT]
        };
        let mut entries = Vec::new();
        for verdict in &verdicts {
            let mut entry = [0; STANDARD];
            entry[88..90].copy_from_slice(&(ENTRY as u16).to_ne_bytes());
            entry[90..92].copy_from_slice(&(STANDARD as u16).to_ne_bytes());
            entry[ENTRY..ENTRY + 2].copy_from_slice(&40_u16.to_ne_bytes());
            entry[ENTRY + VERDICT..ENTRY + VERDICT + 4].copy_from_slice(&verdict.to_ne_bytes());
            entries.extend(entry);
        }
        let at = |number: usize| (number * STANDARD) as u32;
        let more = usize::from(has_rule);
        let underflow = [0, at(more), at(more + 1), at(more + 2), 0];
        let hook_entry = [0, 0, at(more + 1), at(more + 2), 0];
        // The entry that ends a table: an `ERROR` target of 32 and 32 bytes.
        let mut end = [0; ENTRY + 64];
        end[88..90].copy_from_slice(&(ENTRY as u16).to_ne_bytes());
        end[90..92].copy_from_slice(&(ENTRY as u16 + 64).to_ne_bytes());
        end[ENTRY..ENTRY + 2].copy_from_slice(&64_u16.to_ne_bytes());
        end[ENTRY + 2..ENTRY + 7].copy_from_slice(b"ERROR");
        end[ENTRY + 32..ENTRY + 37].copy_from_slice(b"ERROR");
        entries.extend(end);
        (Info { valid_hooks: 0b1110, hook_entry, underflow, size: entries.len() }, entries)
    }

    #[test]
    fn rules_and_policies_decide() {
        const DROP: i32 = -1;
        let (empty, entries) = table(ACCEPT, false);
        assert!(!empty.has_rules() && empty.accepts(&entries, 88));
        let (ruled, _) = table(ACCEPT, true);
        assert!(ruled.has_rules());
        let (drops, entries) = table(DROP, false);
        assert!(!drops.has_rules() && !drops.accepts(&entries, 88));
        // Forwarded packets are others'.
        let forward = Info { valid_hooks: 1 << 2, ..ruled };
        assert!(!forward.has_rules());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table(bytes: [u8; 32], info: [u8; 20], entries: Vec<u8>) {
            let mut all = [0; GETINFO];
            all[TABLE_MAXNAMELEN..TABLE_MAXNAMELEN + 32].copy_from_slice(&bytes);
            all[TABLE_MAXNAMELEN + 32..].copy_from_slice(&info);
            let info = Info::new(&all);
            let _ = info.has_rules();
            for offset in [88, 140] {
                let _ = info.accepts(&entries, offset);
            }
        }
    }

    /// `struct ipt_replace`, as iptables gives it to the kernel.
    fn replace(has_rule: bool) -> io::Result<()> {
        let (info, entries) = table(ACCEPT, has_rule);
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let mut was = [0; GETINFO];
        put_name(&mut was, NAME)?;
        get(socket.as_fd(), libc::IPPROTO_IP, SO_GET_INFO, &mut was)?;
        let number = |at: usize| was[at..at + 4].to_vec();
        let count = if has_rule { 5_u32 } else { 4 };
        let mut counters = [0_u64; 64];
        let mut bytes = vec![0; TABLE_MAXNAMELEN];
        put_name(&mut bytes, NAME)?;
        bytes.extend(info.valid_hooks.to_ne_bytes());
        bytes.extend(count.to_ne_bytes());
        bytes.extend((entries.len() as u32).to_ne_bytes());
        bytes.extend(info.hook_entry.iter().flat_map(|at| at.to_ne_bytes()));
        bytes.extend(info.underflow.iter().flat_map(|at| at.to_ne_bytes()));
        bytes.extend(number(TABLE_MAXNAMELEN + 44));
        bytes.extend((counters.as_mut_ptr() as u64).to_ne_bytes());
        bytes.extend(entries);
        // SAFETY: the kernel reads `bytes`, and writes as many counters as the table had entries, at most 64 of two
        // words: it had four or five.
        let set = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_IP,
                SO_SET_REPLACE,
                bytes.as_ptr().cast(),
                bytes.len() as u32,
            )
        };
        check(set).map(drop)
    }

    #[test]
    fn the_kernels_own_tables_are_read() {
        if !crate::process::has_net_admin() {
            return testkit::missing::lacks("CAP_NET_ADMIN, to change tables");
        }
        let namespace = Namespace::new().unwrap();
        let found = namespace.run(|| {
            assert_eq!(sees().unwrap(), Versions::NONE);
            // It is there from now on.
            let made = decides(FAMILIES[0], NAME).map_err(|error| error.to_string())?;
            assert!(!made && sees().unwrap() == Versions::NONE);
            replace(true).map_err(|error| error.to_string())?;
            let seen = sees().unwrap();
            replace(false).map_err(|error| error.to_string())?;
            Ok::<_, String>((seen, sees().unwrap()))
        });
        match found.unwrap() {
            Ok(found) => assert_eq!(found, (FAMILIES[0].versions, Versions::NONE)),
            Err(error) => testkit::missing::lacks(error),
        }
    }
}
