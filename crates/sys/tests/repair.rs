//! Connections taken out of the kernel and put back, in network namespaces of the tests' own. The peer,
//! another socket of the same kernel, must not notice.
//!
//! Without the privilege to make a namespace the tests fail, or are left out (`testkit::missing`).

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use sys::calls::{option, set_option};
use sys::capability::{self, NET_ADMIN, NET_BIND_SERVICE};
use sys::interface;
use sys::netlink::address;
use sys::netlink::link::{VethEnd, create_veth};
use sys::netlink::route::{self, NewRoute};
use sys::netns::Namespace;
use sys::tcp::repair::{self, OPTION_SACK, OPTION_TIMESTAMPS, OPTION_WSCALE, Parts, Window, state};
use testkit::missing::lacks;

mod hostile;

fn in_namespace(test: impl FnOnce() + Send) {
    match Namespace::new() {
        Ok(namespace) => namespace
            .run(|| {
                interface::set_up("lo").unwrap();
                test();
            })
            .unwrap(),
        Err(error) if error.is_permission() => lacks(error),
        Err(error) => panic!("{error}"),
    }
}

/// Both ends of a connection: the one that was accepted, and the one that connected.
fn connection(address: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    // A socket of both families is reached by the older one here.
    let to = address.replace("[::]:0", "127.0.0.1:0").parse::<SocketAddr>().unwrap();
    let near = TcpStream::connect((to.ip(), port)).unwrap();
    let (far, _) = listener.accept().unwrap();
    (far, near)
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

/// Writes until the socket is full; how much that was.
fn write_until_full(mut to: &TcpStream, bytes: &[u8]) -> usize {
    to.set_nonblocking(true).unwrap();
    let mut written = 0;
    loop {
        match to.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(taken) => written += taken,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    to.set_nonblocking(false).unwrap();
    written
}

fn read(mut from: &TcpStream, len: usize) -> Vec<u8> {
    let mut into = vec![0; len];
    from.read_exact(&mut into).unwrap();
    into
}

fn move_out_and_in(socket: &TcpStream) -> Parts {
    let parts = repair::take(socket).unwrap();
    assert!(socket.peer_addr().is_err(), "the kernel has released it");
    assert_eq!(socket.take_error().unwrap().map(|error| error.to_string()), None);
    assert_eq!(repair::put_back(socket, &parts).unwrap(), 0);
    parts
}

#[test]
fn both_queues_survive_and_the_peer_notices_nothing() {
    in_namespace(|| {
        for address in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            for accepted in [true, false] {
                let (mut ours, mut peer) = connection(address);
                if !accepted {
                    std::mem::swap(&mut ours, &mut peer);
                }
                let names = (ours.local_addr().unwrap(), ours.peer_addr().unwrap());
                let out = bytes(8 << 20, 1);
                let back = bytes(50_000, 2);
                let written = write_until_full(&ours, &out);
                (&peer).write_all(&back).unwrap();
                for _ in 0..3 {
                    let parts = move_out_and_in(&ours);
                    assert!(parts.unsent > 0, "more was written than the peer's window takes");
                    assert_eq!(parts.recv_queue, back);
                    assert_eq!((parts.local, parts.remote), names);
                    assert_eq!((ours.local_addr().unwrap(), ours.peer_addr().unwrap()), names);
                }
                let sent = std::thread::scope(|scope| {
                    let sender = scope.spawn(|| (&ours).write_all(&out[written..]).unwrap());
                    let sent = read(&peer, out.len());
                    sender.join().unwrap();
                    sent
                });
                assert!(sent == out, "{address}: what was sent arrives once and in order");
                assert_eq!(read(&ours, back.len()), back);
                (&peer).write_all(b"and on").unwrap();
                assert_eq!(read(&ours, 6), b"and on");
            }
        }
    });
}

#[test]
fn what_was_agreed_stays_agreed() {
    in_namespace(|| {
        let (ours, peer) = connection("127.0.0.1:0");
        let before = move_out_and_in(&ours);
        let all = OPTION_TIMESTAMPS | OPTION_SACK | OPTION_WSCALE;
        assert_eq!(before.options & all, all);
        let after = move_out_and_in(&ours);
        assert_eq!(after.options & all, all);
        assert_eq!(after.mss_clamp, before.mss_clamp);
        assert_eq!(after.path.snd_mss, before.path.snd_mss.min(32_767 - 12), "segments as large");
        assert_eq!((after.snd_wscale, after.rcv_wscale), (before.snd_wscale, before.rcv_wscale));
        // Until the peer says it again.
        let snd_wnd = before.window.snd_wnd - 1;
        assert_eq!(after.window, Window { snd_wnd, ..before.window });
        assert!(after.timestamp.wrapping_sub(before.timestamp) < u32::MAX / 2, "time goes on");
        drop(peer);
    });
}

#[test]
fn a_bound_on_what_is_unsent_keeps_nothing_from_coming_back() {
    in_namespace(|| {
        let (ours, mut peer) = connection("127.0.0.1:0");
        let bound = 16_384_u32.to_ne_bytes();
        set_option(&ours, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bound).unwrap();
        let mut parts = repair::take(&ours).unwrap();
        let unsent = bytes(4_000_000, 5);
        parts.send_queue.extend(&unsent);
        for count in [&mut parts.write_seq, &mut parts.unacknowledged, &mut parts.unsent] {
            *count = count.wrapping_add(unsent.len() as u32);
        }
        assert_eq!(repair::put_back(&ours, &parts).unwrap(), 0, "bytes had no room");
        let after = option(&ours, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 4).unwrap();
        assert_eq!(after, bound);
        let mut got = vec![0; unsent.len()];
        peer.read_exact(&mut got).unwrap();
        assert!(got == unsent, "other bytes");
    });
}

#[test]
fn many_times_there_and_back_loses_no_byte() {
    in_namespace(|| {
        let (ours, peer) = connection("127.0.0.1:0");
        ours.set_nodelay(true).unwrap();
        for i in 0..300_u32 {
            (&ours).write_all(&i.to_be_bytes()).unwrap();
            (&peer).write_all(&(!i).to_be_bytes()).unwrap();
            let parts = move_out_and_in(&ours);
            assert!(parts.settings.no_delay);
            assert_eq!(read(&peer, 4), i.to_be_bytes());
            assert_eq!(read(&ours, 4), (!i).to_be_bytes());
        }
    });
}

/// A kernel without memory has withdrawn the window that it had offered: the last update of the peer's is behind it.
#[test]
fn a_window_that_was_withdrawn_is_put_back() {
    in_namespace(|| {
        let (ours, peer) = connection("127.0.0.1:0");
        let mut parts = repair::take(&ours).unwrap();
        let rcv_nxt = parts.rcv_nxt;
        let window = &mut parts.window;
        (window.rcv_wup, window.rcv_wnd) = (rcv_nxt, 0);
        window.snd_wl1 = rcv_nxt.wrapping_add(2_896);
        assert_eq!(repair::put_back(&ours, &parts).unwrap(), 0);
        let again = move_out_and_in(&ours);
        assert_eq!(again.window.snd_wl1, rcv_nxt);
        let sent = bytes(100_000, 2);
        std::thread::scope(|scope| {
            scope.spawn(|| (&peer).write_all(&sent).unwrap());
            assert!(read(&ours, sent.len()) == sent, "other bytes came");
        });
    });
}

/// The peer has our FIN already: the one sent again by coming back is a duplicate to it.
#[test]
fn a_closed_half_stays_closed() {
    in_namespace(|| {
        let (ours, peer) = connection("127.0.0.1:0");
        (&ours).write_all(b"last words").unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        // This acknowledges the FIN.
        (&peer).write_all(b"the other half ").unwrap();
        let parts = move_out_and_in(&ours);
        assert_eq!(parts.state, state::FIN_WAIT2);
        assert!(parts.closed() && !parts.peer_closed());
        let mut said = String::new();
        (&peer).read_to_string(&mut said).unwrap();
        assert_eq!(said, "last words");
        (&peer).write_all(b"is open").unwrap();
        drop(peer);
        said.clear();
        (&ours).read_to_string(&mut said).unwrap();
        assert_eq!(said, "the other half is open");
    });
}

#[test]
fn the_peers_end_is_told_and_its_bytes_are_kept() {
    in_namespace(|| {
        let (ours, peer) = connection("127.0.0.1:0");
        (&peer).write_all(b"bye").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        // This acknowledges the FIN: it will not come again.
        (&ours).write_all(b"!").unwrap();
        let parts = repair::take(&ours).unwrap();
        assert_eq!(parts.state, state::CLOSE_WAIT);
        assert!(parts.peer_closed() && !parts.closed());
        assert_eq!(parts.recv_queue, b"bye");
        repair::put_back(&ours, &parts).unwrap();
        // As no FIN is given to the kernel here, this end is as it was before the FIN.
        assert_eq!(read(&ours, 3), b"bye");
        let again = repair::take(&ours).unwrap();
        assert_eq!(again.state, state::ESTABLISHED);
        assert_eq!(again.rcv_nxt, parts.rcv_nxt.wrapping_sub(1));
    });
}

#[test]
fn what_cannot_be_taken_is_left_as_it_was() {
    in_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(repair::take(&listener).unwrap_err().kind(), ErrorKind::NotConnected);

        let (ours, peer) = connection("127.0.0.1:0");
        (&peer).write_all(b"before").unwrap();
        assert_eq!(send_urgent(&peer, b'!'), 1);
        (&peer).write_all(b"after").unwrap();
        let refused = repair::take(&ours).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
        assert_eq!(read(&ours, 11), b"beforeafter");
        (&ours).write_all(b"alive").unwrap();
        assert_eq!(read(&peer, 5), b"alive");

        let mut parts = repair::take(&ours).unwrap();
        parts.unacknowledged += 1;
        assert_eq!(repair::put_back(&ours, &parts).unwrap_err().kind(), ErrorKind::InvalidInput);
        parts.unacknowledged -= 1;
        let (window, garbled) =
            (parts.window, repair::Window { rcv_wup: parts.rcv_nxt + 1, ..parts.window });
        parts.window = garbled;
        assert_eq!(repair::put_back(&ours, &parts).unwrap_err().kind(), ErrorKind::InvalidInput);
        parts.window = window;
        repair::put_back(&ours, &parts).unwrap();
        (&ours).write_all(b"still").unwrap();
        assert_eq!(read(&peer, 5), b"still");
    });
}

