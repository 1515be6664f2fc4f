//! getsockopt() and setsockopt().

use tcp::config::{MILLISECOND, SECOND};
use tcp::{Algorithm, Nanos};

use super::{Fd, Host, SocketState, Stop, TcpSocket, fail};

/// Least SO_SNDBUF and SO_RCVBUF (SOCK_MIN_SNDBUF, SOCK_MIN_RCVBUF).
const SEND_LEAST: i32 = 4608;
const RECEIVE_LEAST: i32 = 2304;

impl Host {
    /// `setsockopt()`.
    ///
    /// # Errors
    /// ENOPROTOOPT for what the engine does not have, EINVAL.
    pub fn set_option(&mut self, fd: Fd, level: i32, name: i32, value: &[u8]) -> Result<(), Stop> {
        let socket = self.tcp(fd)?;
        if (level, name) == (libc::SOL_TCP, libc::TCP_CONGESTION) {
            socket.config.congestion = match value.split(|byte| *byte == 0).next() {
                Some(b"cubic") => Algorithm::Cubic,
                Some(b"reno") => Algorithm::NewReno,
                _ => return fail(libc::ENOENT),
            };
            return Ok(());
        }
        let Some(number) = number(value) else { return fail(libc::EINVAL) };
        match level {
            libc::SOL_SOCKET => self.set_socket_option(fd, name, number, value)?,
            libc::SOL_TCP => self.set_tcp_option(fd, name, number)?,
            libc::SOL_IP | libc::SOL_IPV6 => set_ip_option(name)?,
            _ => return fail(libc::ENOPROTOOPT),
        }
        self.listen_again(fd);
        Ok(())
    }

    fn set_socket_option(
        &mut self,
        fd: Fd,
        name: i32,
        number: i32,
        value: &[u8],
    ) -> Result<(), Stop> {
        let socket = self.tcp(fd)?;
        match name {
            libc::SO_REUSEADDR => socket.reuse_address = number != 0,
            libc::SO_REUSEPORT | libc::SO_PRIORITY | libc::SO_BROADCAST | libc::SO_MARK => {}
            libc::SO_SNDBUF => {
                let doubled = number.saturating_mul(2).max(SEND_LEAST) as u32;
                socket.send_limit = Some(doubled);
            }
            libc::SO_RCVBUF => {
                let doubled = number.saturating_mul(2).max(RECEIVE_LEAST) as u32;
                socket.receive_limit = Some(doubled);
            }
            libc::SO_RCVLOWAT => socket.receive_low_water = number.max(1) as u32,
            libc::SO_KEEPALIVE => {
                socket.keepalive_on = number != 0;
                self.apply_keepalive(fd);
            }
            libc::SO_LINGER => {
                let seconds = value.get(4..8).and_then(self::number).unwrap_or(0);
                socket.linger = (number != 0).then_some(seconds.max(0) as u32);
            }
            libc::SO_OOBINLINE => {
                socket.config.urgent_inline = number != 0;
                self.on_connection(fd, |connection| connection.set_urgent_inline(number != 0));
            }
            _ => return fail(libc::ENOPROTOOPT),
        }
        Ok(())
    }

    fn set_tcp_option(&mut self, fd: Fd, name: i32, number: i32) -> Result<(), Stop> {
        let on = number != 0;
        let socket = self.tcp(fd)?;
        match name {
            libc::TCP_NODELAY => {
                socket.config.no_delay = on;
                self.on_connection(fd, |connection| connection.set_no_delay(on));
            }
            libc::TCP_CORK => {
                socket.cork = on;
                self.on_connection(fd, |connection| connection.set_cork(on));
            }
            libc::TCP_QUICKACK => {
                self.on_connection(fd, |connection| connection.set_quick_ack(on));
            }
            libc::TCP_MAXSEG => match u16::try_from(number) {
                Ok(mss) if mss == 0 || mss >= 88 => socket.config.mss = mss,
                _ => return fail(libc::EINVAL),
            },
            libc::TCP_KEEPIDLE if number > 0 => {
                socket.keepalive.idle = number as Nanos * SECOND;
                self.apply_keepalive(fd);
            }
            libc::TCP_KEEPINTVL if number > 0 => {
                socket.keepalive.interval = number as Nanos * SECOND;
                self.apply_keepalive(fd);
            }
            libc::TCP_KEEPCNT if (1..=127).contains(&number) => {
                socket.keepalive.probes = number as u8;
                self.apply_keepalive(fd);
            }
            libc::TCP_SYNCNT if (1..=127).contains(&number) => {
                socket.config.syn_retries = number as u8;
            }
            libc::TCP_USER_TIMEOUT if number >= 0 => {
                let timeout = number as Nanos * MILLISECOND;
                socket.config.user_timeout = timeout;
                self.on_connection(fd, |connection| connection.set_user_timeout(timeout));
            }
            libc::TCP_LINGER2 => {
                if number > 0 {
                    socket.config.fin_wait_2 = number as Nanos * SECOND;
                }
            }
            libc::TCP_KEEPIDLE
            | libc::TCP_KEEPINTVL
            | libc::TCP_KEEPCNT
            | libc::TCP_SYNCNT
            | libc::TCP_USER_TIMEOUT => return fail(libc::EINVAL),
            _ => return fail(libc::ENOPROTOOPT),
        }
        Ok(())
    }

