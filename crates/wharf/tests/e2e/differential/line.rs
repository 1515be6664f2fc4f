//! A connection with both its ends: the application's, which is compared, and the peer's, which is a kernel's.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use sys::calls::{self, Answer, Call, Event, Message, Set};

use super::options::OPTIONS;
use super::step::{DupBy, Odd, ReceiveBy, SendBy, Step};

/// All that poll(2) tells.
const ALL: i16 = libc::POLLIN
    | libc::POLLOUT
    | libc::POLLPRI
    | libc::POLLRDHUP
    | libc::POLLRDNORM
    | libc::POLLWRNORM
    | libc::POLLRDBAND
    | libc::POLLWRBAND;
/// `SIOCOUTQNSD` (include/uapi/linux/sockios.h).
const UNSENT: u64 = 0x894B;
/// Other bytes than were sent, in an outcome.
const WRONG_BYTES: i64 = i64::MIN;

/// What a step gave: results, errors below zero, and what else the calls told.
pub(super) type Outcome = Vec<i64>;

/// One direction of a stream, whose bytes follow from their place.
#[derive(Debug)]
pub(super) struct Flow {
    seed: u64,
    pub(super) sent: usize,
    pub(super) got: usize,
}

impl Flow {
    fn new(seed: u64) -> Self {
        Flow { seed, sent: 0, got: 0 }
    }

    fn byte(&self, at: usize) -> u8 {
        ((at as u64 ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    /// Bytes that were sent and not read.
    pub(super) fn unread(&self) -> usize {
        self.sent.saturating_sub(self.got)
    }

    /// The next bytes.
    pub(super) fn next(&self, len: usize) -> Vec<u8> {
        (self.sent..self.sent + len).map(|at| self.byte(at)).collect()
    }

    /// Whether these are the bytes that come next.
    pub(super) fn are_next(&self, bytes: &[u8]) -> bool {
        bytes.iter().zip(self.got..).all(|(byte, at)| *byte == self.byte(at))
    }

    /// They are read.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        let are_next = self.are_next(bytes);
        self.got += bytes.len();
        are_next
    }
}

pub(super) struct Line {
    pub(super) app: Option<OwnedFd>,
    pub(super) dups: Vec<OwnedFd>,
    pub(super) peer: Option<OwnedFd>,
    pub(super) sets: [Set; 2],
    pub(super) out: Flow,
    pub(super) back: Flow,
    /// Messages may have a timestamp (`SO_TIMESTAMP`): the kernel begins to give them a while later.
    is_stamped: bool,
    /// Options that were set.
    set: [bool; OPTIONS.len()],
}

/// A result as a number.
pub(super) fn number(answer: Answer) -> i64 {
    match answer {
        Ok(value) => value as i64,
        Err(error) => -i64::from(error),
    }
}

/// What an end shows at rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    pub(super) revents: i16,
    pub(super) unread: i64,
    /// Of the peer, whose kernel tells it.
    pub(super) state: Option<u8>,
    /// It has a peer still.
    pub(super) is_connected: bool,
}

pub(super) fn seen(fd: BorrowedFd<'_>, has_state: bool) -> Seen {
    let revents = calls::poll(&[(fd, ALL)], 0, Call::Poll).map_or(-1, |(_, all)| all[0]);
    let unread = calls::ioctl(fd, libc::FIONREAD).unwrap_or_else(|error| -error);
    let state = has_state.then(|| state(fd));
    let is_connected = calls::peer_name(fd).is_ok();
    Seen { revents, unread: unread.into(), state, is_connected }
}

/// `tcpi_state`.
pub(super) fn state(fd: BorrowedFd<'_>) -> u8 {
    sys::tcp::state(fd).unwrap_or(0)
}

impl Line {
    pub(super) fn new(app: OwnedFd, peer: OwnedFd, seed: u64) -> Self {
        let sets = [Set::new().unwrap(), Set::new().unwrap()];
        let (out, back) = (Flow::new(seed), Flow::new(!seed));
        Line {
            app: Some(app),
            dups: Vec::new(),
            peer: Some(peer),
            sets,
            out,
            back,
            is_stamped: false,
            set: [false; OPTIONS.len()],
        }
    }

    pub(super) fn app(&self) -> BorrowedFd<'_> {
        self.app.as_ref().unwrap().as_fd()
    }

