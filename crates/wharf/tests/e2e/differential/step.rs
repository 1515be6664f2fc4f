//! What is done with a connection: one call of the application's, of the peer's, or a move. A sequence of steps is
//! drawn from a number, and is the same for the same number.

use sys::calls::Call;

/// Bytes that a call of a sequence moves at most: less than any buffer, so that no call moves only some of them.
const BYTES_MOST: usize = 3000;
/// Bytes that may wait to be read at an end.
pub(super) const UNREAD_MOST: usize = 24_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendBy {
    Write,
    Writev,
    Send,
    SendTo,
    SendMessage,
    SendMessages,
    SendFile,
    SendFileAt,
    Splice,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReceiveBy {
    Read,
    Readv,
    Receive,
    ReceiveFrom,
    ReceiveMessage { has_room: bool },
    ReceiveMessages,
    Splice,
}

/// What ends the wait of a call that blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Then {
    PeerSends(usize),
    PeerShuts,
    PeerResets,
    /// Another thread of the application's shuts it down.
    AppShuts(i32),
    /// Signals come; bytes of the peer's after them, if the call goes on (`SA_RESTART`).
    Signals {
        restarts: bool,
    },
}

impl Then {
    /// Bytes that the peer sends to end this call.
    pub(super) fn sends(self, call: Waits) -> Option<usize> {
        match (self, call) {
            (Then::PeerSends(len), _) => Some(len),
            (Then::Signals { restarts: true }, Waits::Receive { len, .. }) => Some(len),
            _ => None,
        }
    }
}

/// A call that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    Receive { len: usize, flags: i32 },
    Poll(Call),
    Epoll { set: usize },
}

/// How there comes to be another descriptor of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DupBy {
    Dup,
    Fcntl,
    /// dup2(2) onto a file's.
    Onto,
    /// dup3(2) onto a file's.
    OntoForExec,
    /// dup2(2) onto an older one of its own.
    OntoOwn,
}

/// Calls that make no sense on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Odd {
    Connect,
    Bind,
    Listen,
    Accept,
    ShortOption,
    UnknownRequest,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// `wharf handoff`, and whether the next step waits until it is done.
    Move {
        to_nic: bool,
        waits: bool,
    },
    Send {
        by: SendBy,
        lens: Vec<usize>,
        flags: i32,
    },
    Receive {
        by: ReceiveBy,
        lens: Vec<usize>,
        flags: i32,
    },
    PeerSend(usize),
    PeerReceive(usize),
    PeerShut,
    PeerClose {
        resets: bool,
    },
    Shutdown(i32),
    Close {
        dup_only: bool,
        /// By dup2(2) of a file onto it.
        by_dup: bool,
    },
    /// An option by its place in [`super::options::OPTIONS`], and the place of its value.
    SetOption(usize, usize),
    GetOption(usize),
    /// `O_NONBLOCK`.
    NonBlocking {
        on: bool,
        by_ioctl: bool,
    },
    Flags,
    Poll {
        by: Call,
        events: i16,
    },
    EpollAdd {
        set: usize,
        events: u32,
    },
    EpollModify {
        set: usize,
        events: u32,
    },
    EpollDelete {
        set: usize,
    },
    EpollWait {
        set: usize,
        most: usize,
    },
    Queued,
    Error,
    Names,
    /// What follows is done with the new descriptor.
    Dup(DupBy),
    /// What follows is done with another one, if there is one.
    Turn,
    Odd(Odd),
    /// A call that waits, and what ends that; `moves` if the connection moves meanwhile.
    Blocked {
        call: Waits,
        then: Then,
        moves: Option<bool>,
    },
    /// Many bytes, in pieces of this size at most; `moves` if the connection moves in the middle.
    Flood {
        by_peer: bool,
        len: usize,
        piece: usize,
        moves: Option<bool>,
    },
    /// As many bytes as there is room for, in such pieces, which the peer reads then; `moves` if the connection moves
    /// meanwhile.
    Fill {
        piece: usize,
        moves: Option<bool>,
    },
}