    fn apply_keepalive(&mut self, fd: Fd) {
        let Ok(socket) = self.tcp(fd) else { return };
        let keepalive = socket.keepalive_on.then_some(socket.keepalive);
        self.on_connection(fd, |connection| connection.set_keepalive(keepalive));
    }

    fn on_connection(&mut self, fd: Fd, act: impl FnOnce(&mut tcp::Socket<'_>)) {
        if let Some(id) = self.connection_of(fd) {
            self.with_connection(id, act);
        }
    }

    /// `getsockopt()`.
    ///
    /// # Errors
    /// ENOPROTOOPT for what the engine does not have.
    pub fn option(&mut self, fd: Fd, level: i32, name: i32) -> Result<Vec<u8>, Stop> {
        if (level, name) == (libc::SOL_TCP, libc::TCP_INFO) {
            return Ok(self.info(fd)?.encode());
        }
        if (level, name) == (libc::SOL_TCP, libc::TCP_MAXSEG) {
            return self.maxseg(fd);
        }
        let socket = self.tcp(fd)?;
        let number = match (level, name) {
            (libc::SOL_TCP, libc::TCP_CONGESTION) => {
                let mut out = match socket.config.congestion {
                    Algorithm::Cubic => b"cubic".to_vec(),
                    Algorithm::NewReno => b"reno".to_vec(),
                };
                out.resize(16, 0);
                return Ok(out);
            }
            (libc::SOL_SOCKET, libc::SO_LINGER) => {
                let on = i32::from(socket.linger.is_some());
                let seconds = socket.linger.unwrap_or(0) as i32;
                return Ok([on.to_ne_bytes(), seconds.to_ne_bytes()].concat());
            }
            (libc::SOL_SOCKET, _) => socket.socket_option(name)?,
            (libc::SOL_TCP, _) => socket.tcp_option(name)?,
            _ => return fail(libc::ENOPROTOOPT),
        };
        Ok(number.to_ne_bytes().to_vec())
    }

    fn maxseg(&mut self, fd: Fd) -> Result<Vec<u8>, Stop> {
        let connected = matches!(self.tcp(fd)?.state, SocketState::Connection { .. });
        let mss = match self.tcp(fd)?.config.mss {
            // Linux returns 536 before there is a connection (TCP_MSS_DEFAULT).
            0 if !connected => 536,
            mss if !connected => i32::from(mss),
            _ => self.info(fd)?.get("tcpi_snd_mss").unwrap_or(0) as i32,
        };
        Ok(mss.to_ne_bytes().to_vec())
    }
}

impl TcpSocket {
    fn socket_option(&mut self, name: i32) -> Result<i32, Stop> {
        Ok(match name {
            libc::SO_ERROR => self.take_error(),
            libc::SO_REUSEADDR => i32::from(self.reuse_address),
            libc::SO_SNDBUF => self.send_limit.unwrap_or(self.config.send_buffer) as i32,
            libc::SO_RCVBUF => {
                self.receive_limit.unwrap_or(self.config.receive_buffer.saturating_mul(2)) as i32
            }
            libc::SO_RCVLOWAT => self.receive_low_water as i32,
            libc::SO_KEEPALIVE => i32::from(self.keepalive_on),
            libc::SO_OOBINLINE => i32::from(self.config.urgent_inline),
            libc::SO_TYPE => libc::SOCK_STREAM,
            libc::SO_DOMAIN => self.family,
            libc::SO_PROTOCOL => libc::IPPROTO_TCP,
            libc::SO_ACCEPTCONN => i32::from(matches!(self.state, SocketState::Listening { .. })),
            _ => return fail(libc::ENOPROTOOPT),
        })
    }

    fn tcp_option(&self, name: i32) -> Result<i32, Stop> {
        Ok(match name {
            libc::TCP_NODELAY => i32::from(self.config.no_delay),
            libc::TCP_CORK => i32::from(self.cork),
            libc::TCP_KEEPIDLE => (self.keepalive.idle / SECOND) as i32,
            libc::TCP_KEEPINTVL => (self.keepalive.interval / SECOND) as i32,
            libc::TCP_KEEPCNT => i32::from(self.keepalive.probes),
            libc::TCP_SYNCNT => i32::from(self.config.syn_retries),
            libc::TCP_USER_TIMEOUT => (self.config.user_timeout / MILLISECOND) as i32,
            libc::TCP_LINGER2 => (self.config.fin_wait_2 / SECOND) as i32,
            _ => return fail(libc::ENOPROTOOPT),
        })
    }
}

/// Accepts options of the IP layer that have no effect here.
fn set_ip_option(name: i32) -> Result<(), Stop> {
    match name {
        libc::IP_TOS
        | libc::IP_TTL
        | libc::IP_RECVERR
        | libc::IP_FREEBIND
        | libc::IP_MTU_DISCOVER => Ok(()),
        _ => fail(libc::ENOPROTOOPT),
    }
}

/// The first four bytes, or the one there is.
fn number(value: &[u8]) -> Option<i32> {
    match value {
        [a, b, c, d, ..] => Some(i32::from_ne_bytes([*a, *b, *c, *d])),
        [a] => Some(i32::from(*a)),
        _ => None,
    }
}
