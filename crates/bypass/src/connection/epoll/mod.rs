//! Connections in epoll sets (epoll(7)). Those at the kernel are the kernel's; those at the NIC are the layer's, with
//! the same meaning of level, edge and one shot. A connection changes hands when it is offered, and when it comes back.

mod control;
mod found;
mod links;
mod private;
mod processes;
mod set;
mod slot;
mod unseen;
mod wait;
mod waiters;
mod wake;

pub(crate) use self::control::{changed, control, from_kernel, nest, nest_all, offered, to_kernel};
pub(crate) use self::private::has_private;
pub(crate) use self::processes::{before_exec, before_fork, closed_by_exec, fork_failed, in_child};
pub(crate) use self::set::{Set, at, closed, insert, keep_up, listed, of};
pub(crate) use self::slot::Slots;
pub(crate) use self::unseen::{are_any_unseen, making};
pub(crate) use self::wait::{Kernel, Limit, dispatch_all, poll_events, wait};

const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
const ONESHOT: u32 = libc::EPOLLONESHOT as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const IN: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const OUT: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const RDHUP: u32 = libc::EPOLLRDHUP as u32;
const ERR: u32 = libc::EPOLLERR as u32;
const HUP: u32 = libc::EPOLLHUP as u32;
