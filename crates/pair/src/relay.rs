//! One connection: its TCP socket, the supervisor's end of the pair, and the bytes between them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use sys::epoll::Epoll;
use sys::poll::{Interest, PollSet};
use sys::stream::{self, Name};

/// Bytes that are moved by one call.
pub(crate) const PIECE: usize = 64 << 10;
/// Bytes that are moved each way before others have their turn.
const TURN: usize = 8 * PIECE;

/// One way of the bytes.
#[derive(Default)]
struct Way {
    /// Read, but not written yet: from `at` on.
    held: Vec<u8>,
    at: usize,
    /// The reader has found the end of the stream.
    is_at_end: bool,
    /// The writer was told of it.
    is_shut: bool,
    /// The writer takes no more: what comes is read and dropped, or not read at all.
    is_broken: bool,
}

/// Why no more bytes are moved for now.
#[derive(Debug)]
enum Stop {
    /// None are there.
    Empty,
    /// There is no room for more.
    Full,
    /// Others have their turn.
    Enough,
    /// None will come, and all were written.
    End,
    ReadFailed(io::Error),
    WriteFailed(io::Error),
}

impl Way {
    fn holds(&self) -> bool {
        self.at < self.held.len()
    }

    /// Moves bytes as long as there are any, and room for them.
    fn carry(&mut self, from: &mut impl Read, to: &mut impl Write, scratch: &mut [u8]) -> Stop {
        let mut left = TURN;
        loop {
            while self.holds() {
                match to.write(&self.held[self.at..]) {
                    Ok(written) => self.at += written,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Stop::Full,
                    Err(error) => return Stop::WriteFailed(error),
                }
            }
            if self.at > 0 {
                // Most connections hold nothing most of the time.
                (self.held, self.at) = (Vec::new(), 0);
            }
            if self.is_at_end {
                return Stop::End;
            }
            if left == 0 {
                return Stop::Enough;
            }
            let read = match from.read(scratch) {
                Ok(0) => {
                    self.is_at_end = true;
                    continue;
                }
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Stop::Empty,
                Err(error) => return Stop::ReadFailed(error),
            };
            left = left.saturating_sub(read);
            let written = match to.write(&scratch[..read]) {
                Ok(written) => written,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                {
                    0
                }
                Err(error) => return Stop::WriteFailed(error),
            };
            self.held.extend_from_slice(&scratch[written..read]);
        }
    }

    /// The writer takes no more.
    fn breaks(&mut self) {
        self.is_broken = true;
        (self.held, self.at) = (Vec::new(), 0);
    }
}

/// What is to be done with a connection next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// Nothing, before one of its sockets is ready.
    Wait,
    /// Another turn, after others have had theirs.
    Again,
    /// The program has closed its end: the connection ends as the kernel ends one that is closed.
    Closed,
    /// The peer, or the way to it, has ended the connection with this error: the program's end is to say so.
    Reset(i32),
}

/// See the module's documentation.
pub(crate) struct Relay {
    tcp: TcpStream,
    pair: UnixStream,
    /// From the program to its peer, and back.
    out: Way,
    back: Way,
    /// Bytes of no meaning that fill the pair until the connection is established, so that there is no room for more.
    filling: Option<usize>,
    /// No connect(2) has said yet that it is established: the next one does.
    is_news: bool,
    /// An error that was found here and that the program was not told of; 0 for none.
    error: i32,
    /// `SO_LINGER` as the program has it. The supervisor must not wait in close(2).
    linger: [u8; LINGER],
    /// `SO_RCVLOWAT` as the TCP socket came with it. The supervisor waits for the first byte.
    low: [u8; LOW],
    /// The program has closed its end, and more is to be sent than the peer takes.
    is_orphan: bool,
    /// Whether it is told when there is room to write, to the peer and to the program.
    waits_for_room: [bool; 2],
}

/// Bytes of `struct linger`.
pub(crate) const LINGER: usize = size_of::<libc::linger>();
/// Bytes of `SO_RCVLOWAT`, and what it is unless a program has set it.
const LOW: usize = size_of::<i32>();
const LOWEST: [u8; LOW] = 1_i32.to_ne_bytes();

