//! Socket calls as an application makes them: by libc's functions, so that a library in front of libc serves them, and
//! with the error number as it is. For tests that compare what two descriptors do.

mod data;
mod ready;
mod signal;
mod socket;

use std::os::fd::{AsFd, AsRawFd};

pub use data::{
    Message, read, readv, receive, receive_from, receive_message, receive_messages, send,
    send_file, send_message, send_messages, send_to, splice, write, writev,
};
pub use ready::{Call, Event, Set, poll};
pub use signal::{Signals, Task, count, counted};
pub use socket::{
    accept, accept_past, bind, close, connect, connect_past, disconnect, dup, dup_from, dup_onto,
    dup_onto_for_exec, fcntl, ioctl, listen, option, peer_name, set_ioctl, set_option, shutdown,
    socket, socket_name,
};

/// What a call gives: a number that is not negative, or the error of errno(3).
pub type Answer<T = usize> = Result<T, i32>;

fn fd(of: impl AsFd) -> libc::c_int {
    of.as_fd().as_raw_fd()
}

fn answer(result: impl TryInto<isize>) -> Answer {
    let result: isize = result.try_into().unwrap_or(-1);
    usize::try_from(result).map_err(|_| error())
}

fn error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn both() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_go_by_every_call() {
        let (near, far) = both();
        let pieces = [IoSlice::new(b"ab"), IoSlice::new(b"c")];
        assert_eq!(write(&near, b"abc"), Ok(3));
        assert_eq!(writev(&near, &pieces), Ok(3));
        assert_eq!(send(&near, b"abc", libc::MSG_NOSIGNAL), Ok(3));
        assert_eq!(send_message(&near, &pieces, 0), Ok(3));
        assert_eq!(send_messages(&near, &pieces, 0), Ok(vec![2, 1]));
        let mut into = [0; 15];
        assert_eq!(receive(&far, &mut into, libc::MSG_WAITALL | libc::MSG_PEEK), Ok(15));
        assert_eq!(&into, b"abcabcabcabcabc");
        assert_eq!(ioctl(&far, libc::FIONREAD), Ok(15));
        let (mut a, mut b) = ([0; 4], [0; 5]);
        let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        let message = receive_message(&far, &mut parts, 0, true).unwrap();
        assert_eq!((message.len, message.name_len, message.control_len), (9, 0, 0));
        assert_eq!((&a, &b), (b"abca", b"bcabc"));
        assert_eq!(receive_from(&far, &mut into, 0), Ok((6, 0)));
        assert_eq!(receive(&far, &mut into, libc::MSG_DONTWAIT), Err(libc::EAGAIN));
    }

    #[test]
    fn what_is_ready_is_told_by_every_call() {
        let (near, far) = both();
        assert_eq!(send(&near, b"x", 0), Ok(1));
        let fds = [(far.as_fd(), libc::POLLIN | libc::POLLOUT)];
        for call in [Call::Poll, Call::Ppoll, Call::Select, Call::Pselect] {
            let (_, found) = poll(&fds, -1, call).unwrap();
            assert_eq!(found, [libc::POLLIN | libc::POLLOUT], "{call:?}");
        }
        let set = Set::new().unwrap();
        let event = Event { data: 7, events: (libc::EPOLLIN | libc::EPOLLET) as u32 };
        assert_eq!(set.control(libc::EPOLL_CTL_ADD, &far, event), Ok(0));
        assert_eq!(set.wait(3, -1), Ok(vec![Event { data: 7, events: libc::EPOLLIN as u32 }]));
        assert_eq!(set.wait(3, 0), Ok(Vec::new()));
        assert_eq!(set.control(libc::EPOLL_CTL_ADD, &far, event), Err(libc::EEXIST));
    }

    #[test]
    fn a_signal_interrupts_a_thread() {
        count(Signals::User, false).unwrap();
        let (_near, far) = both();
        let (tell, told) = std::sync::mpsc::channel();
        let waits = std::thread::spawn(move || {
            tell.send(Task::own()).unwrap();
            receive(&far, &mut [0; 1], 0)
        });
        let thread = told.recv().unwrap();
        while !waits.is_finished() {
            let sent = thread.interrupt(Signals::User);
            assert!(matches!(sent, Ok(0) | Err(libc::ESRCH)), "{sent:?}");
            std::thread::yield_now();
        }
        assert_eq!(waits.join().unwrap(), Err(libc::EINTR));
        assert!(counted(Signals::User) > 0);
    }
}
