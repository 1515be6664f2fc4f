//! System calls of a script, and their results.

use std::net::SocketAddr;

use tcp::Nanos;

use super::packets::PORT;
use super::peer::{Peer, Phase};
use super::{Runner, When, seen};
use crate::script::{self, Expression, symbols};
use crate::sockets::{Call, EpollEvent, Errno, Fd, Operation, Outcome, PollFd, Stop};

/// A call that blocks, and the result that it must have.
pub(super) struct Waiting {
    pub(super) call: Call,
    spec: script::Call,
    end: Nanos,
    tolerance: Nanos,
    line: u32,
}

impl Waiting {
    pub(super) fn name(&self) -> &str {
        &self.spec.name
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }
}

/// A call with its arguments evaluated.
enum Ready {
    /// It has returned.
    Over(Result<i64, Stop>),
    /// It may block.
    Call(Call),
}

impl Runner {
    /// Makes a system call.
    pub(super) fn call(&mut self, spec: &script::Call, when: When) -> Result<(), String> {
        let named = |why: String| format!("{}(): {why}", spec.name);
        let ready = self.make_ready(spec).map_err(named)?;
        let mut call = match ready {
            Ready::Over(result) => return check_result(spec, result).map_err(named),
            Ready::Call(call) => call,
        };
        let Some(end) = spec.end else {
            let done = self.at_once(call).map_err(named)?;
            return self.check_outcome(spec, done).map_err(named);
        };
        match call.attempt(&mut self.host) {
            Err(Stop::Block) if self.waiting.is_some() => {
                Err(named("another call is blocked still".to_owned()))
            }
            Err(Stop::Block) => {
                let end = when.base + end;
                let tolerance = self.options.tolerance(end.saturating_sub(when.from));
                let spec = spec.clone();
                self.waiting = Some(Waiting { call, spec, end, tolerance, line: self.line });
                Ok(())
            }
            done => self.check_outcome(spec, done).map_err(named),
        }
    }

    /// Checks a call that blocked and has returned.
    pub(super) fn returned(
        &mut self,
        waiting: &Waiting,
        done: Result<Outcome, Stop>,
    ) -> Result<(), String> {
        let now = self.host.now();
        if now + waiting.tolerance < waiting.end || now > waiting.end + waiting.tolerance {
            let (end, now) = (seen::seconds(waiting.end), seen::seconds(now));
            return Err(format!("{}() returns at {now}, expected {end}", waiting.spec.name));
        }
        self.check_outcome(&waiting.spec, done)
            .map_err(|why| format!("{}(): {why}", waiting.spec.name))
    }

    fn make_ready(&mut self, spec: &script::Call) -> Result<Ready, String> {
        let arguments = Arguments(&spec.arguments);
        let over = |result: Result<(), Stop>| Ok(Ready::Over(result.map(|()| 0)));
        if spec.name == "socket" {
            return self.socket(spec, arguments);
        }
        if spec.name == "epoll_create" {
            let fd = self.host.epoll_create();
            self.fds.push((spec.result.integer()?, fd));
            return Ok(Ready::Over(Ok(i64::from(fd))));
        }
        if spec.name == "poll" {
            return self.poll(arguments);
        }
        let fd = self.fd(arguments.integer(0)?)?;
        match spec.name.as_str() {
            "bind" => over(self.host.bind(fd, self.own_address())),
            "listen" => {
                let result = self.host.listen(fd);
                if result.is_ok() {
                    self.set_phase(fd, Phase::Listening);
                }
                over(result)
            }
            "accept" => Ok(Ready::Call(Call::Accept { fd })),
            "connect" => self.connect(fd, arguments),
            "close" => {
                let result = self.host.close(fd);
                self.fds.retain(|(_, known)| *known != fd);
                over(result)
            }
            "shutdown" => over(self.host.shutdown(fd, arguments.small(1)?)),
            "setsockopt" => {
                let value = option_value(arguments.get(3)?)?;
                over(self.host.set_option(fd, arguments.small(1)?, arguments.small(2)?, &value))
            }
            "getsockopt" => self.getsockopt(fd, arguments),
            "fcntl" => self.fcntl(fd, arguments),
            "ioctl" => self.ioctl(fd, arguments),
            "epoll_ctl" => self.epoll_control(fd, arguments),
            "epoll_wait" => {
                let most = arguments.small(2)?.max(1) as usize;
                let until = self.deadline(arguments.integer(3)?);
                Ok(Ready::Call(Call::EpollWait { fd, most, until }))
            }
            "read" | "recv" | "recvfrom" | "readv" | "recvmsg" => {
                let (len, flags) = transfer(&spec.name, arguments)?;
                if flags & (libc::MSG_OOB | libc::MSG_PEEK) != 0 {
                    self.checks_payload = false;
                }
                Ok(Ready::Call(Call::Receive { fd, len, flags }))
            }
            "write" | "send" | "sendto" | "writev" | "sendmsg" => {
                let (len, flags) = transfer(&spec.name, arguments)?;
                if flags & libc::MSG_FASTOPEN != 0 {
                    return Err("TCP Fast Open is not supported".to_owned());
                }
                if flags & libc::MSG_OOB != 0 {
                    self.checks_payload = false;
                }
                let bytes = self.bytes_to_send(fd, arguments, len);
                Ok(Ready::Call(Call::Send { fd, bytes, done: 0, flags }))
            }
            other => Err(format!("`{other}` is not supported")),
        }
    }