    pub(super) fn peer(&self) -> BorrowedFd<'_> {
        self.peer.as_ref().unwrap().as_fd()
    }

    pub(super) fn seen(&self) -> (Option<Seen>, Option<Seen>) {
        let app = self.app.as_ref().map(|app| seen(app.as_fd(), false));
        (app, self.peer.as_ref().map(|peer| seen(peer.as_fd(), true)))
    }

    /// Does a step that is one call.
    pub(super) fn run(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Send { by, lens, flags } => self.send(*by, lens, *flags),
            Step::Receive { by, lens, flags } => self.receive(*by, lens, *flags),
            Step::PeerSend(len) => vec![self.peer_send(*len)],
            Step::PeerReceive(len) => self.peer_receive(*len),
            Step::PeerShut => vec![number(calls::shutdown(self.peer(), libc::SHUT_WR))],
            Step::PeerClose { resets } => {
                let peer = self.peer.take().unwrap();
                if *resets {
                    never_linger(peer.as_fd());
                }
                vec![number(calls::close(peer))]
            }
            Step::Shutdown(how) => vec![number(calls::shutdown(self.app(), *how))],
            Step::Close { dup_only: true, by_dup } => {
                self.dups.pop().map(|dup| close(dup, *by_dup)).into_iter().collect()
            }
            Step::Close { dup_only: false, by_dup } => {
                let all = self.dups.drain(..).chain(self.app.take());
                all.map(|one| close(one, *by_dup)).collect()
            }
            Step::SetOption(which, value) => self.set_option(*which, *value),
            Step::GetOption(which) => self.get_option(*which),
            Step::NonBlocking { on, by_ioctl: true } => {
                vec![number(calls::set_ioctl(self.app(), libc::FIONBIO, (*on).into()))]
            }
            Step::NonBlocking { on, .. } => {
                let flags = if *on { libc::O_NONBLOCK } else { 0 };
                vec![number(calls::fcntl(self.app(), libc::F_SETFL, libc::O_RDWR | flags))]
            }
            Step::Flags => vec![
                number(calls::fcntl(self.app(), libc::F_GETFL, 0)),
                number(calls::fcntl(self.app(), libc::F_GETFD, 0)),
            ],
            Step::Poll { by, events } => match calls::poll(&[(self.app(), *events)], 0, *by) {
                Ok((count, found)) => vec![count as i64, found[0].into()],
                Err(error) => vec![-i64::from(error)],
            },
            Step::EpollAdd { set, events } => self.control(*set, libc::EPOLL_CTL_ADD, *events),
            Step::EpollModify { set, events } => self.control(*set, libc::EPOLL_CTL_MOD, *events),
            Step::EpollDelete { set } => self.control(*set, libc::EPOLL_CTL_DEL, 0),
            Step::Queued => {
                // What was sent is not acknowledged at once, and is no more than was sent.
                let within = |request| match calls::ioctl(self.app(), request) {
                    Ok(0..4_000_000) => 0,
                    Ok(_) => WRONG_BYTES,
                    Err(error) => -i64::from(error),
                };
                vec![within(libc::TIOCOUTQ), within(UNSENT)]
            }
            Step::Error => bytes(calls::option(self.app(), libc::SOL_SOCKET, libc::SO_ERROR, 4)),
            Step::Names => [calls::socket_name(self.app()), calls::peer_name(self.app())]
                .into_iter()
                .map(|name| match name {
                    Ok((address, len)) => i64::from(address.is_ipv4()) * 1000 + i64::from(len),
                    Err(error) => -i64::from(error),
                })
                .collect(),
            Step::Dup(by) => self.dup(*by),
            Step::Turn => {
                let other = if self.dups.is_empty() { None } else { Some(self.dups.remove(0)) };
                let before = other.and_then(|other| self.app.replace(other));
                self.dups.extend(before);
                Outcome::new()
            }
            Step::Odd(odd) => vec![self.odd(*odd)],
            Step::Move { .. }
            | Step::EpollWait { .. }
            | Step::Blocked { .. }
            | Step::Fill { .. }
            | Step::Flood { .. } => Vec::new(),
        }
    }

    fn peer_send(&mut self, len: usize) -> i64 {
        let bytes = self.back.next(len);
        let sent = calls::send(self.peer(), &bytes, libc::MSG_NOSIGNAL);
        self.back.sent += sent.unwrap_or(0);
        number(sent)
    }

    fn peer_receive(&mut self, len: usize) -> Outcome {
        let mut into = vec![0; len];
        let got = calls::receive(self.peer(), &mut into, libc::MSG_DONTWAIT);
        let is_right = self.out.take(&into[..got.unwrap_or(0)]);
        vec![number(got), if is_right { 0 } else { WRONG_BYTES }]
    }

    fn send(&mut self, by: SendBy, lens: &[usize], flags: i32) -> Outcome {
        let before = calls::counted(calls::Signals::Pipe);
        let total: usize = lens.iter().sum();
        let all = self.out.next(total);
        let mut rest = &all[..];
        let mut pieces = Vec::new();
        for len in lens {
            let (piece, behind) = rest.split_at(*len);
            pieces.push(IoSlice::new(piece));
            rest = behind;
        }
        let app = self.app();
        let mut outcome = Outcome::new();
        let answer = match by {
            SendBy::Write => calls::write(app, &all),
            SendBy::Writev => calls::writev(app, &pieces),
            SendBy::Send => calls::send(app, &all, flags),
            SendBy::SendTo => calls::send_to(app, &all, flags),
            SendBy::SendMessage => calls::send_message(app, &pieces, flags),
            SendBy::SendMessages => calls::send_messages(app, &pieces, flags).map(|lens| {
                outcome.extend(lens.iter().map(|len| i64::from(*len)));
                lens.iter().sum::<u32>() as usize
            }),
            SendBy::SendFile | SendBy::SendFileAt => {
                let file = file_of(&all);
                let mut at = 0;
                let place = (by == SendBy::SendFileAt).then_some(&mut at);
                // More than is there is asked for.
                let sent = calls::send_file(app, &file, place, total + 10);
                outcome.extend([at, number(calls::read(&file, &mut [0; 1]))]);
                sent
            }
            SendBy::Splice => {
                let (from, to) = std::io::pipe().unwrap();
                let put = if all.is_empty() { Ok(0) } else { calls::write(&to, &all) };
                drop(to);
                // More than is there is asked for.
                put.and_then(|len| calls::splice(&from, app, len + 10, splice_flags(flags)))
            }
        };
        self.out.sent += answer.unwrap_or(0);
        outcome.push(number(answer));
        outcome.push((calls::counted(calls::Signals::Pipe) - before) as i64);
        outcome
    }

    fn receive(&mut self, by: ReceiveBy, lens: &[usize], flags: i32) -> Outcome {
        let mut outcome = Outcome::new();
        let total: usize = lens.iter().sum();
        let mut all = vec![0; total];
        let mut parts: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
        let mut pieces: Vec<_> = parts.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        let app = self.app.as_ref().unwrap();
        let mut flags = flags;
        let answer = match by {
            ReceiveBy::Read => {
                flags = 0;
                calls::read(app, &mut all)
            }
            ReceiveBy::Readv => {
                flags = 0;
                calls::readv(app, &mut pieces)
            }
            ReceiveBy::Receive => calls::receive(app, &mut all, flags),
            ReceiveBy::ReceiveFrom => {
                calls::receive_from(app, &mut all, flags).map(|(count, len)| {
                    outcome.push(len.into());
                    count
                })
            }
            ReceiveBy::ReceiveMessage { has_room } => {
                calls::receive_message(app, &mut pieces, flags, has_room).map(|message| {
                    let Message { len, flags, name_len, control_len } = message;
                    outcome.push(name_len.into());
                    if !self.is_stamped {
                        outcome.extend([flags.into(), control_len as i64]);
                    }
                    len
                })
            }
            ReceiveBy::ReceiveMessages => {
                // The kernel waits for each message otherwise.
                let flags = flags | libc::MSG_WAITFORONE;
                calls::receive_messages(app, &mut pieces, flags).map(|lens| {
                    outcome.extend(lens.iter().map(|len| i64::from(*len)));
                    lens.iter().sum::<u32>() as usize
                })
            }
            ReceiveBy::Splice => {
                let there = self.back.unread();
                let answer = splice(app.as_fd(), &mut all, there, splice_flags(flags));
                flags = 0;
                answer
            }
        };
        match by {
            ReceiveBy::Readv | ReceiveBy::ReceiveMessage { .. } => all = parts.concat(),
            ReceiveBy::ReceiveMessages => {
                // Each message has its bytes at the beginning of its piece.
                let of_each = parts.iter().zip(&outcome);
                all = of_each.flat_map(|(part, len)| &part[..*len as usize]).copied().collect();
            }
            _ => {}
        }
        let count = answer.unwrap_or(0);
        let is_cut = flags & libc::MSG_TRUNC != 0;
        let there = if is_cut { &[] } else { &all[..count.min(all.len())] };
        let is_right = match (flags & (libc::MSG_PEEK | libc::MSG_ERRQUEUE), is_cut) {
            (0, true) => {
                self.back.got += count;
                true
            }
            (0, false) => self.back.take(there),
            _ => self.back.are_next(there),
        };
        outcome.extend([number(answer), if is_right { 0 } else { WRONG_BYTES }]);
        outcome
    }

    fn set_option(&mut self, which: usize, value: usize) -> Outcome {
        let option = &OPTIONS[which];
        let Some(value) = option.value(value) else { return Vec::new() };
        self.is_stamped |= (option.level, option.name) == (libc::SOL_SOCKET, libc::SO_TIMESTAMP);
        let answer = calls::set_option(self.app(), option.level, option.name, &value);
        self.set[which] |= answer.is_ok();
        vec![number(answer)]
    }

    fn get_option(&self, which: usize) -> Outcome {
        let option = &OPTIONS[which];
        let answer = calls::option(self.app(), option.level, option.name, 16);
        match answer {
            Ok(value) if option.varies && !(option.stays && self.set[which]) => {
                vec![value.len() as i64]
            }
            other => bytes(other),
        }
    }

    fn control(&self, set: usize, op: i32, events: u32) -> Outcome {
        let event = Event { data: 100 + set as u64, events };
        vec![number(self.sets[set].control(op, self.app(), event))]
    }

    fn dup(&mut self, by: DupBy) -> Outcome {
        let app = self.app();
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let onto = |new: OwnedFd, done: Answer| (done.map(|_| 0), Some(new));
        let (result, new) = match by {
            DupBy::Dup | DupBy::Fcntl => {
                let new = if by == DupBy::Dup { calls::dup(app) } else { calls::dup_from(app, 40) };
                (new.as_ref().map(|_| 0).map_err(|error| *error), new.ok())
            }
            DupBy::Onto => {
                let new = file();
                let done = calls::dup_onto(app, &new);
                onto(new, done)
            }
            DupBy::OntoForExec => {
                let new = file();
                let done = calls::dup_onto_for_exec(app, &new);
                onto(new, done)
            }
            DupBy::OntoOwn => match self.dups.pop() {
                None => (Ok(0), None),
                Some(own) => {
                    let done = calls::dup_onto(self.app(), &own);
                    onto(own, done)
                }
            },
        };
        if let Some(new) = new {
            self.dups.extend(self.app.replace(new));
        }
        vec![number(result)]
    }

    fn odd(&self, odd: Odd) -> i64 {
        let app = self.app();
        let nowhere = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 1));
        number(match odd {
            Odd::Connect => calls::connect(app, nowhere),
            Odd::Bind => calls::bind(app, nowhere),
            Odd::Listen => calls::listen(app, 5),
            Odd::Accept => calls::accept(app).map(drop).map(|()| 0),
            Odd::ShortOption => calls::set_option(app, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &[1]),
            Odd::UnknownRequest => calls::ioctl(app, 0x1234_5678).map(|_| 0),
        })
    }
}

