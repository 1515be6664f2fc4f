//! How packetdrill gets the table of functions.

use crate::interface::{Flags, Interface, User};
use crate::{calls, options, time, world};

/// Fills `interface`. There are no flags.
///
/// # Safety
/// `interface` points to a `struct packetdrill_interface` that is written here and read by the caller
/// afterwards, as packetdrill's so_testing.c does.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn packetdrill_interface_init(
    _flags: Flags,
    interface: *mut Interface,
) {
    world::begin();
    let table = Interface {
        userdata: std::ptr::null_mut(),
        free,
        socket: calls::socket,
        bind: calls::bind,
        listen: calls::listen,
        accept: calls::accept,
        connect: calls::connect,
        read: calls::read,
        readv: calls::readv,
        recv: calls::recv,
        recvfrom: calls::recvfrom,
        recvmsg: calls::recvmsg,
        write: calls::write,
        writev: calls::writev,
        send: calls::send,
        sendto: calls::sendto,
        sendmsg: calls::sendmsg,
        fcntl: options::fcntl,
        ioctl: options::ioctl,
        close: calls::close,
        shutdown: calls::shutdown,
        getsockopt: options::getsockopt,
        setsockopt: options::setsockopt,
        poll: waiting::poll,
        netdev_send: time::netdev_send,
        netdev_receive: time::netdev_receive,
        usleep: time::usleep,
        gettimeofday: time::gettimeofday,
        epoll_create: waiting::epoll_create,
        epoll_ctl: waiting::epoll_ctl,
        epoll_wait: waiting::epoll_wait,
        pipe: calls::pipe,
        splice: calls::splice,
    };
    // SAFETY: the caller promises room for the structure, of which nothing is read here.
    unsafe { interface.write(table) };
}

use crate::waiting;

/// The engine lives as long as the process, which ends next.
extern "C" fn free(_user: User) {}
