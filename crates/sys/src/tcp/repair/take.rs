//! Taking a connection out of the kernel.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::put_back::leave;
use super::{
    Parts, Path, RECV_QUEUE, REPAIR_ON, SEND_QUEUE, Settings, Window, get, set, stand_in, state,
    use_queue,
};
use crate::capability;
use crate::error::check;
use crate::sockopt;
use crate::tcp::obstacle::peek_offset;
use crate::tcp::{self, address};

/// More than any one segment of the send queue holds: the kernel keeps segments of which the first part
/// is acknowledged, and peeks them as a whole.
const PEEK_SLACK: usize = 1 << 20;

/// Reads after which a connection that still changes counts as not kept away from its peer.
const LOOKS: usize = 16;

/// Takes a connection out of the kernel. The peer learns nothing; the socket stays open, in repair mode
/// and unconnected, for [`put_back`](super::put_back).
///
/// The module's documentation has what must have been done before.
///
/// # Errors
/// `PermissionDenied` without the privilege; `NotConnected` for a socket that has no connection;
/// `InvalidInput` for a connection that is being opened, or that ends and has no owner any more, or of which
/// urgent data is waiting to be read;
/// `ResourceBusy` if the connection would not stand still; `AddrNotAvailable` if the calling thread may not bind the
/// connection's port (`CAP_NET_BIND_SERVICE`), without which it is not put back. The socket is then as it was.
pub fn take(socket: impl AsFd) -> io::Result<Parts> {
    take_once(socket, Ok)
}

/// The same, but gives the parts to `keep` before the kernel loses the connection, so that one that dies in between can be
/// told from what was kept. Returns what `keep` makes of them. They are given again if they have changed in the meantime.
///
/// # Errors
/// As [`take`], and what `keep` says: what was kept is of no use then.
pub fn take_once<T>(
    socket: impl AsFd,
    mut keep: impl FnMut(Parts) -> io::Result<T>,
) -> io::Result<T> {
    let socket = socket.as_fd();
    let (local, remote) = tcp::ends(socket)?;
    if !may_bind(local)? {
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "its port may not be bound"));
    }
    let reuse: libc::c_int = sockopt::get(socket, libc::SOL_SOCKET, libc::SO_REUSEADDR)?;
    let reuse_address = reuse != 0;
    set(socket, libc::TCP_REPAIR, &REPAIR_ON)?;
    let taken = with_whole_queues(socket, || {
        let (kept, ahead) =
            keep_at_rest(socket, (local, remote), |parts| keep(Parts { reuse_address, ..parts }))?;
        address::disconnect(socket)?;
        if ahead >= AHEAD_LONG && stand_in::forget_pace(socket, local, remote).is_err() {
            // The connection has been taken: it may have to wait when it is back.
            address::disconnect(socket)?;
        }
        Ok(kept)
    });
    match taken {
        Ok(kept) => {
            // Repair mode leaves ECONNABORTED behind, which a program that reads the socket's error must not
            // see.
            let _: libc::c_int = sockopt::get(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
            Ok(kept)
        }
        Err(error) => {
            leave(socket, reuse_address)?;
            Err(error)
        }
    }
}

/// Whether the calling thread may bind this port.
fn may_bind(local: SocketAddr) -> io::Result<bool> {
    if capability::has(capability::NET_BIND_SERVICE)? {
        return Ok(true);
    }
    // Who may is asked first (`__inet_bind`): that the port is in use is the connection's own doing.
    let asked = tcp::bind(local).map_err(|error| error.kind());
    Ok(asked.err() != Some(io::ErrorKind::PermissionDenied))
}

/// Does this while peeking begins at the head of a queue and moves no offset of the application's (`SO_PEEK_OFF`).
/// The offset is as before afterwards, which disconnecting would switch off.
pub(super) fn with_whole_queues<T>(
    socket: BorrowedFd<'_>,
    read: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Some(offset) = peek_offset(socket)? else { return read() };
    let set_offset = |offset| sockopt::set(socket, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &offset);
    set_offset(-1)?;
    let taken = read();
    // Once disconnected there is only what was taken: an offset that is gone is less than a connection that is.
    let _ = set_offset(offset);
    taken
}

