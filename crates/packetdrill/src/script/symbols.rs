//! Names of the kernel's ABI, as scripts use them.

/// The value of a constant.
pub fn value(name: &str) -> Option<i64> {
    let known = TABLES.iter().flat_map(|table| table.iter()).find(|(known, _)| *known == name);
    known.map(|(_, value)| i64::from(*value)).or_else(|| errno(name).map(i64::from))
}

/// The number of an errno.
pub fn errno(name: &str) -> Option<i32> {
    ERRNOS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// The name of an errno, for messages.
pub fn errno_name(number: i32) -> &'static str {
    ERRNOS
        .iter()
        .find(|(_, known)| *known == number)
        .map_or("an errno without a name", |(name, _)| name)
}

/// A table of names and values of the same spelling.
macro_rules! table {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

const TABLES: [&[(&str, i32)]; 7] =
    [SOCKETS, SOCKET_OPTIONS, TCP_OPTIONS, FLAGS, MESSAGES, POLL, INFO];

const SOCKETS: &[(&str, i32)] = table! {
    AF_INET AF_INET6 AF_UNSPEC PF_INET PF_INET6 SOCK_STREAM SOCK_DGRAM SOCK_NONBLOCK IPPROTO_IP
    IPPROTO_TCP IPPROTO_UDP IPPROTO_IPV6 IPPROTO_ICMP SHUT_RD SHUT_WR SHUT_RDWR SOL_SOCKET SOL_TCP
    SOL_IP SOL_IPV6 SOMAXCONN
};

const SOCKET_OPTIONS: &[(&str, i32)] = table! {
    SO_REUSEADDR SO_REUSEPORT SO_ERROR SO_SNDBUF SO_RCVBUF SO_KEEPALIVE SO_LINGER SO_OOBINLINE
    SO_BROADCAST SO_PRIORITY SO_RCVLOWAT SO_SNDLOWAT SO_RCVTIMEO SO_SNDTIMEO SO_TIMESTAMPING
    SO_ZEROCOPY SO_MARK SO_BUSY_POLL SO_MAX_PACING_RATE SO_INCOMING_CPU IP_TOS IP_TTL
    IP_MTU_DISCOVER IP_PMTUDISC_DONT IP_PMTUDISC_WANT IP_PMTUDISC_DO IP_PMTUDISC_PROBE IP_RECVERR
    IP_FREEBIND IP_MTU
};

const TCP_OPTIONS: &[(&str, i32)] = table! {
    TCP_NODELAY TCP_MAXSEG TCP_CORK TCP_KEEPIDLE TCP_KEEPINTVL TCP_KEEPCNT TCP_SYNCNT TCP_LINGER2
    TCP_DEFER_ACCEPT TCP_WINDOW_CLAMP TCP_INFO TCP_QUICKACK TCP_CONGESTION TCP_MD5SIG
    TCP_THIN_LINEAR_TIMEOUTS TCP_THIN_DUPACK TCP_USER_TIMEOUT TCP_REPAIR TCP_FASTOPEN TCP_TIMESTAMP
    TCP_NOTSENT_LOWAT TCP_CC_INFO TCP_SAVE_SYN TCP_SAVED_SYN TCP_FASTOPEN_CONNECT TCP_FASTOPEN_KEY
    TCP_FASTOPEN_NO_COOKIE TCP_ZEROCOPY_RECEIVE TCP_INQ TCP_CM_INQ TCP_ULP
};

const FLAGS: &[(&str, i32)] =
    table! { O_RDONLY O_WRONLY O_RDWR O_NONBLOCK O_CREAT O_TRUNC F_GETFL F_SETFL };

const MESSAGES: &[(&str, i32)] = table! {
    MSG_OOB MSG_PEEK MSG_DONTROUTE MSG_CTRUNC MSG_TRUNC MSG_DONTWAIT MSG_EOR MSG_WAITALL MSG_FIN
    MSG_SYN MSG_CONFIRM MSG_RST MSG_ERRQUEUE MSG_NOSIGNAL MSG_MORE MSG_FASTOPEN MSG_ZEROCOPY
};

const POLL: &[(&str, i32)] = &[
    ("POLLIN", libc::POLLIN as i32),
    ("POLLPRI", libc::POLLPRI as i32),
    ("POLLOUT", libc::POLLOUT as i32),
    ("POLLERR", libc::POLLERR as i32),
    ("POLLHUP", libc::POLLHUP as i32),
    ("POLLNVAL", libc::POLLNVAL as i32),
    ("POLLRDHUP", libc::POLLRDHUP as i32),
    ("POLLRDNORM", libc::POLLRDNORM as i32),
    ("POLLRDBAND", libc::POLLRDBAND as i32),
    ("POLLWRNORM", libc::POLLWRNORM as i32),
    ("POLLWRBAND", libc::POLLWRBAND as i32),
    ("EPOLL_CTL_ADD", libc::EPOLL_CTL_ADD),
    ("EPOLL_CTL_MOD", libc::EPOLL_CTL_MOD),
    ("EPOLL_CTL_DEL", libc::EPOLL_CTL_DEL),
    ("EPOLLIN", libc::EPOLLIN),
    ("EPOLLOUT", libc::EPOLLOUT),
    ("EPOLLPRI", libc::EPOLLPRI),
    ("EPOLLERR", libc::EPOLLERR),
    ("EPOLLHUP", libc::EPOLLHUP),
    ("EPOLLRDHUP", libc::EPOLLRDHUP),
    ("EPOLLET", libc::EPOLLET),
    ("EPOLLONESHOT", libc::EPOLLONESHOT),
    ("SIOCINQ", 0x541b),
    ("FIONREAD", 0x541b),
    ("SIOCOUTQ", 0x5411),
    ("SIOCOUTQNSD", 0x894b),
];

/// Constants of `struct tcp_info` (linux/tcp.h, net/tcp_states.h).
const INFO: &[(&str, i32)] = &[
    ("TCP_ESTABLISHED", 1),
    ("TCP_SYN_SENT", 2),
    ("TCP_SYN_RECV", 3),
    ("TCP_FIN_WAIT1", 4),
    ("TCP_FIN_WAIT2", 5),
    ("TCP_TIME_WAIT", 6),
    ("TCP_CLOSE", 7),
    ("TCP_CLOSE_WAIT", 8),
    ("TCP_LAST_ACK", 9),
    ("TCP_LISTEN", 10),
    ("TCP_CLOSING", 11),
    ("TCP_CA_Open", 0),
    ("TCP_CA_Disorder", 1),
    ("TCP_CA_CWR", 2),
    ("TCP_CA_Recovery", 3),
    ("TCP_CA_Loss", 4),
    ("TCPI_OPT_TIMESTAMPS", 1),
    ("TCPI_OPT_SACK", 2),
    ("TCPI_OPT_WSCALE", 4),
    ("TCPI_OPT_ECN", 8),
    ("TCPI_OPT_ECN_SEEN", 16),
    ("TCPI_OPT_SYN_DATA", 32),
    ("TCP_INFINITE_SSTHRESH", i32::MAX),
];

const ERRNOS: &[(&str, i32)] = table! {
    EPERM ENOENT EINTR EIO EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EINVAL EMFILE ENOTTY EPIPE
    EDOM ERANGE EDEADLK ENOSYS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT
    EOPNOTSUPP EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH ENETRESET ECONNABORTED
    ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETIMEDOUT ECONNREFUSED EHOSTDOWN EHOSTUNREACH
    EALREADY EINPROGRESS EPROTO
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_and_errnos_are_found_by_name() {
        assert_eq!(value("SO_REUSEADDR"), Some(2));
        assert_eq!(value("EAGAIN"), Some(11));
        assert_eq!(errno_name(libc::ECONNRESET), "ECONNRESET");
        assert_eq!(value("NO_SUCH_NAME"), None);
    }
}