    /// Payload with the bytes of its place in the stream, unless the script gives it.
    fn bytes_to_send(&mut self, fd: Fd, arguments: Arguments<'_>, len: usize) -> Vec<u8> {
        if let Ok(Expression::Text(text)) = arguments.get(1) {
            self.checks_payload = false;
            let mut bytes = text.clone().into_bytes();
            bytes.resize(len, 0);
            return bytes;
        }
        let from = self.sent_so_far(fd);
        (0..len as u32).map(|at| super::peer::stream_byte(from.wrapping_add(at))).collect()
    }

    fn socket(&mut self, spec: &script::Call, arguments: Arguments<'_>) -> Result<Ready, String> {
        let usual = if self.local.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
        let family = match arguments.get(0)? {
            Expression::Ellipsis => usual,
            _ => arguments.small(0)?,
        };
        let result = self.host.socket(family, arguments.small(1)?, arguments.small(2)?);
        if let Ok(fd) = result {
            self.fds.push((spec.result.integer()?, fd));
            let remote = SocketAddr::new(self.remote, PORT);
            self.peer = Some(Peer::new(Phase::New, remote, Some(fd)));
            self.forget_stream(fd);
        }
        Ok(Ready::Over(result.map(i64::from)))
    }

    fn connect(&mut self, fd: Fd, arguments: Arguments<'_>) -> Result<Ready, String> {
        if let Some(family) = arguments.get(1)?.member("sa_family")
            && family.integer()? == i64::from(libc::AF_UNSPEC)
        {
            self.set_phase(fd, Phase::New);
            return Ok(Ready::Over(self.host.disconnect(fd).map(|()| 0)));
        }
        let to = SocketAddr::new(self.remote, PORT);
        let peer = self.peer.as_mut().filter(|peer| peer.fd == Some(fd));
        if let Some(peer) = peer.filter(|peer| peer.phase == Phase::New) {
            *peer = Peer::new(Phase::Connecting, to, Some(fd));
            self.forget_stream(fd);
        }
        Ok(Ready::Call(Call::Connect { fd, to, begun: false }))
    }

    fn set_phase(&mut self, fd: Fd, phase: Phase) {
        if let Some(peer) = self.peer.as_mut().filter(|peer| peer.fd == Some(fd)) {
            peer.phase = phase;
        }
    }

    fn own_address(&self) -> SocketAddr {
        SocketAddr::new(self.local, PORT)
    }

    /// The host's descriptor for one of the script's.
    fn fd(&self, script: i64) -> Result<Fd, String> {
        let found = self.fds.iter().find(|(known, _)| *known == script);
        found.map(|(_, fd)| *fd).ok_or_else(|| format!("descriptor {script} is not open"))
    }

    /// Deadline of a timeout in milliseconds; `None` if it is negative.
    fn deadline(&self, milliseconds: i64) -> Option<Nanos> {
        u64::try_from(milliseconds).ok().map(|timeout| self.host.now() + timeout * 1_000_000)
    }

    fn poll(&mut self, arguments: Arguments<'_>) -> Result<Ready, String> {
        let items = arguments.get(0)?.items().ok_or("a list of descriptors is needed")?;
        let mut fds = Vec::new();
        for item in items {
            let member = |name: &str| item.member(name).ok_or_else(|| format!("no `{name}`"));
            let fd = self.fd(member("fd")?.integer()?)?;
            fds.push(PollFd { fd, events: member("events")?.integer()? as i16, revents: 0 });
        }
        let until = self.deadline(arguments.integer(2)?);
        Ok(Ready::Call(Call::Poll { fds, until }))
    }