/// What is kept of the connection, when it has not changed meanwhile, and by how many microseconds its timestamps may be
/// ahead. A timer of the kernel's (a delayed acknowledgment, a probe) may send, or tell the peer of another window, at any
/// time, which takes no regard of repair mode: what is kept may have become too little.
fn keep_at_rest<T>(
    socket: BorrowedFd<'_>,
    (local, remote): (SocketAddr, SocketAddr),
    mut keep: impl FnMut(Parts) -> io::Result<T>,
) -> io::Result<(T, u64)> {
    let mut sent = None;
    for _ in 0..LOOKS {
        let (parts, ahead, position) = read_at_rest(socket, local, remote, &mut sent)?;
        let kept = keep(parts)?;
        if position.is_still(socket)? {
            return Ok((kept, ahead));
        }
    }
    Err(not_at_rest())
}

fn not_at_rest() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "the connection does not stand still")
}

/// Reads the connection until it has neither received nor sent meanwhile, by how many microseconds its timestamps may be
/// ahead, and what it was read at. `sent` is how much it had sent before the send queue was selected for the first time.
fn read_at_rest(
    socket: BorrowedFd<'_>,
    local: SocketAddr,
    remote: SocketAddr,
    sent: &mut Option<Sent>,
) -> io::Result<(Parts, u64, Position)> {
    for _ in 0..LOOKS {
        let position = Position::read(socket)?;
        let sent = &*sent.get_or_insert_with(|| Sent::of(&position.info));
        let parts = read(socket, local, remote, &position);
        let info = get(socket, libc::TCP_INFO)?;
        // Otherwise an error may be of the change: bytes that have come are no urgent data.
        if position.has_same_segments(&info) {
            let (mut parts, ahead) = parts?;
            // Since that began, and until the connection is gone, nothing more is sent.
            let unsent = sent.unsent_at(&Sent::of(&info), parts.closed());
            parts.unsent = unsent.min(parts.unacknowledged);
            return Ok((parts, ahead, position));
        }
    }
    Err(not_at_rest())
}

/// How much a connection has sent. In repair mode it goes on to send when it has a chance, as when a device has taken a
/// packet of it, unless the send queue is selected: then the kernel mistakes the chance for a write in repair mode, counts
/// all of the queue as sent, and sends nothing. So what is not sent is known by what was not sent before, and by how much
/// has left since.
struct Sent {
    /// Bytes that the kernel counts as not sent, and a FIN of ours.
    unsent: u32,
    /// Bytes that have left, all that were sent again included.
    bytes: u64,
    /// Those that were sent again.
    again: u64,
}

impl Sent {
    /// All of it at the same instant.
    fn of(info: &libc::tcp_info) -> Self {
        let (bytes, again) = (info.tcpi_bytes_sent, info.tcpi_bytes_retrans);
        Sent { unsent: info.tcpi_notsent_bytes, bytes, again }
    }

    /// What is not sent, as it is `now`. What counts as sent and was not is sent again; the peer's acknowledgments of what
    /// counts as not sent and was are ignored for good.
    fn unsent_at(&self, now: &Sent, closed: bool) -> u32 {
        if self.again != now.again {
            // Perhaps of what had only been counted as sent.
            return now.unsent;
        }
        let left = now.bytes.wrapping_sub(self.bytes);
        let unsent = u64::from(self.unsent).saturating_sub(left) as u32;
        // A FIN is none of the bytes that have left.
        if closed && unsent <= 1 { now.unsent } else { unsent.max(now.unsent) }
    }
}

/// Variables that change when a connection is written to or receives.
struct Position {
    info: libc::tcp_info,
    write_seq: u32,
    rcv_nxt: u32,
    unacknowledged: u32,
    unread: u32,
    window: Window,
}

