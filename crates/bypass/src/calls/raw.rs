//! syscall(2): programs and libraries that make system calls by their numbers, such as libuv, which closes so.

use libc::{c_int, c_long, c_uint, c_ulong, c_void, size_t, socklen_t};

use super::{
    children, data, epoll, files, messages, options, poll, process, select, sockets, transfer,
};
use crate::os;
use crate::trap;

/// What the sixth word of pselect6(2) points to.
#[repr(C)]
struct Mask {
    set: *const libc::sigset_t,
    len: size_t,
}

/// # Safety
/// As syscall(2) of libc, whose words come in the registers of integers, and the last on the stack.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let fd = a as c_int;
    let (second, third, fourth) = (b as c_int, c as c_int, d as c_int);
    // SAFETY: the program's call: words are what the system call of this number takes.
    unsafe {
        match number {
            libc::SYS_read => data::read(fd, b as *mut c_void, c as size_t) as c_long,
            libc::SYS_write => data::write(fd, b as *const c_void, c as size_t) as c_long,
            libc::SYS_readv => data::readv(fd, b as *const libc::iovec, third) as c_long,
            libc::SYS_writev => data::writev(fd, b as *const libc::iovec, third) as c_long,
            // The place is in two words where a word is half as long.
            #[cfg(target_pointer_width = "64")]
            libc::SYS_preadv2 => {
                data::preadv2(fd, b as *const libc::iovec, third, d, f as c_int) as c_long
            }
            #[cfg(target_pointer_width = "64")]
            libc::SYS_pwritev2 => {
                data::pwritev2(fd, b as *const libc::iovec, third, d, f as c_int) as c_long
            }
            libc::SYS_recvfrom => {
                let name = e as *mut libc::sockaddr;
                let len = f as *mut socklen_t;
                data::recvfrom(fd, b as *mut c_void, c as size_t, fourth, name, len) as c_long
            }
            libc::SYS_sendto => {
                let name = e as *const libc::sockaddr;
                let len = f as socklen_t;
                data::sendto(fd, b as *const c_void, c as size_t, fourth, name, len) as c_long
            }
            libc::SYS_recvmsg => messages::recvmsg(fd, b as *mut libc::msghdr, third) as c_long,
            libc::SYS_sendmsg => messages::sendmsg(fd, b as *const libc::msghdr, third) as c_long,
            libc::SYS_recvmmsg => {
                let time = e as *mut libc::timespec;
                messages::recvmmsg(fd, b as *mut libc::mmsghdr, c as c_uint, fourth, time).into()
            }
            libc::SYS_sendmmsg => {
                messages::sendmmsg(fd, b as *mut libc::mmsghdr, c as c_uint, fourth).into()
            }
            libc::SYS_close => files::close(fd).into(),
            libc::SYS_close_range => files::close_range(a as c_uint, b as c_uint, third).into(),
            libc::SYS_dup => files::dup(fd).into(),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => files::dup2(fd, second).into(),
            libc::SYS_dup3 => files::dup3(fd, second, third).into(),
            libc::SYS_fcntl => files::fcntl(fd, second, c as c_ulong).into(),
            libc::SYS_ioctl => files::ioctl(fd, b as c_ulong, c as *mut c_void).into(),
            libc::SYS_sendfile => {
                transfer::sendfile(fd, second, c as *mut libc::off_t, d as size_t) as c_long
            }
            libc::SYS_splice => {
                let (from, to) = (b as *mut libc::off64_t, d as *mut libc::off64_t);
                transfer::splice(fd, from, third, to, e as size_t, f as c_uint) as c_long
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => poll::poll(a as *mut libc::pollfd, b as libc::nfds_t, third).into(),
            libc::SYS_ppoll => {
                let (time, mask) = (c as *const libc::timespec, d as *const libc::sigset_t);
                poll::ppoll(a as *mut libc::pollfd, b as libc::nfds_t, time, mask).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                let [b, c, d] = [b, c, d].map(|set| set as *mut libc::fd_set);
                select::select(fd, b, c, d, e as *mut libc::timeval).into()
            }
            libc::SYS_pselect6 => {
                let [b, c, d] = [b, c, d].map(|set| set as *mut libc::fd_set);
                let mask = (f as *const Mask).as_ref().map_or(std::ptr::null(), |mask| mask.set);
                select::pselect(fd, b, c, d, e as *const libc::timespec, mask).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_create => epoll::epoll_create(fd).into(),
            libc::SYS_epoll_create1 => epoll::epoll_create1(fd).into(),
            libc::SYS_epoll_ctl => {
                epoll::epoll_ctl(fd, second, third, d as *mut libc::epoll_event).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => {
                epoll::epoll_wait(fd, b as *mut libc::epoll_event, third, fourth).into()
            }
            libc::SYS_epoll_pwait => {
                let mask = e as *const libc::sigset_t;
                epoll::epoll_pwait(fd, b as *mut libc::epoll_event, third, fourth, mask).into()
            }
            libc::SYS_epoll_pwait2 => {
                let (time, mask) = (d as *const libc::timespec, e as *const libc::sigset_t);
                epoll::epoll_pwait2(fd, b as *mut libc::epoll_event, third, time, mask).into()
            }
            libc::SYS_accept => {
                sockets::accept(fd, b as *mut libc::sockaddr, c as *mut socklen_t).into()
            }
            libc::SYS_accept4 => {
                sockets::accept4(fd, b as *mut libc::sockaddr, c as *mut socklen_t, fourth).into()
            }
            libc::SYS_connect => {
                sockets::connect(fd, b as *const libc::sockaddr, c as socklen_t).into()
            }
            libc::SYS_shutdown => sockets::shutdown(fd, second).into(),
            libc::SYS_getsockopt => {
                options::getsockopt(fd, second, third, d as *mut c_void, e as *mut socklen_t).into()
            }
            libc::SYS_setsockopt => {
                options::setsockopt(fd, second, third, d as *const c_void, e as socklen_t).into()
            }
            libc::SYS_execve => {
                let (path, arguments, environment) = (a as *const _, b as *const _, c as *const _);
                process::execve(path, arguments, environment).into()
            }
            libc::SYS_execveat => {
                let (path, arguments, environment) = (b as *const _, c as *const _, d as *const _);
                process::execveat(fd, path, arguments, environment, e as c_int).into()
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => children::fork_by_number(),
            libc::SYS_clone => children::clone_by_number([a, b, c, d, e, f]),
            libc::SYS_clone3 => children::clone3_by_number([a, b, c, d, e, f]),
            // Its calls would come past this library.
            libc::SYS_io_uring_setup => os::fail(libc::ENOSYS) as c_long,
            _ => trap::call(number, [a, b, c, d, e, f]),
        }
    }
}
