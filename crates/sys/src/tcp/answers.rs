//! Whether the peer of a connection answers.
//!
//! TCP asks a peer whose window is closed again and again, and one that answers keeps the connection for as long as it
//! likes (RFC 9293 section 3.8.6.1, MUST-37). Since Linux 5.11 `TCP_USER_TIMEOUT` ends it all the same, however the peer
//! answers, once its window was closed for so long (tcp_probe_timer, net/ipv4/tcp_timer.c). So that option is of no use where
//! a receiver may be slow, and who wants to know of a peer that is gone has to look.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::sockopt;

/// Probes of a closed window that may be on their way: a peer answers two a second (`net.ipv4.tcp_invalid_ratelimit`), and
/// one may be lost.
const PROBES: u8 = 2;

/// What a peer has answered to what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answers {
    /// It has all that there is to send.
    All,
    /// There is more to send, and nothing that it should have answered since it was heard last.
    Last,
    /// It was heard last so long ago, and something was sent to it since.
    Not(Duration),
}

/// See the module's documentation.
///
/// # Errors
/// The error of `getsockopt`, as for a socket that is not TCP's.
pub fn answers(socket: impl AsFd) -> io::Result<Answers> {
    let info: libc::tcp_info = sockopt::get(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO)?;
    Ok(of(&info))
}

fn of(info: &libc::tcp_info) -> Answers {
    let is_asked = match (info.tcpi_unacked, info.tcpi_notsent_bytes) {
        (0, 0) => return Answers::All,
        // Its window is closed. Probes, which are no data, are counted until it answers.
        (0, _) => info.tcpi_probes >= PROBES,
        _ => info.tcpi_last_data_sent <= info.tcpi_last_ack_recv,
    };
    match is_asked {
        true => Answers::Not(Duration::from_millis(info.tcpi_last_ack_recv.into())),
        false => Answers::Last,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// What the kernel says of a connection at which so much is.
    fn info(unacked: u32, unsent: u32, probes: u8, [sent, heard]: [u32; 2]) -> libc::tcp_info {
        // SAFETY: integers only, for which zeros are valid.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        (info.tcpi_unacked, info.tcpi_notsent_bytes, info.tcpi_probes) = (unacked, unsent, probes);
        (info.tcpi_last_data_sent, info.tcpi_last_ack_recv) = (sent, heard);
        info
    }

    #[test]
    fn silence_begins_with_what_is_not_answered() {
        let not = |milliseconds| Answers::Not(Duration::from_millis(milliseconds));
        for (info, expected) in [
            (info(0, 0, 5, [0, 90_000]), Answers::All),
            (info(3, 0, 0, [20, 5_000]), not(5_000)),
            (info(3, 9, 0, [20, 20]), not(20)),
            // It has shrunk its window, says so each time, and is asked ever less often.
            (info(3, 9, 0, [50_001, 50_000]), Answers::Last),
            (info(0, 9, 0, [0, 50_000]), Answers::Last),
            (info(0, 9, 1, [0, 50_000]), Answers::Last),
            (info(0, 9, 2, [0, 50_000]), not(50_000)),
        ] {
            assert_eq!(of(&info), expected, "{info:?}");
        }
    }

    #[test]
    fn a_peer_that_reads_nothing_answers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        assert_eq!(answers(&near).unwrap(), Answers::All);
        let full = loop {
            if let Err(error) = near.write(&[0; 1 << 16]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        assert_ne!(answers(&near).unwrap(), Answers::All);
        assert!(answers(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