/// Numbers that look like chance (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Less than `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// A sequence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sequence {
    pub(super) is_v6: bool,
    /// Both ends send at once what they are given (`TCP_NODELAY`), as else some steps wait for acknowledgments.
    pub(super) no_delay: bool,
    pub(super) steps: Vec<Step>,
}

impl Sequence {
    pub(super) fn of(seed: u64, options: usize) -> Self {
        let mut random = Random::new(seed);
        let (is_v6, no_delay) = (random.one_in(2), !random.one_in(6));
        let count = 3 + random.below(30);
        let steps = (0..count).map(|_| step(&mut random, options)).collect();
        Sequence { is_v6, no_delay, steps }
    }
}

fn len(random: &mut Random) -> usize {
    match random.below(8) {
        0 => 0,
        1 => 1,
        2..=5 => 1 + random.below(100),
        _ => 1 + random.below(BYTES_MOST),
    }
}

fn lens(random: &mut Random) -> Vec<usize> {
    let count = 1 + random.below(4);
    (0..count).map(|_| len(random)).collect()
}

fn step(random: &mut Random, options: usize) -> Step {
    match random.below(1000) {
        0..170 => Step::Move { to_nic: random.one_in(2), waits: random.one_in(2) },
        170..290 => send(random),
        290..450 => receive(random),
        450..600 => Step::PeerSend(len(random)),
        600..660 => Step::PeerReceive(len(random)),
        660..672 => Step::PeerShut,
        672..682 => Step::PeerClose { resets: random.one_in(2) },
        682..700 => {
            let how = [libc::SHUT_RD, libc::SHUT_WR, libc::SHUT_WR, libc::SHUT_RDWR, 7];
            Step::Shutdown(random.of(&how))
        }
        700..712 => Step::Close { dup_only: random.one_in(4), by_dup: random.one_in(4) },
        712..750 => Step::SetOption(random.below(options), random.below(8)),
        750..780 => Step::GetOption(random.below(options)),
        780..800 => Step::NonBlocking { on: random.one_in(2), by_ioctl: random.one_in(3) },
        800..805 => Step::Flags,
        805..840 => poll(random),
        840..875 => epoll(random),
        875..920 => Step::EpollWait { set: random.below(2), most: 1 + random.below(4) },
        920..935 => Step::Queued,
        935..945 => Step::Error,
        945..950 => Step::Names,
        950..962 => Step::Dup(random.of(&[
            DupBy::Dup,
            DupBy::Dup,
            DupBy::Fcntl,
            DupBy::Onto,
            DupBy::OntoForExec,
            DupBy::OntoOwn,
        ])),
        962..968 => Step::Turn,
        968..972 => Step::Close { dup_only: true, by_dup: random.one_in(3) },
        972..976 => Step::Odd(random.of(&[
            Odd::Connect,
            Odd::Bind,
            Odd::Listen,
            Odd::Accept,
            Odd::ShortOption,
            Odd::UnknownRequest,
        ])),
        976..990 => blocked(random),
        990..993 => Step::Fill {
            piece: 1 + random.below(70_000),
            moves: random.of(&[None, Some(true), Some(false)]),
        },
        _ => Step::Flood {
            by_peer: random.one_in(2),
            len: 1 + random.below(400_000),
            piece: 1 + random.below(70_000),
            moves: random.of(&[None, Some(true), Some(false)]),
        },
    }
}

fn send(random: &mut Random) -> Step {
    let by = random.of(&[
        SendBy::Write,
        SendBy::Writev,
        SendBy::Send,
        SendBy::Send,
        SendBy::SendTo,
        SendBy::SendMessage,
        SendBy::SendMessages,
        SendBy::SendFile,
        SendBy::SendFileAt,
        SendBy::Splice,
    ]);
    let flags = match random.below(10) {
        0..=4 => 0,
        5 | 6 => libc::MSG_DONTWAIT,
        7 | 8 => libc::MSG_NOSIGNAL,
        _ => random.of(&[
            libc::MSG_MORE,
            libc::MSG_EOR,
            libc::MSG_CONFIRM,
            libc::MSG_DONTROUTE,
            libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT,
        ]),
    };
    Step::Send { by, lens: lens(random), flags }
}

