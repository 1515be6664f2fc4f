//! Programs that do something with a socket while it is in repair mode.

use super::*;

/// Has the kernel listen at a socket, as its program may at any time.
fn listen(socket: &TcpStream) -> std::io::Result<TcpListener> {
    sys::tcp::listen(socket.as_fd().try_clone_to_owned().unwrap(), 1)
}

/// A socket that listens cannot leave repair mode.
#[test]
fn a_socket_whose_program_listens_meanwhile_leaves_repair_mode_all_the_same() {
    in_namespace(|| {
        let (ours, _peer) = connection("127.0.0.1:0");
        assert!(!repair::release(&ours, true).unwrap(), "a connection like any other");
        assert!(ours.peer_addr().is_ok());
        let parts = repair::take(&ours).unwrap();
        assert!(repair::is_repaired(&ours).unwrap());
        listen(&ours).unwrap();
        assert_eq!(
            repair::put_back(&ours, &parts).unwrap_err().kind(),
            ErrorKind::PermissionDenied
        );
        listen(&ours).unwrap();
        assert!(repair::release(&ours, true).unwrap());
        assert!(!repair::is_repaired(&ours).unwrap());
        assert_eq!(sys::tcp::state(&ours).unwrap(), state::CLOSE);
        // It listens now, and is discarded all the same.
        listen(&ours).unwrap();
        repair::discard(&ours, true).unwrap();
        assert_eq!(sys::tcp::state(&ours).unwrap(), state::CLOSE);
    });
}

/// Its program tries to come in between at any instant.
#[test]
fn a_program_that_listens_again_and_again_keeps_no_socket_in_repair_mode() {
    in_namespace(|| {
        for _ in 0..20 {
            let (ours, _peer) = connection("127.0.0.1:0");
            repair::take(&ours).unwrap();
            let is_over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let _ = listen(&ours);
                    }
                });
                // That it listens when that is over is no harm.
                let _ = repair::release(&ours, true);
                assert!(!repair::is_repaired(&ours).unwrap());
                is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            assert!(!repair::is_repaired(&ours).unwrap());
        }
    });
}

/// With an unprivileged program's means a socket in repair mode is connected to anybody.
#[test]
fn what_a_program_connects_in_repair_mode_is_undone() {
    in_namespace(|| {
        let (ours, _peer) = connection("127.0.0.1:0");
        let at = ours.local_addr().unwrap();
        repair::take(&ours).unwrap();
        let nobody: SocketAddr = "127.0.0.1:9".parse().unwrap();
        repair::put_back_paused(&ours, &Parts { remote: nobody, ..closed(at) }).unwrap();
        assert_eq!(ours.peer_addr().unwrap(), nobody);
        assert!(repair::release(&ours, true).unwrap());
        assert!(ours.peer_addr().is_err());
        assert!(!repair::is_repaired(&ours).unwrap());
    });
}

/// A connection without bytes.
fn closed(local: SocketAddr) -> Parts {
    let other = connection("127.0.0.1:0").0;
    let parts = repair::take(&other).unwrap();
    repair::release(&other, false).unwrap();
    Parts { local, ..parts }
}
