//! Sequences that once gave something else, with the steps that it took.

use sys::calls::Call;

use super::options::{OPTIONS, TCP_INQ};
use super::step::{DupBy, ReceiveBy, SendBy, Sequence, Step, Then, Waits};

const TO_NIC: Step = Step::Move { to_nic: true, waits: false };
const TO_OS: Step = Step::Move { to_nic: false, waits: false };
const CLOSE: Step = Step::Close { dup_only: false, by_dup: false };

fn of(steps: Vec<Step>) -> Sequence {
    Sequence { is_v6: true, no_delay: true, steps }
}

const IN_OUT_BY_EDGE: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLET) as u32;

fn receive(by: ReceiveBy, len: usize, flags: i32) -> Step {
    Step::Receive { by, lens: vec![len], flags }
}

fn blocked(call: Waits, bytes: usize, moves: Option<bool>) -> Step {
    Step::Blocked { call, then: Then::PeerSends(bytes), moves }
}

pub(super) fn all() -> Vec<Sequence> {
    let option = |name| OPTIONS.iter().position(|option| option.name == name).unwrap();
    let whole = ReceiveBy::ReceiveMessage { has_room: true };
    vec![
        // Closed while it goes back, with bytes that nobody read.
        of(vec![
            TO_NIC,
            Step::PeerSend(24),
            receive(whole, 368, 0),
            Step::PeerSend(2707),
            receive(ReceiveBy::Receive, 1, libc::MSG_PEEK),
            Step::Send { by: SendBy::SendFileAt, lens: vec![49], flags: libc::MSG_NOSIGNAL },
            TO_OS,
            CLOSE,
        ]),
        // The peer closes last, and its FIN is to be answered though the connection goes back.
        of(vec![
            Step::Shutdown(libc::SHUT_WR),
            blocked(Waits::Receive { len: 1193, flags: 0 }, 2499, Some(true)),
            TO_OS,
            blocked(Waits::Poll(Call::Ppoll), 267, None),
            TO_NIC,
            Step::PeerSend(1),
            Step::Dup(DupBy::Onto),
            TO_OS,
            Step::PeerShut,
            Step::PeerReceive(63),
            Step::Send { by: SendBy::SendFileAt, lens: vec![53], flags: 0 },
            receive(ReceiveBy::Read, 3000, 0),
        ]),
        // `TCP_INQ` is set when the connection has ended at the NIC.
        of(vec![
            TO_NIC,
            Step::Send { by: SendBy::Write, lens: vec![730], flags: 0 },
            Step::PeerClose { resets: false },
            receive(ReceiveBy::Readv, 276, 0),
            Step::SetOption(option(TCP_INQ), 1),
            receive(whole, 40, 0),
            receive(ReceiveBy::ReceiveMessage { has_room: false }, 40, 0),
        ]),
        // What `TCP_INQ` says beside bytes of which more are wanted (`MSG_WAITALL`) than there are.
        of(vec![
            Step::SetOption(option(TCP_INQ), 1),
            Step::PeerSend(22),
            receive(whole, 256, libc::MSG_WAITALL | libc::MSG_DONTWAIT),
        ]),
        // shutdown(2) that fails is an edge.
        of(vec![
            TO_NIC,
            Step::PeerClose { resets: true },
            Step::EpollAdd { set: 1, events: IN_OUT_BY_EDGE },
            Step::EpollWait { set: 1, most: 2 },
            Step::Shutdown(libc::SHUT_RDWR),
            Step::EpollWait { set: 1, most: 1 },
        ]),
        // A new `SO_SNDBUF` is an edge.
        of(vec![
            Step::EpollAdd { set: 0, events: IN_OUT_BY_EDGE },
            TO_NIC,
            Step::EpollWait { set: 0, most: 3 },
            Step::SetOption(option(libc::SO_SNDBUF), 0),
            Step::EpollWait { set: 0, most: 2 },
        ]),
        // splice(2) does not wait for as many bytes as `SO_RCVLOWAT` says.
        of(vec![
            Step::NonBlocking { on: true, by_ioctl: false },
            Step::SetOption(option(libc::SO_RCVLOWAT), 3),
            Step::PeerSend(70),
            receive(ReceiveBy::Readv, 44, libc::MSG_DONTWAIT),
            receive(ReceiveBy::Splice, 86, 0),
        ]),
        // A reset that comes at once behind the peer's end of the stream.
        of(vec![
            Step::Move { to_nic: true, waits: true },
            Step::Shutdown(libc::SHUT_RD),
            Step::PeerShut,
            Step::PeerClose { resets: true },
            Step::Send { by: SendBy::SendFile, lens: vec![1], flags: libc::MSG_NOSIGNAL },
        ]),
        // What is ready while it goes back.
        of(vec![
            Step::Move { to_nic: true, waits: true },
            TO_OS,
            Step::Poll { by: Call::Pselect, events: libc::POLLOUT },
            TO_NIC,
            TO_OS,
            Step::Poll { by: Call::Poll, events: libc::POLLOUT },
        ]),
        // The send ring grows where it had come round: a segment lies in three pieces.
        of(vec![
            Step::Send { by: SendBy::SendTo, lens: vec![1833, 55], flags: 0 },
            Step::Fill { piece: 28_086, moves: Some(true) },
            Step::Fill { piece: 63_060, moves: Some(true) },
        ]),
        // What is set while it moves, or is at the NIC, stays.
        of(vec![
            TO_NIC,
            Step::SetOption(option(libc::SO_REUSEADDR), 1),
            Step::GetOption(option(libc::SO_REUSEADDR)),
            TO_OS,
            Step::GetOption(option(libc::SO_REUSEADDR)),
            Step::SetOption(option(libc::SO_REUSEADDR), 0),
            TO_NIC,
            Step::GetOption(option(libc::SO_REUSEADDR)),
            Step::Move { to_nic: true, waits: true },
            Step::SetOption(option(libc::SO_REUSEADDR), 1),
            TO_OS,
            Step::GetOption(option(libc::SO_REUSEADDR)),
        ]),
        // The kernel sends in the call what few bytes may wait for, and puts more into a packet that waits.
        of(vec![
            Step::Move { to_nic: true, waits: true },
            Step::SetOption(option(libc::TCP_NOTSENT_LOWAT), 1),
            Step::Send {
                by: SendBy::SendMessages,
                lens: vec![126, 351, 71, 59],
                flags: libc::MSG_DONTWAIT,
            },
        ]),
        // What a reset has left of a connection is none that a set waits to be opened.
        of(vec![
            Step::Blocked {
                call: Waits::Receive { len: 3474, flags: 0 },
                then: Then::PeerResets,
                moves: None,
            },
            Step::EpollAdd { set: 0, events: IN_OUT_BY_EDGE | libc::EPOLLRDHUP as u32 },
            Step::EpollWait { set: 0, most: 3 },
            Step::Send { by: SendBy::Send, lens: vec![2996, 1], flags: libc::MSG_NOSIGNAL },
            Step::EpollWait { set: 0, most: 2 },
        ]),
        // An edge that is told anew, though nothing more comes.
        of(vec![
            Step::Move { to_nic: true, waits: true },
            Step::PeerShut,
            Step::EpollAdd { set: 1, events: IN_OUT_BY_EDGE },
            Step::Shutdown(libc::SHUT_WR),
            Step::EpollWait { set: 1, most: 4 },
            Step::SetOption(option(libc::SO_RCVLOWAT), 1),
            Step::EpollWait { set: 1, most: 3 },
        ]),
    ]
}