fn receive(random: &mut Random) -> Step {
    let by = random.of(&[
        ReceiveBy::Read,
        ReceiveBy::Readv,
        ReceiveBy::Receive,
        ReceiveBy::Receive,
        ReceiveBy::ReceiveFrom,
        ReceiveBy::ReceiveMessage { has_room: false },
        ReceiveBy::ReceiveMessage { has_room: true },
        ReceiveBy::ReceiveMessages,
        ReceiveBy::Splice,
    ]);
    let flags = match random.below(10) {
        0..=2 => 0,
        3 | 4 => libc::MSG_DONTWAIT,
        5 => libc::MSG_PEEK,
        6 => libc::MSG_WAITALL,
        7 => libc::MSG_PEEK | libc::MSG_DONTWAIT,
        8 => libc::MSG_WAITALL | libc::MSG_DONTWAIT,
        _ => random.of(&[
            libc::MSG_TRUNC,
            libc::MSG_TRUNC | libc::MSG_PEEK,
            libc::MSG_PEEK | libc::MSG_WAITALL,
            libc::MSG_CMSG_CLOEXEC,
            libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
            libc::MSG_NOSIGNAL,
        ]),
    };
    Step::Receive { by, lens: lens(random), flags }
}

fn poll(random: &mut Random) -> Step {
    let events = random.of(&[
        libc::POLLIN,
        libc::POLLOUT,
        libc::POLLIN | libc::POLLOUT,
        libc::POLLIN | libc::POLLRDHUP,
        libc::POLLPRI,
        libc::POLLRDNORM | libc::POLLWRNORM | libc::POLLRDBAND | libc::POLLWRBAND,
        0,
    ]);
    Step::Poll { by: random.of(&[Call::Poll, Call::Ppoll, Call::Select, Call::Pselect]), events }
}

fn epoll(random: &mut Random) -> Step {
    const IN: u32 = libc::EPOLLIN as u32;
    const OUT: u32 = libc::EPOLLOUT as u32;
    const RDHUP: u32 = libc::EPOLLRDHUP as u32;
    const EDGE: u32 = libc::EPOLLET as u32;
    const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
    let set = random.below(2);
    let what = random.of(&[IN, IN | OUT, IN | RDHUP, IN | OUT | RDHUP, OUT, 0]);
    let how = random.of(&[0, 0, EDGE, EDGE, ONESHOT, EDGE | ONESHOT]);
    match random.below(10) {
        0..=5 => Step::EpollAdd { set, events: what | how },
        6..=8 => Step::EpollModify { set, events: what | how },
        _ => Step::EpollDelete { set },
    }
}

fn blocked(random: &mut Random) -> Step {
    let bytes = 1 + random.below(BYTES_MOST);
    let call = match random.below(4) {
        0 => Waits::Receive { len: 1 + random.below(2 * BYTES_MOST), flags: 0 },
        1 => Waits::Receive { len: 1 + random.below(bytes), flags: libc::MSG_WAITALL },
        2 => Waits::Poll(random.of(&[Call::Poll, Call::Ppoll, Call::Select, Call::Pselect])),
        _ => Waits::Epoll { set: random.below(2) },
    };
    let then = match random.below(16) {
        0 => Then::PeerShuts,
        1 => Then::PeerResets,
        2 => Then::AppShuts(random.of(&[libc::SHUT_RD, libc::SHUT_RDWR])),
        3..=6 => Then::Signals { restarts: random.one_in(2) },
        _ => Then::PeerSends(bytes),
    };
    Step::Blocked { call, then, moves: random.of(&[None, Some(true), Some(false)]) }
}