    fn epoll_control(&mut self, epoll: Fd, arguments: Arguments<'_>) -> Result<Ready, String> {
        let operation = match arguments.small(1)? {
            libc::EPOLL_CTL_ADD => Operation::Add,
            libc::EPOLL_CTL_MOD => Operation::Modify,
            libc::EPOLL_CTL_DEL => Operation::Delete,
            other => return Err(format!("epoll_ctl has no operation {other}")),
        };
        let fd = self.fd(arguments.integer(2)?)?;
        let wanted = epoll_event(arguments.get(3)?)?;
        let result = self.host.epoll_control(epoll, operation, fd, wanted);
        Ok(Ready::Over(result.map(|()| 0)))
    }

    fn getsockopt(&mut self, fd: Fd, arguments: Arguments<'_>) -> Result<Ready, String> {
        let result = self.host.option(fd, arguments.small(1)?, arguments.small(2)?);
        let value = match result {
            Ok(value) => value,
            Err(stop) => return Ok(Ready::Over(Err(stop))),
        };
        let same = match arguments.get(3)? {
            Expression::Ellipsis => true,
            Expression::Text(text) => value.starts_with(text.as_bytes()),
            number => {
                let expected = number.integer()? as i32;
                let actual = value.first_chunk().map_or(0, |four| i32::from_ne_bytes(*four));
                if expected != actual {
                    return Err(format!("the option is {actual}, expected {expected}"));
                }
                true
            }
        };
        if same { Ok(Ready::Over(Ok(0))) } else { Err(format!("the option is {value:?}")) }
    }

    fn fcntl(&mut self, fd: Fd, arguments: Arguments<'_>) -> Result<Ready, String> {
        match arguments.small(1)? {
            libc::F_GETFL => {
                let flags =
                    libc::O_RDWR | if self.host.is_nonblocking(fd) { libc::O_NONBLOCK } else { 0 };
                Ok(Ready::Over(Ok(i64::from(flags))))
            }
            libc::F_SETFL => {
                let on = arguments.small(2)? & libc::O_NONBLOCK != 0;
                Ok(Ready::Over(self.host.set_nonblocking(fd, on).map(|()| 0)))
            }
            other => Err(format!("fcntl has no command {other} here")),
        }
    }

    fn ioctl(&mut self, fd: Fd, arguments: Arguments<'_>) -> Result<Ready, String> {
        let name = arguments.integer(1)?;
        let is = |symbol: &str| symbols::value(symbol) == Some(name);
        let result = if is("SIOCINQ") {
            self.host.readable_len(fd)
        } else if is("SIOCOUTQ") {
            self.host.unacknowledged(fd)
        } else if is("SIOCOUTQNSD") {
            self.host.unsent(fd)
        } else {
            return Err(format!("ioctl has no request {name:#x} here"));
        };
        match result {
            Ok(actual) => {
                let expected = arguments.integer(2)?;
                if expected != actual as i64 {
                    return Err(format!("it is {actual}, expected {expected}"));
                }
                Ok(Ready::Over(Ok(0)))
            }
            Err(stop) => Ok(Ready::Over(Err(stop))),
        }
    }

    fn check_outcome(
        &mut self,
        spec: &script::Call,
        done: Result<Outcome, Stop>,
    ) -> Result<(), String> {
        let arguments = Arguments(&spec.arguments);
        match &done {
            Ok(Outcome::Accepted(fd, _)) => {
                self.fds.push((spec.result.integer()?, *fd));
                self.forget_stream(*fd);
                if let Some(peer) = &mut self.peer {
                    peer.fd = Some(*fd);
                }
            }
            Ok(Outcome::Received(bytes)) => {
                let fd = self.fd(arguments.integer(0)?)?;
                self.check_received(fd, bytes)?;
            }
            Ok(Outcome::Sent(count)) => {
                let fd = self.fd(arguments.integer(0)?)?;
                self.has_sent(fd, *count);
            }
            Ok(Outcome::Polled(fds)) => {
                let items = arguments.get(0)?.items().unwrap_or_default();
                for (item, fd) in items.iter().zip(fds) {
                    let expected = item.member("revents").map_or(Ok(0), Expression::integer)?;
                    if expected != i64::from(fd.revents) {
                        return Err(format!(
                            "revents is {:#x}, expected {expected:#x}",
                            fd.revents
                        ));
                    }
                }
            }
            Ok(Outcome::Events(events)) => check_events(arguments.get(1)?, events)?,
            _ => {}
        }
        check_result(spec, done.map(|outcome| outcome.value()))
    }
}

