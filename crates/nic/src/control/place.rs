//! The address of a wharf's control socket, and the host interface in its name.
//!
//! Root's is a file, `/run/wharf/INODE-HOST.sock`: `INODE` is that of the network namespace, as many
//! namespaces see the same `/run`. All others have an abstract name, `wharf/HOST`, which belongs to
//! the network namespace by itself.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::SocketAddr;

/// Root's directory, which only root may write to.
pub(super) const DIRECTORY: &str = "/run/wharf";
/// Prefix of the abstract names.
pub(super) const PREFIX: &str = "wharf/";
/// Suffix of the socket files.
pub(super) const SOCKET: &str = ".sock";

/// Suffix of where sessions begin.
pub(super) const HANDOFFS: &str = ".handoff";

/// The inode of the calling thread's network namespace, which identifies it.
///
/// # Errors
/// `/proc` is not mounted.
pub(super) fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// A host interface's name as part of a file name. A name with other bytes than those of plain names becomes
/// `%` and their hexadecimal digits, which fits into sun_path in any case (two names of 15 bytes and a
/// colon).
pub(super) fn escape(host: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%');
    match host.bytes().all(plain) {
        true => host.to_owned(),
        false => host.bytes().fold("%".to_owned(), |name, byte| name + &format!("{byte:02x}")),
    }
}

/// The name from which [`escape`] made this.
fn unescape(name: &[u8]) -> Option<String> {
    let Some(digits) = name.strip_prefix(b"%") else {
        return String::from_utf8(name.to_vec()).ok();
    };
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// The path of the socket file of a host interface.
pub(super) fn path(namespace: u64, host: &str) -> String {
    format!("{DIRECTORY}/{namespace}-{}{SOCKET}", escape(host))
}

/// Where processes begin sessions of handoffs with the wharf of a host interface: at a file, or an abstract name.
pub(super) fn handoffs(host: &str, is_file: bool) -> io::Result<SocketAddr> {
    match is_file {
        true => {
            let name = format!("{DIRECTORY}/{}-{}{HANDOFFS}", namespace()?, escape(host));
            SocketAddr::from_pathname(name)
        }
        false => SocketAddr::from_abstract_name(format!("{PREFIX}{host}{HANDOFFS}")),
    }
}

/// Where processes begin sessions with any of root's wharfs of this network namespace: a path whose `*` stands for its host
/// interface, also of those that are started later.
///
/// # Errors
/// `/proc` is not mounted.
pub fn all_handoffs() -> io::Result<String> {
    Ok(format!("{DIRECTORY}/{}-*{HANDOFFS}", namespace()?))
}

/// Address of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Listener {
    /// The file of this host interface, in [`DIRECTORY`].
    File(String),
    /// The abstract name of this host interface.
    Abstract(String),
}

/// The listeners in `/proc/net/unix` that may be wharfs of the namespace. Lines are `address: count
/// protocol flags type state inode path`; an abstract path begins with `@`, and holds any byte.
/// Accepted connections repeat the path, but only a listener has `__SO_ACCEPTCON`. The table is no proof: a
/// path may be of another mount namespace, and any process may choose a name.
pub(super) fn listening(table: &[u8], namespace: u64) -> Vec<Listener> {
    let mut found: Vec<Listener> =
        table.split(|&byte| byte == b'\n').filter_map(|line| listener(line, namespace)).collect();
    found.sort();
    found.dedup();
    found
}

fn listener(line: &[u8], namespace: u64) -> Option<Listener> {
    const ACCEPTS: u32 = 1 << 16;
    let mut rest = line;
    let mut field = || {
        let begin = rest.iter().position(|&byte| byte != b' ')?;
        let (field, after) =
            rest[begin..].split_at(rest[begin..].iter().position(|&byte| byte == b' ')?);
        rest = after.strip_prefix(b" ")?;
        Some(field)
    };
    let mut fields = [&[][..]; 7];
    for place in &mut fields {
        *place = field()?;
    }
    let flags = u32::from_str_radix(std::str::from_utf8(fields[3]).ok()?, 16).ok()?;
    if flags & ACCEPTS == 0 {
        return None;
    }
    if let Some(host) =
        rest.strip_prefix(b"@").and_then(|name| name.strip_prefix(PREFIX.as_bytes()))
    {
        // The names of wharf's own interfaces are UTF-8.
        return String::from_utf8(host.to_vec()).ok().map(Listener::Abstract);
    }
    let begin = format!("{DIRECTORY}/{namespace}-");
    let name = rest.strip_prefix(begin.as_bytes())?.strip_suffix(SOCKET.as_bytes())?;
    unescape(name).map(Listener::File)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_distinguished_from_connections_for_names_of_any_bytes() {
        let table = b"\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 20351 @wharf/nic1
0000000000000000: 00000003 00000000 00000000 0001 03 20352 @wharf/nic0
0000000000000000: 00000002 00000000 00010000 0001 01 20353 @wharf/nic0
0000000000000000: 00000002 00000000 00010000 0001 01 20356 @wharf/\xff\x1b[2J
0000000000000000: 00000002 00000000 00010000 0001 01     9 /run/wharf/77-nic2.sock
0000000000000000: 00000002 00000000 00010000 0001 01 20354 /run/wharf/78-nic3.sock
0000000000000000: 00000002 00000000 00010000 0001 01 20354 /run/wharf/77-%61.sock
0000000000000000: 00000002 00000000 00010000 0001 01 20357 /run/wharf/77-%6.sock.lock
0000000000000000: 00000002 00000000 00000000 0002 01 20355
garbage
";
        let [file, name] = [Listener::File, Listener::Abstract];
        let expected =
            [file("a".into()), file("nic2".into()), name("nic0".into()), name("nic1".into())];
        assert_eq!(listening(table, 77), expected);
    }

    #[test]
    fn a_name_of_any_bytes_becomes_that_of_a_file_and_back() {
        for host in ["nic0", "left:right", "a/b", "%41", "\u{e9}\u{9b}31m", "a b", "x~", ""] {
            let name = escape(host);
            assert!(!name.contains(['/', ' ']) && name.is_ascii(), "{name}");
            assert_eq!(unescape(name.as_bytes()).as_deref(), Some(host));
        }
        let longest = "\u{1b}".repeat(15) + ":" + &"\u{1b}".repeat(15);
        assert!(path(u32::MAX.into(), &longest).len() < 108);
    }
}
