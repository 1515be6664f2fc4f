//! TCP sockets as /proc/net/tcp and /proc/net/tcp6 have them (proc(5)), of either side.

use std::fmt;

/// The files that have them.
pub(super) const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// TCP_LISTEN and TCP_TIME_WAIT of include/net/tcp_states.h.
const LISTEN: u8 = 0x0a;
const TIME_WAIT: u8 = 0x06;

/// A socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Socket {
    local: End,
    remote: End,
    state: u8,
    unsent: u32,
    unread: u32,
}

/// An address, of IPv6 its last four bytes: those of an IPv4 address that is mapped.
#[derive(Clone, PartialEq, Eq, Debug)]
struct End {
    address: [u8; 4],
    port: u16,
}

/// Those of this side.
pub(super) fn here() -> Vec<Socket> {
    let tables = TABLES.iter().filter_map(|table| std::fs::read_to_string(table).ok());
    of(&tables.collect::<String>())
}

/// Those of such tables, without those that are over.
pub(super) fn of(tables: &str) -> Vec<Socket> {
    let sockets = tables.lines().filter_map(Socket::parse);
    sockets.filter(|socket| socket.state != TIME_WAIT).collect()
}

/// Whether one of them listens on this port.
pub(super) fn listen(sockets: &[Socket], port: u16) -> bool {
    sockets.iter().any(|socket| socket.state == LISTEN && socket.local.port == port)
}

/// Connections whose bytes have come and were not read.
pub(super) fn unread(sockets: Vec<Socket>) -> Vec<Socket> {
    // What a listener has there is the number of connections to accept.
    sockets.into_iter().filter(|socket| socket.state != LISTEN && socket.unread != 0).collect()
}

impl Socket {
    /// A line: `0: 0F02000A:1D2F 0202000A:8F3A 01 00000000:00000010 ...`.
    fn parse(line: &str) -> Option<Socket> {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote) = (End::parse(fields.next()?)?, End::parse(fields.next()?)?);
        let state = u8::from_str_radix(fields.next()?, 16).ok()?;
        let (unsent, unread) = fields.next()?.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        Some(Socket { local, remote, state, unsent: number(unsent)?, unread: number(unread)? })
    }

    /// Whether this is that connection, with as much to be read.
    pub(super) fn is_as(&self, other: &Socket) -> bool {
        (&self.local, &self.remote, self.unread) == (&other.local, &other.remote, other.unread)
    }
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Socket { local, remote, state, unsent, unread } = self;
        write!(f, "{local} to {remote}: state {state}, {unsent} not sent, {unread} not read")
    }
}

impl End {
    fn parse(text: &str) -> Option<End> {
        let (address, port) = text.split_once(':')?;
        let last = address.get(address.len().checked_sub(8)?..)?;
        // It is a word in the order of this machine, and of the guest.
        let address = u32::from_str_radix(last, 16).ok()?.to_le_bytes();
        Some(End { address, port: u16::from_str_radix(port, 16).ok()? })
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.address;
        write!(f, "{a}.{b}.{c}.{d}:{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:1D2F 00000000:0000 0A 00000000:00000001 00:00000000 00000000     0        0 23 1
   1: 0F02000A:1D2F 0202000A:8F3A 01 00000000:00000010 00:00000000 00000000     0        0 24 1
   2: 0000000000000000FFFF00000F02000A:4853 0000000000000000FFFF00000202000A:8F3B 01 00000020:00000000 00:0 0 0
   3: 0F02000A:1D2F 0202000A:8F3C 06 00000000:00000000 03:00001770 00000000     0        0 0 3
";

    #[test]
    fn sockets_are_read_as_the_kernel_writes_them() {
        let sockets = of(TABLE);
        assert_eq!(sockets.len(), 3, "{sockets:?}");
        assert!(listen(&sockets, 7_471));
        assert!(!listen(&sockets, 18_515));
        let ends = "10.0.2.15:18515 to 10.0.2.2:36667";
        assert_eq!(sockets[2].to_string(), format!("{ends}: state 1, 32 not sent, 0 not read"));
        let unread = unread(sockets);
        let ends = "10.0.2.15:7471 to 10.0.2.2:36666";
        assert_eq!(unread.len(), 1);
        assert_eq!(unread[0].to_string(), format!("{ends}: state 1, 0 not sent, 16 not read"));
    }
}