/// close(2) is a reset from now on.
pub(super) fn never_linger(fd: BorrowedFd<'_>) {
    let on = [1_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat();
    calls::set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &on).unwrap();
}

fn bytes(answer: Answer<Vec<u8>>) -> Outcome {
    match answer {
        Ok(value) => value.into_iter().map(i64::from).collect(),
        Err(error) => vec![-i64::from(error)],
    }
}

fn file_of(bytes: &[u8]) -> std::fs::File {
    use std::io::{Seek, SeekFrom, Write};
    let mut file = tempfile();
    file.write_all(bytes).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    file
}

/// A file that nobody else has.
fn tempfile() -> std::fs::File {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    options.open(std::env::temp_dir()).unwrap()
}

/// Flags of send(2) or recv(2) as those of splice(2).
fn splice_flags(flags: i32) -> u32 {
    let of = |flag: i32, splice| if flags & flag != 0 { splice } else { 0 };
    of(libc::MSG_DONTWAIT, libc::SPLICE_F_NONBLOCK) | of(libc::MSG_MORE, libc::SPLICE_F_MORE)
}

/// splice(2) into a pipe, and out of that, until all that is there has come: the kernel's may give less at a time.
fn splice(app: BorrowedFd<'_>, into: &mut [u8], there: usize, flags: u32) -> Answer {
    let (from, to) = std::io::pipe().unwrap();
    let wanted = into.len().min(there);
    let mut done = 0;
    loop {
        let moved = calls::splice(app, &to, into.len() - done, flags)?;
        let mut read = 0;
        while read < moved {
            read += calls::read(&from, &mut into[done + read..done + moved])?;
        }
        done += moved;
        if moved == 0 || done >= wanted {
            return Ok(done);
        }
    }
}

/// close(2), or dup2(2) of a file onto it, whose descriptor it is from then on.
fn close(fd: OwnedFd, by_dup: bool) -> i64 {
    if by_dup {
        let file = std::fs::File::open("/dev/null").unwrap();
        let done = number(calls::dup_onto(file, &fd).map(|_| 0));
        drop(fd);
        done
    } else {
        number(calls::close(fd))
    }
}