/// Bytes that come while the kernel is asked how many there are make no urgent data of those before them.
/// It could not be put back.
#[test]
fn one_whose_port_may_not_be_bound_is_left_as_it_was() {
    in_namespace(|| {
        let (far, near) = connection("127.0.0.1:80");
        let with = |kept: &[u32]| {
            let work = || {
                capability::keep_only(kept).unwrap();
                match repair::take(&far) {
                    Ok(parts) => repair::put_back(&far, &parts).map_err(|error| error.kind()),
                    Err(error) => Err(error.kind()),
                }
            };
            std::thread::scope(|scope| scope.spawn(work).join()).unwrap()
        };
        assert_eq!(with(&[NET_ADMIN]), Err(ErrorKind::AddrNotAvailable));
        (&far).write_all(b"there").unwrap();
        assert_eq!(read(&near, 5), b"there");
        assert_eq!(with(&[NET_ADMIN, NET_BIND_SERVICE]), Ok(0));
        (&near).write_all(b"back").unwrap();
        assert_eq!(read(&far, 4), b"back");
    });
}

#[test]
fn what_receives_meanwhile_is_read_again() {
    const BYTES: usize = 20_000;
    in_namespace(|| {
        let (mut ours, mut peer) = connection("127.0.0.1:0");
        peer.set_nodelay(true).unwrap();
        std::thread::scope(|scope| {
            let sender = scope.spawn(move || {
                (0..BYTES).for_each(|_| peer.write_all(b".").unwrap());
                peer
            });
            let mut received = 0;
            while received < BYTES {
                // The connection stays the kernel's.
                let keep = |_| Err::<(), _>(ErrorKind::StorageFull.into());
                let kind = repair::take_once(&ours, keep).unwrap_err().kind();
                assert!(matches!(kind, ErrorKind::StorageFull | ErrorKind::ResourceBusy), "{kind}");
                received += ours.read(&mut [0; 256]).unwrap();
            }
            sender.join().unwrap();
        });
    });
}