impl Relay {
    /// A connection by these two ends of a pair, of which the second is the program's. `is_connecting` says that it is not
    /// established yet.
    pub(crate) fn new(
        tcp: OwnedFd,
        (pair, theirs): (UnixStream, &UnixStream),
        is_connecting: bool,
    ) -> io::Result<Relay> {
        stream::set_nonblocking(&tcp, true)?;
        pair.set_nonblocking(true)?;
        let mut linger = [0; LINGER];
        stream::option(&tcp, libc::SOL_SOCKET, libc::SO_LINGER, &mut linger)?;
        if linger != [0; LINGER] {
            set_linger(&tcp, [0; LINGER])?;
        }
        for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
            // What a listener has, its connections have.
            let mut value = [0; size_of::<libc::timeval>()];
            stream::option(&tcp, libc::SOL_SOCKET, name, &mut value)?;
            if value.iter().any(|byte| *byte != 0) {
                stream::set_option(theirs, libc::SOL_SOCKET, name, &value)?;
            }
        }
        let mut low = LOWEST;
        stream::option(&tcp, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &mut low)?;
        if i32::from_ne_bytes(low) <= 1 {
            // One that a listener of MPTCP has given has none.
            low = LOWEST;
        } else {
            stream::set_option(theirs, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &low)?;
            stream::set_option(&tcp, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &LOWEST)?;
        }
        let filling = if is_connecting { Some(fill(theirs)?) } else { None };
        Ok(Relay {
            tcp: tcp.into(),
            pair,
            out: Way::default(),
            back: Way::default(),
            filling,
            is_news: is_connecting,
            error: 0,
            linger,
            low,
            is_orphan: false,
            waits_for_room: [is_connecting, false],
        })
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(crate) fn is_connecting(&self) -> bool {
        self.filling.is_some()
    }

    /// Whether connect(2) is to say that it is established, as it does once.
    pub(crate) fn take_news(&mut self) -> bool {
        !self.is_connecting() && std::mem::take(&mut self.is_news)
    }

    pub(crate) fn linger(&mut self) -> &mut [u8; LINGER] {
        &mut self.linger
    }

    /// The error that is pending, which is told by this.
    pub(crate) fn take_error(&mut self) -> i32 {
        match std::mem::take(&mut self.error) {
            0 => self.tcp.take_error().ok().flatten().and_then(|error| error.raw_os_error()),
            error => Some(error),
        }
        .unwrap_or(0)
    }

    /// An error that the program was not told of after all.
    pub(crate) fn put_error(&mut self, error: i32) {
        self.error = error;
    }

    /// Has its sockets reported.
    pub(crate) fn watch(&self, epoll: &Epoll, number: u64) -> io::Result<()> {
        epoll.add_edge(&self.tcp, number, true, self.waits_for_room[0])?;
        epoll.add_edge(&self.pair, number, true, self.waits_for_room[1])
    }

    /// Has it reported when there is room, where bytes wait for that.
    pub(crate) fn wait_for_room(&mut self, epoll: &Epoll, number: u64) -> io::Result<()> {
        let waits = [self.is_connecting() || self.out.holds(), self.back.holds()];
        if waits[0] != self.waits_for_room[0] {
            epoll.change_edge(&self.tcp, number, true, waits[0])?;
        }
        if waits[1] != self.waits_for_room[1] {
            epoll.change_edge(&self.pair, number, true, waits[1])?;
        }
        self.waits_for_room = waits;
        Ok(())
    }

    /// Moves what there is to be moved.
    pub(crate) fn turn(&mut self, scratch: &mut [u8]) -> Next {
        if let Some(filling) = self.filling {
            match self.establish(filling, scratch) {
                Ok(true) => self.filling = None,
                Ok(false) if self.is_closed() => return Next::Closed,
                Ok(false) => return Next::Wait,
                Err(error) => return reset_by(&error),
            }
        }
        let out = self.carry_out(scratch);
        if matches!(out, Next::Closed | Next::Reset(_)) {
            return out;
        }
        let back = self.carry_back(scratch);
        match (out, back) {
            (_, Next::Closed | Next::Reset(_)) => back,
            (Next::Again, _) | (_, Next::Again) => Next::Again,
            _ => Next::Wait,
        }
    }

