//! Which of a connection's two sockets an option is of.

use crate::call::Key;

/// Most bytes of an option's value that are looked at.
pub(crate) const VALUE_MAX: usize = 4096;

/// Options of Linux that the crate `libc` does not have (include/uapi/asm-generic/socket.h, linux/tcp.h, linux/tls.h).
const SO_RCVTIMEO_NEW: i32 = 66;
const SO_SNDTIMEO_NEW: i32 = 67;
const TCP_ULP: i32 = 31;
const TCP_ZEROCOPY_RECEIVE: i32 = 35;
const TCP_INQ: i32 = 36;
const TCP_AO_REPAIR: i32 = 42;
const SOL_TLS: i32 = 282;
const SOL_MPTCP: i32 = 284;

/// See the module's documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    /// The TCP socket.
    Tcp,
    /// The program's end of the pair: it is about that socket's calls.
    Pair,
    /// What close(2) does, which is the supervisor's.
    Linger,
    /// The error that is pending, which the supervisor may have been told.
    Error,
    /// Neither: it fails with this error.
    None(i32),
}

/// Of which an option is.
pub(crate) fn of(key: Key) -> Of {
    match (key.level, key.name) {
        (libc::SOL_SOCKET, name) => of_socket(name),
        // As without the kernel's module `tls`: who would have used it encrypts for himself.
        (libc::IPPROTO_TCP, TCP_ULP) => Of::None(libc::ENOENT),
        (libc::IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE | TCP_INQ) => Of::None(libc::EOPNOTSUPP),
        (libc::IPPROTO_TCP, libc::TCP_REPAIR..=libc::TCP_REPAIR_OPTIONS)
        | (libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW | TCP_AO_REPAIR) => Of::None(libc::EPERM),
        (SOL_TLS | SOL_MPTCP, _) => Of::None(libc::ENOPROTOOPT),
        _ => Of::Tcp,
    }
}

fn of_socket(name: i32) -> Of {
    match name {
        libc::SO_RCVTIMEO | libc::SO_SNDTIMEO | SO_RCVTIMEO_NEW | SO_SNDTIMEO_NEW => Of::Pair,
        libc::SO_RCVLOWAT | libc::SO_PEEK_OFF => Of::Pair,
        libc::SO_LINGER => Of::Linger,
        libc::SO_ERROR => Of::Error,
        // There are bytes of a connection and no packets.
        libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF | libc::SO_LOCK_FILTER => {
            Of::None(libc::ENOPROTOOPT)
        }
        libc::SO_ATTACH_REUSEPORT_CBPF | libc::SO_ATTACH_REUSEPORT_EBPF => {
            Of::None(libc::ENOPROTOOPT)
        }
        libc::SO_ZEROCOPY => Of::None(libc::EOPNOTSUPP),
        _ => Of::Tcp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_the_pairs_and_what_is_sent_is_of_tcp() {
        let of = |level, name| of(Key { level, name });
        assert_eq!(of(libc::SOL_SOCKET, libc::SO_RCVTIMEO), Of::Pair);
        assert_eq!(of(libc::SOL_SOCKET, libc::SO_KEEPALIVE), Of::Tcp);
        assert_eq!(of(libc::SOL_SOCKET, libc::SO_DOMAIN), Of::Tcp);
        for name in [libc::TCP_NODELAY, libc::TCP_INFO, libc::TCP_CONGESTION, libc::TCP_CORK] {
            assert_eq!(of(libc::IPPROTO_TCP, name), Of::Tcp);
        }
        for name in [libc::TCP_REPAIR, libc::TCP_REPAIR_QUEUE, libc::TCP_QUEUE_SEQ] {
            assert_eq!(of(libc::IPPROTO_TCP, name), Of::None(libc::EPERM));
        }
        assert_eq!(of(libc::IPPROTO_IP, libc::IP_TOS), Of::Tcp);
    }
}