/// `send` with `MSG_OOB`, which std has not.
#[allow(unsafe_code)] // no safe function of std or of this crate does it
fn send_urgent(socket: &TcpStream, byte: u8) -> isize {
    // SAFETY: one readable byte.
    unsafe { libc::send(socket.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_OOB) }
}

/// Bytes in the receive queue.
fn readable(socket: &TcpStream) -> bool {
    let ready = sys::poll::poll(&[std::os::fd::AsFd::as_fd(socket)], Some(0)).unwrap();
    ready.contains(0)
}

fn reserve(socket: &TcpStream, parts: &Parts) {
    repair::reserve(socket, (parts.local, parts.remote), parts.reuse_address).unwrap();
}

#[test]
fn a_placeholder_keeps_the_addresses_and_sends_nothing() {
    in_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let (near, far) = (TcpStream::connect(to).unwrap(), listener.accept().unwrap().0);
        for (ours, peer) in [(&near, &far), (&far, &near)] {
            let names = (ours.local_addr().unwrap(), ours.peer_addr().unwrap());
            for round in 0..20_u8 {
                peer.try_clone().unwrap().write_all(&[round; 10]).unwrap();
                let mut parts = repair::take(ours).unwrap();
                reserve(ours, &parts);
                assert_eq!((ours.local_addr().unwrap(), ours.peer_addr().unwrap()), names);
                assert_eq!(ours.take_error().unwrap().map(|error| error.to_string()), None);
                assert!(!readable(ours), "neither data nor an error");
                assert!(!readable(peer), "the peer has been sent something");
                // What is written past wharf's library is not lost.
                parts.send_queue.extend(b"aside");
                parts.write_seq = parts.write_seq.wrapping_add(5);
                (parts.unacknowledged, parts.unsent) = (parts.unacknowledged + 5, parts.unsent + 5);
                assert!(repair::dissolve(ours).unwrap().is_empty());
                assert_eq!(repair::put_back(ours, &parts).unwrap(), 0);
                assert_eq!(read(ours, 10), [round; 10]);
                assert_eq!(read(peer, 5), b"aside");
            }
        }
        let parts = repair::take(&near).unwrap();
        reserve(&near, &parts);
        repair::discard(&near, false).unwrap();
        drop(near);
        far.set_read_timeout(Some(std::time::Duration::from_millis(50))).unwrap();
        let unread = (&far).read(&mut [0; 1]).unwrap_err().kind();
        assert_eq!(unread, ErrorKind::WouldBlock, "it was told of the end");
    });
}