impl Position {
    /// Afterwards the send queue is selected, so that nothing new is sent.
    fn read(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let info = get(socket, libc::TCP_INFO)?;
        use_queue(socket, RECV_QUEUE)?;
        let rcv_nxt = sequence(socket)?;
        use_queue(socket, SEND_QUEUE)?;
        Ok(Position {
            info,
            write_seq: sequence(socket)?,
            rcv_nxt,
            unacknowledged: queued(socket, libc::TIOCOUTQ)?,
            unread: queued(socket, libc::FIONREAD)?,
            window: get(socket, libc::TCP_REPAIR_WINDOW)?,
        })
    }

    /// Whether no segment has come or gone up to when TCP_INFO is this: all that the peer says, and all that it is told,
    /// is in one.
    fn has_same_segments(&self, info: &libc::tcp_info) -> bool {
        let segments = |info: &libc::tcp_info| {
            let bytes = [info.tcpi_bytes_acked, info.tcpi_bytes_received];
            (info.tcpi_state, info.tcpi_segs_in, info.tcpi_segs_out, bytes)
        };
        segments(&self.info) == segments(info)
    }

    /// Whether nothing has changed at all: what the application reads and writes need not be in a segment. The send queue is
    /// selected.
    fn is_still(&self, socket: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(self.has_same_segments(&get(socket, libc::TCP_INFO)?)
            && sequence(socket)? == self.write_seq
            && queued(socket, libc::FIONREAD)? == self.unread)
    }
}

/// The next sequence number of the queue that is selected.
fn sequence(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let next: libc::c_int = get(socket, libc::TCP_QUEUE_SEQ)?;
    Ok(next as u32)
}

fn read(
    socket: BorrowedFd<'_>,
    local: SocketAddr,
    remote: SocketAddr,
    position: &Position,
) -> io::Result<(Parts, u64)> {
    use state::{CLOSE_WAIT, CLOSING, ESTABLISHED, FIN_WAIT1, FIN_WAIT2, LAST_ACK};
    let known = [ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING];
    let info = &position.info;
    if !known.contains(&info.tcpi_state) {
        let kind = io::ErrorKind::InvalidInput;
        return Err(io::Error::new(kind, "the connection is not established"));
    }
    let mss_clamp: libc::c_int = get(socket, libc::TCP_MAXSEG)?;
    let timestamp: libc::c_int = get(socket, libc::TCP_TIMESTAMP)?;
    let slower = if is_bbr(socket)? { SLOWER_BBR } else { SLOWER };
    let ahead = ahead(info.tcpi_pacing_rate, slower, info.tcpi_snd_mss, info.tcpi_min_rtt);
    let mut parts = Parts {
        local,
        remote,
        state: info.tcpi_state,
        write_seq: position.write_seq,
        unacknowledged: position.unacknowledged,
        // See `Sent`.
        unsent: 0,
        rcv_nxt: position.rcv_nxt,
        send_queue: Vec::new(),
        recv_queue: received(socket, position.unread as usize)?,
        options: info.tcpi_options,
        snd_wscale: info.tcpi_snd_rcv_wscale & 15,
        rcv_wscale: info.tcpi_snd_rcv_wscale >> 4,
        mss_clamp: mss_clamp as u32,
        timestamp: not_before(timestamp as u32, ahead),
        window: position.window.put_right(),
        path: path(info),
        settings: settings(socket)?,
        reuse_address: false,
        carried: [info.tcpi_bytes_acked, info.tcpi_bytes_received],
    };
    refuse_urgent(socket, position.unread, parts.settings.urgent_inline)?;
    let bytes = parts.unacknowledged_bytes();
    let mut sent = peek(socket, bytes, PEEK_SLACK)?;
    parts.send_queue = sent.split_off(sent.len().saturating_sub(bytes));
    Ok((parts, ahead))
}

