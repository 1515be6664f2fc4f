//! Functions of the layer's own, for programs that know of it: wharf's RDMA device does.

use libc::c_int;

use crate::connection;
use crate::os;

/// The connection of this descriptor is to go to the NIC now, as by the policy `at_accept`, and again whenever that would
/// have it go after it has come back: the program has done what it wanted done at the kernel. 0, or -1 and `ENOTCONN` for
/// what is no connection that the layer looks at.
#[unsafe(no_mangle)]
pub extern "C" fn wharf_hand_off(fd: c_int) -> c_int {
    let Some(connection) = connection::at(fd) else { return os::fail(libc::ENOTCONN) as c_int };
    let errno = os::errno();
    connection.is_to_go();
    os::set_errno(errno);
    0
}

/// Whether the connection of this descriptor is not at the kernel: its bytes are read and written in memory. It is 0 or 1.
#[unsafe(no_mangle)]
pub extern "C" fn wharf_is_handed_off(fd: c_int) -> c_int {
    connection::at(fd).is_some_and(connection::Connection::is_away).into()
}