#[test]
fn reuse_of_the_address_stays_as_it_was() {
    in_namespace(|| {
        // The standard library's listeners have SO_REUSEADDR, and what they accept has it from them.
        let (accepted, peer) = connection("127.0.0.1:0");
        let at = accepted.local_addr().unwrap();
        let parts = repair::take(&accepted).unwrap();
        reserve(&accepted, &parts);
        drop(TcpListener::bind(at).expect("as while the connection was there"));
        repair::dissolve(&accepted).unwrap();
        repair::put_back(&accepted, &parts).unwrap();
        drop(TcpListener::bind(at).expect("as before"));
        drop(peer);
    });
}

#[test]
fn a_placeholder_is_told_from_a_connection() {
    in_namespace(|| {
        let (ours, peer) = connection("127.0.0.1:0");
        (&ours).write_all(b"as before").unwrap();
        assert!(!repair::is_placeholder(&ours, true).unwrap());
        // It goes on, out of repair mode.
        (&ours).write_all(b" and on").unwrap();
        assert_eq!(read(&peer, 16), b"as before and on");
        let parts = repair::take(&ours).unwrap();
        reserve(&ours, &parts);
        assert!(repair::is_placeholder(&ours, true).unwrap());
        (&ours).write_all(b"aside").unwrap();
        assert!(repair::is_placeholder(&ours, true).unwrap());
        assert_eq!(repair::dissolve(&ours).unwrap(), b"aside");
        repair::put_back(&ours, &parts).unwrap();
        // Nothing has come since.
        assert!(!repair::is_placeholder(&ours, true).unwrap());
        // A connection has nothing aside, whatever it has sent.
        assert_eq!(repair::dissolve(&ours).unwrap(), b"");
        repair::put_back(&ours, &parts).unwrap();
        (&ours).write_all(b"again").unwrap();
        assert_eq!(read(&peer, 5), b"again");
    });
}