    /// Whether it is established, and the pair has room since.
    fn establish(&mut self, filling: usize, scratch: &mut [u8]) -> io::Result<bool> {
        const SYN_SENT: u8 = 2;
        const SYN_RECEIVED: u8 = 3;
        let mut state = [0];
        stream::option(&self.tcp, libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
        if matches!(state[0], SYN_SENT | SYN_RECEIVED) {
            return Ok(false);
        }
        if let Some(error) = self.tcp.take_error()? {
            return Err(error);
        }
        let mut left = filling;
        while left > 0 {
            let room = left.min(scratch.len());
            match self.pair.read(&mut scratch[..room])? {
                0 => break,
                read => left -= read,
            }
        }
        Ok(true)
    }

    fn carry_out(&mut self, scratch: &mut [u8]) -> Next {
        if self.out.is_broken {
            return Next::Wait;
        }
        match self.out.carry(&mut self.pair, &mut self.tcp, scratch) {
            Stop::Empty => Next::Wait,
            Stop::Full => {
                if !self.is_orphan && self.is_closed() {
                    self.is_orphan = true;
                    give_up_in_time(&self.tcp);
                }
                Next::Wait
            }
            Stop::Enough => Next::Again,
            Stop::End if self.is_closed() => Next::Closed,
            Stop::End => {
                if !std::mem::replace(&mut self.out.is_shut, true) {
                    // One that has ended otherwise says so when it is read.
                    let _ = self.tcp.shutdown(Shutdown::Write);
                }
                Next::Wait
            }
            Stop::ReadFailed(_) => {
                // It has closed its end and left something unread (unix_release_sock), for which TCP sends a reset.
                self.linger = ABORT;
                Next::Closed
            }
            Stop::WriteFailed(error) => {
                // What has come before the reset is read still.
                self.error = error.raw_os_error().unwrap_or(0);
                self.out.breaks();
                Next::Wait
            }
        }
    }

    fn carry_back(&mut self, scratch: &mut [u8]) -> Next {
        let stop = if self.back.is_broken {
            self.back.carry(&mut self.tcp, &mut io::sink(), scratch)
        } else {
            self.back.carry(&mut self.tcp, &mut self.pair, scratch)
        };
        match stop {
            Stop::Empty | Stop::End if self.out.is_broken => Next::Reset(self.error),
            Stop::Full if self.out.is_broken => {
                // Nobody takes what it writes, though it may read on: it is told when it writes.
                let _ = self.pair.shutdown(Shutdown::Read);
                Next::Wait
            }
            Stop::Empty | Stop::Full => Next::Wait,
            Stop::Enough => Next::Again,
            Stop::End => {
                if !std::mem::replace(&mut self.back.is_shut, true) {
                    let _ = self.pair.shutdown(Shutdown::Write);
                }
                if !self.out.is_at_end && has_failed(&self.tcp) {
                    // There is nothing left to be read that would tell of a reset.
                    let error = self.tcp.take_error().ok().flatten();
                    return Next::Reset(
                        error.and_then(|error| error.raw_os_error()).unwrap_or(libc::EPIPE),
                    );
                }
                Next::Wait
            }
            Stop::ReadFailed(error) => reset_by(&error),
            Stop::WriteFailed(_) if self.is_closed() => {
                // What is queued towards the peer goes there first.
                self.back.is_at_end = true;
                self.back.breaks();
                if self.out.holds() { Next::Wait } else { Next::Again }
            }
            Stop::WriteFailed(_) => {
                // It reads no more (shutdown(2)), and may write still.
                self.back.breaks();
                Next::Again
            }
        }
    }

    /// Whether the program has closed its end.
    fn is_closed(&self) -> bool {
        has_failed(&self.pair)
    }

    /// The end: both sockets are closed. What TCP has queued, it sends still.
    pub(crate) fn close(self) {
        let [on, time] = halves(self.linger);
        // A reset, or none, and no waiting, whatever one has set who has another descriptor. Where it cannot be set, there is
        // no connection any more.
        let value = if on != 0 && time == 0 { ABORT } else { [0; LINGER] };
        let _ = set_linger(&self.tcp, value);
    }

    /// Whether something lies in the pair that the program has sent.
    pub(crate) fn has_unread(&self) -> bool {
        sys::calls::ioctl(&self.pair, libc::FIONREAD).is_ok_and(|unread| unread > 0)
    }

    /// Its TCP socket, of one that the program has not got.
    pub(crate) fn into_tcp(self) -> OwnedFd {
        // As it came.
        let _ = set_linger(&self.tcp, self.linger);
        if self.low != LOWEST {
            let _ = stream::set_option(&self.tcp, libc::SOL_SOCKET, libc::SO_RCVLOWAT, &self.low);
        }
        self.tcp.into()
    }

    /// Names for what is asked after the end.
    pub(crate) fn names(&self) -> [Option<Name>; 2] {
        [Name::of(&self.tcp).ok(), Name::of_peer(&self.tcp).ok()]
    }
}

/// `SO_LINGER` of no time: close(2) sends a reset.
pub(crate) const ABORT: [u8; LINGER] = [1, 0, 0, 0, 0, 0, 0, 0];

/// Whether close(2) waits.
pub(crate) fn lingers(linger: [u8; LINGER]) -> bool {
    let [on, time] = halves(linger);
    on != 0 && time != 0
}

fn halves(linger: [u8; LINGER]) -> [i32; 2] {
    let [a, b, c, d, e, f, g, h] = linger;
    [i32::from_ne_bytes([a, b, c, d]), i32::from_ne_bytes([e, f, g, h])]
}

pub(crate) fn set_linger(tcp: impl AsFd, value: [u8; LINGER]) -> io::Result<()> {
    stream::set_option(tcp, libc::SOL_SOCKET, libc::SO_LINGER, &value)
}

/// How long, in milliseconds, the peer may take nothing of what a program has sent that has closed its end. The kernel gives
/// up such connections of its own, too, after some minutes (tcp_orphan_retries in tcp(7)).
const ORPHANS_PATIENCE: u32 = 240_000;

/// A peer that takes nothing does not hold a connection for good that the program is rid of.
fn give_up_in_time(tcp: &TcpStream) {
    let mut value = [0; 4];
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
    if stream::option(tcp, level, name, &mut value).is_ok() && value == [0; 4] {
        let _ = stream::set_option(tcp, level, name, &ORPHANS_PATIENCE.to_ne_bytes());
    }
}

/// Whether a socket has an error, or both of its ways have ended.
fn has_failed(socket: impl AsFd) -> bool {
    let mut set = PollSet::<1>::empty();
    let Ok(at) = set.add(socket.as_fd(), Interest::Read) else { return true };
    set.wait(Some(0)).is_err() || set.failed(at)
}

fn reset_by(error: &io::Error) -> Next {
    Next::Reset(error.raw_os_error().unwrap_or(libc::ECONNRESET))
}

/// Fills a socket until it has no room: how many bytes that took.
fn fill(mut socket: &UnixStream) -> io::Result<usize> {
    socket.set_nonblocking(true)?;
    let mut all = 0;
    loop {
        match socket.write(&[0; PIECE]) {
            Ok(written) => all += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    socket.set_nonblocking(false)?;
    Ok(all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn what_a_program_leaves_to_be_sent_is_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // It reads nothing.
        let _peer = listener.accept().unwrap();
        let (pair, mut theirs) = UnixStream::pair().unwrap();
        let mut relay = Relay::new(tcp.into(), (pair, &theirs), false).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let patience = |relay: &Relay| {
            let mut value = [0; 4];
            stream::option(relay.tcp(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, &mut value)
                .unwrap();
            u32::from_ne_bytes(value)
        };
        let mut scratch = vec![0; PIECE];
        while !relay.out.holds() {
            let _ = theirs.write(&[1; PIECE]);
            relay.turn(&mut scratch);
        }
        assert_eq!(patience(&relay), 0);
        drop(theirs);
        assert_eq!(relay.turn(&mut scratch), Next::Wait);
        assert_eq!(patience(&relay), ORPHANS_PATIENCE);
    }
}
