//! Options that sequences set and get.

use libc::{IPPROTO_IP, IPPROTO_TCP, SOL_SOCKET};

/// An option: its level, its name, its values as bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opt {
    pub(super) level: i32,
    pub(super) name: i32,
    /// Values; none if it is got alone.
    pub(super) values: &'static [i32],
    /// How the values are laid out.
    pub(super) form: Form,
    /// What the kernel says of it may change by itself.
    pub(super) varies: bool,
    /// It stays once it is set.
    pub(super) stays: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Int,
    /// `timeval` of so many milliseconds.
    Time,
    /// `linger`: -1 for off.
    Linger,
}

const fn int(level: i32, name: i32, values: &'static [i32]) -> Opt {
    Opt { level, name, values, form: Form::Int, varies: false, stays: true }
}

const fn varies(level: i32, name: i32, values: &'static [i32]) -> Opt {
    Opt { level, name, values, form: Form::Int, varies: true, stays: false }
}

/// The size of a buffer, which the kernel changes until it is set.
const fn buffer(name: i32) -> Opt {
    Opt { stays: true, ..varies(SOL_SOCKET, name, &[100_000, 300_000]) }
}

const fn time(name: i32) -> Opt {
    Opt { form: Form::Time, ..int(SOL_SOCKET, name, &[0, 20, 40]) }
}

const BOTH: &[i32] = &[0, 1];
/// `TCP_INQ` (include/uapi/linux/tcp.h).
pub(super) const TCP_INQ: i32 = 36;

pub(super) const OPTIONS: &[Opt] = &[
    int(SOL_SOCKET, libc::SO_TYPE, &[]),
    int(SOL_SOCKET, libc::SO_DOMAIN, &[]),
    int(SOL_SOCKET, libc::SO_PROTOCOL, &[]),
    int(SOL_SOCKET, libc::SO_ACCEPTCONN, &[]),
    int(SOL_SOCKET, libc::SO_KEEPALIVE, BOTH),
    int(SOL_SOCKET, libc::SO_REUSEADDR, BOTH),
    int(SOL_SOCKET, libc::SO_OOBINLINE, BOTH),
    int(SOL_SOCKET, libc::SO_RCVLOWAT, &[1, 1, 1, 50]),
    int(SOL_SOCKET, libc::SO_PRIORITY, &[0, 3]),
    int(SOL_SOCKET, libc::SO_DONTROUTE, &[0]),
    int(SOL_SOCKET, libc::SO_TIMESTAMP, BOTH),
    int(SOL_SOCKET, libc::SO_BUSY_POLL, &[0]),
    int(SOL_SOCKET, libc::SO_BROADCAST, BOTH),
    buffer(libc::SO_SNDBUF),
    buffer(libc::SO_RCVBUF),
    time(libc::SO_RCVTIMEO),
    time(libc::SO_SNDTIMEO),
    Opt { form: Form::Linger, ..int(SOL_SOCKET, libc::SO_LINGER, &[-1, 0, 1]) },
    int(IPPROTO_TCP, libc::TCP_NODELAY, &[1, 1, 0]),
    int(IPPROTO_TCP, libc::TCP_CORK, &[0, 0, 0, 1]),
    varies(IPPROTO_TCP, libc::TCP_QUICKACK, BOTH),
    int(IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &[0, 60_000]),
    int(IPPROTO_TCP, libc::TCP_KEEPIDLE, &[60, 7200, 0]),
    int(IPPROTO_TCP, libc::TCP_KEEPINTVL, &[30, 75]),
    int(IPPROTO_TCP, libc::TCP_KEEPCNT, &[3, 9]),
    int(IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &[0, 1, 3000, 100_000]),
    int(IPPROTO_TCP, libc::TCP_LINGER2, &[20, 40]),
    int(IPPROTO_TCP, libc::TCP_SYNCNT, &[4]),
    int(IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &[0, 3]),
    int(IPPROTO_TCP, TCP_INQ, BOTH),
    varies(IPPROTO_TCP, libc::TCP_MAXSEG, &[]),
    varies(IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &[]),
    int(IPPROTO_IP, libc::IP_TOS, &[0, 0x10]),
    int(IPPROTO_IP, libc::IP_TTL, &[64, 70]),
    int(IPPROTO_IP, 9999, &[1]),
    int(9999, 1, &[1]),
];

impl Opt {
    /// A value as setsockopt(2) takes it.
    pub(super) fn value(&self, which: usize) -> Option<Vec<u8>> {
        let value = *self.values.get(which % self.values.len().max(1))?;
        let long = |value: i64| value.to_ne_bytes();
        Some(match self.form {
            Form::Int => value.to_ne_bytes().to_vec(),
            Form::Time => [long(0), long(i64::from(value) * 1000)].concat(),
            Form::Linger if value < 0 => [0_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat(),
            Form::Linger => [1_i32.to_ne_bytes(), value.to_ne_bytes()].concat(),
        })
    }
}