/// Most bytes that a pace lets go at once (`GSO_LEGACY_MAX_SIZE`).
const MOST_AT_ONCE: u64 = 65_536;
/// How much slower the pace may have been when the last segment was sent. BBR's grows by 2.89 in a round trip
/// (`bbr_high_gain`), and this is for four of them: with 8, among 10,000 connections that shared 10 Mb/s, one in a million
/// segments was ahead.
const SLOWER_BBR: u64 = 64;
/// The same of others: what they send is paced only where `SO_MAX_PACING_RATE` or fq(8) have it so.
const SLOWER: u64 = 2;
/// Ten seconds: what comes back to the kernel before its peer has echoed anything new may be measured by an older timestamp,
/// and its retransmission timeout grows with this, and again with each such move. Where timestamps were ahead by more, the
/// engine goes on behind what the peer echoes.
const AHEAD_MAX: u64 = 10_000_000;

/// From so many microseconds on the pace is made to be forgotten, which takes a few calls: the same socket would send nothing
/// before that time when the connection has come back.
const AHEAD_LONG: u64 = 100_000;

/// The kernel marks microseconds in the lowest bit, so that it reports a timestamp of milliseconds only to a
/// pair of them. Timestamps must not go back (RFC 7323 section 5.3): the next pair.
/// It is `ahead` by so many microseconds at most.
fn not_before(timestamp: u32, ahead: u64) -> u32 {
    if timestamp & 1 == 0 {
        timestamp.wrapping_add(2 + (ahead.div_ceil(1000) as u32 & !1))
    } else {
        timestamp.wrapping_add(ahead as u32 & !1)
    }
}

/// By how many microseconds timestamps may be ahead of the clock. A segment bears the time at which the connection's
/// pace lets the next one go (`tcp_wstamp_ns` in `__tcp_transmit_skb`), as with BBR, and an acknowledgment leaves before
/// that time. `rate` is that of the pace in bytes a second, as it is now, and was not less than that divided by `slower`.
/// What it lets go at once (`tcp_tso_autosize`, with the defaults of tcp_tso_rtt_log and tcp_min_tso_segs) are two segments or
/// what takes a millisecond, and more for a peer that is near.
fn ahead(rate: u64, slower: u64, mss: u32, min_rtt: u32) -> u64 {
    let near = MOST_AT_ONCE.checked_shr(min_rtt >> 9).unwrap_or(0);
    let bytes = near.max(2 * u64::from(mss));
    (1000 + bytes * slower * 1_000_000 / rate.max(1)).min(AHEAD_MAX)
}

/// Whether the connection's congestion control is a version of BBR.
fn is_bbr(socket: BorrowedFd<'_>) -> io::Result<bool> {
    // `TCP_CA_NAME_MAX`.
    let name: [u8; 16] = get(socket, libc::TCP_CONGESTION)?;
    Ok(name.starts_with(b"bbr"))
}

/// With urgent data in the queue the kernel shows only the bytes before it. It counts all bytes if urgent
/// data stays in the stream, and those before it if not.
fn refuse_urgent(socket: BorrowedFd<'_>, unread: u32, is_inline: bool) -> io::Result<()> {
    let set = |inline| {
        let inline = libc::c_int::from(inline);
        sockopt::set(socket, libc::SOL_SOCKET, libc::SO_OOBINLINE, &inline)
    };
    set(!is_inline)?;
    let otherwise = queued(socket, libc::FIONREAD);
    set(is_inline)?;
    if otherwise? == unread {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "urgent data is waiting to be read"))
}

fn settings(socket: BorrowedFd<'_>) -> io::Result<Settings> {
    let of_tcp = |option| get::<libc::c_int>(socket, option);
    let of_socket = |option| sockopt::get::<libc::c_int>(socket, libc::SOL_SOCKET, option);
    let keepalive = if of_socket(libc::SO_KEEPALIVE)? == 0 {
        None
    } else {
        let [idle, interval, probes] =
            [libc::TCP_KEEPIDLE, libc::TCP_KEEPINTVL, libc::TCP_KEEPCNT].map(of_tcp);
        Some([idle? as u32, interval? as u32, probes? as u32])
    };
    Ok(Settings {
        no_delay: of_tcp(libc::TCP_NODELAY)? != 0,
        cork: of_tcp(libc::TCP_CORK)? != 0,
        urgent_inline: of_socket(libc::SO_OOBINLINE)? != 0,
        keepalive,
        user_timeout: of_tcp(libc::TCP_USER_TIMEOUT)? as u32,
    })
}