/// Length and flags of a call that reads or writes.
fn transfer(name: &str, arguments: Arguments<'_>) -> Result<(usize, i32), String> {
    let length = |value: i64| usize::try_from(value).map_err(|_| "a length is negative".to_owned());
    match name {
        "read" | "write" => Ok((length(arguments.integer(2)?)?, 0)),
        "recv" | "send" | "recvfrom" | "sendto" => {
            Ok((length(arguments.integer(2)?)?, arguments.small(3)?))
        }
        "readv" | "writev" => Ok((vector(arguments.get(1)?)?, 0)),
        _ => {
            let message = arguments.get(1)?;
            let control = message.member("msg_control").and_then(Expression::items);
            if control.is_some_and(|control| !control.is_empty()) {
                return Err("control messages are not supported".to_owned());
            }
            let iov = message.member("msg_iov").ok_or("no `msg_iov`")?;
            Ok((vector(iov)?, arguments.small(2)?))
        }
    }
}

/// Length of all pieces of an iovec.
fn vector(iov: &Expression) -> Result<usize, String> {
    let pieces = iov.items().ok_or("a list of pieces is needed")?;
    pieces.iter().try_fold(0, |sum, piece| match piece {
        Expression::Tuple(parts) if parts.len() == 2 => Ok(sum + parts[1].integer()? as usize),
        other => Err(format!("not a piece: {other:?}")),
    })
}

fn option_value(value: &Expression) -> Result<Vec<u8>, String> {
    match value {
        Expression::Text(text) => Ok(text.clone().into_bytes()),
        Expression::Structure(_) => {
            let part = |name: &str| value.member(name).ok_or("not `{onoff=, linger=}`")?.integer();
            let (on, seconds) = (part("onoff")? as i32, part("linger")? as i32);
            Ok([on.to_ne_bytes(), seconds.to_ne_bytes()].concat())
        }
        number => Ok((number.integer()? as i32).to_ne_bytes().to_vec()),
    }
}

fn epoll_event(event: &Expression) -> Result<EpollEvent, String> {
    if let Ok(0) = event.integer() {
        return Ok(EpollEvent::default());
    }
    let events = event.member("events").ok_or("no `events`")?.integer()? as u32;
    let data = ["fd", "ptr", "u32", "u64"].iter().find_map(|name| event.member(name));
    let data = data.map_or(Ok(0), Expression::integer)? as u64;
    Ok(EpollEvent { events, data })
}

fn check_events(expected: &Expression, actual: &[EpollEvent]) -> Result<(), String> {
    let expected: Vec<EpollEvent> = match expected {
        Expression::Structure(_) => vec![epoll_event(expected)?],
        Expression::List(items) => items.iter().map(epoll_event).collect::<Result<_, _>>()?,
        _ => return Ok(()),
    };
    for (expected, actual) in expected.iter().zip(actual) {
        if expected != actual {
            return Err(format!("the event is {actual:x?}, expected {expected:x?}"));
        }
    }
    Ok(())
}

fn check_result(spec: &script::Call, result: Result<i64, Stop>) -> Result<(), String> {
    let expected = spec.result.integer()?;
    let gives_fd = matches!(spec.name.as_str(), "socket" | "accept" | "epoll_create");
    match result {
        Ok(value) if gives_fd && expected >= 0 && value >= 0 => Ok(()),
        Ok(value) if value == expected => Ok(()),
        Ok(value) => {
            let error = spec.error.as_deref().unwrap_or_default();
            Err(format!("it gives {value}, expected {expected} {error}"))
        }
        Err(Stop::Block) => Err("it blocks".to_owned()),
        Err(Stop::Errno(errno)) if expected != -1 => {
            Err(format!("it fails with {errno}, expected {expected}"))
        }
        Err(Stop::Errno(errno)) => match spec.error.as_deref() {
            Some(name) if symbols::errno(name).map(Errno) != Some(errno) => {
                Err(format!("it fails with {errno}, expected {name}"))
            }
            _ => Ok(()),
        },
    }
}

/// Arguments of a call, by position.
#[derive(Clone, Copy)]
struct Arguments<'a>(&'a [Expression]);

impl<'a> Arguments<'a> {
    fn get(self, at: usize) -> Result<&'a Expression, String> {
        self.0.get(at).ok_or_else(|| format!("argument {} is missing", at + 1))
    }

    fn integer(self, at: usize) -> Result<i64, String> {
        self.get(at)?.integer()
    }

    fn small(self, at: usize) -> Result<i32, String> {
        self.integer(at).map(|value| value as i32)
    }
}