/// `setsockopt` of an int, which std has not for these options.
#[allow(unsafe_code)] // no safe function of std or of this crate does it
fn try_set(socket: &TcpStream, level: i32, option: i32, value: i32) -> std::io::Result<()> {
    // SAFETY: four readable bytes.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), 4)
    };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Nothing answers a placeholder. Here it even gets a reset: the peer's socket is taken out, too.
#[test]
fn a_placeholder_that_the_kernel_has_ended_takes_the_connection_back() {
    in_namespace(|| {
        for by_keepalive in [false, true] {
            let (ours, peer) = connection("127.0.0.1:0");
            if by_keepalive {
                try_set(&ours, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).unwrap();
                try_set(&ours, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 1).unwrap();
            }
            (&ours).write_all(b"before").unwrap();
            let (parts, peers_parts) = (repair::take(&ours).unwrap(), repair::take(&peer).unwrap());
            reserve(&ours, &parts);
            if !by_keepalive {
                (&ours).write_all(b"aside").unwrap();
            }
            while sys::tcp::state(&ours).unwrap() != state::CLOSE {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            assert_eq!(repair::dissolve(&ours).unwrap(), b"", "what was written is lost");
            repair::put_back(&peer, &peers_parts).unwrap();
            repair::put_back(&ours, &parts).unwrap();
            assert_eq!(ours.take_error().unwrap().map(|error| error.to_string()), None);
            (&ours).write_all(b" and after").unwrap();
            assert_eq!(read(&peer, 16), b"before and after");
            (&peer).write_all(b"heard").unwrap();
            assert_eq!(read(&ours, 5), b"heard");
        }
        // A connection that was never taken out is refused as ever.
        let (ours, peer) = connection("127.0.0.1:0");
        let parts = move_out_and_in(&ours);
        assert_eq!(
            repair::put_back(&ours, &parts).unwrap_err().kind(),
            ErrorKind::PermissionDenied
        );
        drop(peer);
    });
}

#[test]
fn peeking_goes_on_where_it_was() {
    in_namespace(|| {
        let (ours, peer) = connection("127.0.0.1:0");
        (&peer).write_all(b"0123456789").unwrap();
        while ours.peek(&mut [0; 16]).unwrap() < 10 {}
        if let Err(error) = try_set(&ours, libc::SOL_SOCKET, libc::SO_PEEK_OFF, 3) {
            // Since Linux 6.9.
            return lacks(error);
        }
        for _ in 0..3 {
            let parts = repair::take(&ours).unwrap();
            assert_eq!(parts.recv_queue, b"0123456789");
            reserve(&ours, &parts);
            repair::take(&ours).unwrap();
            repair::put_back(&ours, &parts).unwrap();
        }
        let mut peeked = [0; 2];
        assert_eq!(ours.peek(&mut peeked).unwrap(), 2);
        assert_eq!(&peeked, b"34");
        assert_eq!(read(&ours, 10), b"0123456789");
    });
}

/// The kernel keeps a connection whose address or route goes away, and so it is with one that is put back meanwhile.
#[test]
fn a_connection_is_put_back_without_its_address_or_a_route() {
    in_namespace(|| {
        let far = Namespace::new().unwrap();
        let far_end = VethEnd { namespace: Some(far.as_fd()), ..VethEnd::new("far0") };
        create_veth(&VethEnd::new("near0"), &far_end).unwrap();
        interface::set_up("near0").unwrap();
        let near = interface::index("near0").unwrap();
        for (ours, theirs, len) in [("10.0.0.1", "10.0.0.2", 24), ("fd00::1", "fd00::2", 64)] {
            let [ours, theirs] = [ours, theirs].map(|ip| ip.parse::<IpAddr>().unwrap());
            let give = || address::add(near, ours, len, true).unwrap();
            give();
            let listener = far.run(|| {
                interface::set_up("far0").unwrap();
                address::add(interface::index("far0").unwrap(), theirs, len, true).unwrap();
                TcpListener::bind((theirs, 0)).unwrap()
            });
            let listener = listener.unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (peer, _) = listener.accept().unwrap();
            let talks = |text: &[u8]| {
                (&socket).write_all(text).unwrap();
                assert_eq!(read(&peer, text.len()), text);
                (&peer).write_all(text).unwrap();
                assert_eq!(read(&socket, text.len()), text);
            };
            talks(b"before");
            let names = (socket.local_addr().unwrap(), socket.peer_addr().unwrap());
            let put_back = |parts: &Parts| {
                repair::put_back(&socket, parts).unwrap();
                assert_eq!((socket.local_addr().unwrap(), socket.peer_addr().unwrap()), names);
            };
            // Without its address, and so without a route.
            let parts = repair::take(&socket).unwrap();
            address::delete(near, ours, len).unwrap();
            put_back(&parts);
            give();
            talks(b"without an address");
            // With a route alone.
            let parts = repair::take(&socket).unwrap();
            address::delete(near, ours, len).unwrap();
            route::add(near, &NewRoute::new(theirs, if len == 24 { 32 } else { 128 }, None))
                .unwrap();
            put_back(&parts);
            give();
            talks(b"with a route");
            // Where somebody has said that there is no way.
            let parts = repair::take(&socket).unwrap();
            for route in route::list(near).unwrap() {
                route::delete(&route).unwrap();
            }
            put_back(&parts);
            assert_eq!(route::list(1).unwrap(), [], "the detour is gone");
            address::delete(near, ours, len).unwrap();
            give();
            talks(b"without a route");
            // Several threads have some there.
            let to = listener.local_addr().unwrap();
            let more: Vec<_> = (0..16).map(|_| TcpStream::connect(to).unwrap()).collect();
            let taken: Vec<_> = more.iter().map(|one| (one, repair::take(one).unwrap())).collect();
            for route in route::list(near).unwrap() {
                route::delete(&route).unwrap();
            }
            std::thread::scope(|scope| {
                for (one, parts) in &taken {
                    scope.spawn(move || repair::put_back(one, parts).unwrap());
                }
            });
            assert_eq!(route::list(1).unwrap(), [], "the detours are gone");
            address::delete(near, ours, len).unwrap();
            give();
            talks(b"with many beside it");
        }
    });
}

/// What a slow pace has made the connection wait for is over: it may go back over a path that is another.
#[test]
fn what_comes_back_does_not_wait_for_the_pace_of_before() {
    in_namespace(|| {
        let (ours, peer) = connection("127.0.0.1:0");
        // The first ten segments are not paced.
        for _ in 0..10 {
            (&ours).write_all(b"a").unwrap();
            read(&peer, 1);
        }
        // A quarter of an hour for these bytes, at one byte a second.
        set_option(&ours, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &1_u32.to_ne_bytes())
            .unwrap();
        (&ours).write_all(&bytes(1000, 1)).unwrap();
        assert_eq!(read(&peer, 1000), bytes(1000, 1));
        move_out_and_in(&ours);
        (&ours).write_all(b"x").unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        assert_eq!(read(&peer, 1), b"x");
    });
}
