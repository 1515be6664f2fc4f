//! A process that may have no more descriptors. It is alone in this program, as the bound is the process's.
// It is set by a call that nothing else here makes.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;

use sys::packets::PacketSocket;

#[test]
fn a_message_is_received_without_descriptors_that_have_no_room() {
    let (near, far) = PacketSocket::pair().unwrap();
    let (reader, writer) = io::pipe().unwrap();
    let mut into = [0; 8];
    let mut all = Vec::new();
    near.send(b"one", &[writer.as_fd()]).unwrap();
    near.send(b"two", &[writer.as_fd()]).unwrap();
    drop(writer);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is one rlimit that the kernel writes, and then reads.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_cur.min(64);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    while let Ok(another) = reader.as_fd().try_clone_to_owned() {
        all.push(another);
    }
    assert_eq!(far.receive(&mut into).unwrap_err().kind(), io::ErrorKind::InvalidData);
    let received = far.receive_or_leave(&mut into).unwrap();
    assert_eq!((&into[..received.len], received.descriptors.len()), (&b"two"[..], 0));
    drop(all);
    assert_eq!(io::read_to_string(reader).unwrap(), "", "nobody has the other end");
}