fn path(info: &libc::tcp_info) -> Path {
    Path {
        rto: info.tcpi_rto,
        rtt: info.tcpi_rtt,
        rttvar: info.tcpi_rttvar,
        min_rtt: info.tcpi_min_rtt,
        snd_cwnd: info.tcpi_snd_cwnd,
        snd_ssthresh: info.tcpi_snd_ssthresh,
        snd_mss: info.tcpi_snd_mss,
        rcv_mss: info.tcpi_rcv_mss,
        advmss: info.tcpi_advmss,
        pmtu: info.tcpi_pmtu,
        backoff: info.tcpi_backoff,
        last_data_sent: info.tcpi_last_data_sent,
    }
}

/// The bytes of the receive queue. The send queue is selected before and after.
fn received(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<Vec<u8>> {
    if bytes == 0 {
        return Ok(Vec::new());
    }
    use_queue(socket, RECV_QUEUE)?;
    let received = peek(socket, bytes, 0);
    use_queue(socket, SEND_QUEUE)?;
    received
}

/// The bytes of the queue that is selected, and at most so many more, which stay in it.
fn peek(socket: BorrowedFd<'_>, bytes: usize, slack: usize) -> io::Result<Vec<u8>> {
    if bytes == 0 {
        return Ok(Vec::new());
    }
    let mut into = vec![0; bytes + slack];
    // SAFETY: `into` is writable for its length.
    let peeked = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            into.as_mut_ptr().cast(),
            into.len(),
            libc::MSG_PEEK | libc::MSG_DONTWAIT,
        )
    };
    into.truncate(usize::try_from(peeked).map_err(|_| io::Error::last_os_error())?);
    if into.len() < bytes {
        // The connection has changed.
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the queue is shorter than its length",
        ));
    }
    Ok(into)
}

/// Number of bytes in a queue, by one of the `SIOC*Q` requests.
fn queued(socket: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: each of the requests writes one int, to a live one.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut bytes) })?;
    Ok(bytes as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_pace_puts_timestamps_ahead_by_two_segments_of_a_slower_one() {
        let [far, near] = [264_628, 60];
        let [bbr, other] = [SLOWER_BBR, SLOWER];
        assert_eq!(ahead(1_000_000, bbr, 1448, far), 1000 + 2 * 1448 * 64);
        assert_eq!(ahead(100_000_000, bbr, 1448, near), 1000 + 65_536 * 64 / 100);
        // Ten segments in 100 ms, without a pace.
        assert_eq!(ahead(289_600, other, 1448, 100_000), 1000 + 20_000);
        assert_eq!(ahead(u64::MAX, bbr, 1448, far), 1000, "no pace");
        assert_eq!(ahead(0, bbr, 1448, u32::MAX), AHEAD_MAX);
    }

    #[test]
    fn what_has_left_since_is_not_unsent() {
        let before = Sent { unsent: 1000, bytes: 50_000, again: 7 };
        let at =
            |unsent, bytes, again, closed| before.unsent_at(&Sent { unsent, bytes, again }, closed);
        assert_eq!(at(1000, 50_000, 7, false), 1000, "nothing has happened");
        assert_eq!(at(400, 50_600, 7, false), 400, "some was sent");
        assert_eq!(at(0, 50_000, 7, false), 1000, "all was counted as sent");
        assert_eq!(at(0, 50_600, 7, false), 400, "some was sent, and then all was counted as sent");
        assert_eq!(
            at(0, 50_600, 607, false),
            0,
            "what was counted as sent may have been sent again"
        );
        assert_eq!(at(0, 50_999, 7, true), 0, "all was sent, perhaps with the FIN");
    }
}
