//! poll and epoll.

use std::ffi::c_int;

use libc::{epoll_event, nfds_t};
use packetdrill::sockets::{Call, EpollEvent, Errno, Operation, Outcome, PollFd as Asked};

use crate::calls::at_once;
use crate::interface::{PollFd, User};
use crate::memory::answer;
use crate::world::{self, Nanos, World};

/// When a timeout in milliseconds is over; `None` for never.
fn deadline(world: &World, timeout: c_int) -> Option<Nanos> {
    let timeout = Nanos::try_from(timeout).ok()?;
    Some(world.lock().host.now() + timeout * 1_000_000)
}

pub(crate) unsafe extern "C" fn poll(
    _: User,
    fds: *mut PollFd,
    count: nfds_t,
    timeout: c_int,
) -> c_int {
    // SAFETY: packetdrill passes `count` descriptors, as poll() asks.
    let fds = unsafe { std::slice::from_raw_parts_mut(fds, count as usize) };
    let result = world::get().ok_or(Errno(libc::ENOSYS)).and_then(|world| {
        let ask = |fd: &PollFd| {
            let inner = world.lock().fd(fd.fd).unwrap_or(fd.fd);
            Asked { fd: inner, events: fd.events, revents: 0 }
        };
        let asked = fds.iter().map(ask).collect();
        let outcome = world.call(Call::Poll { fds: asked, until: deadline(world, timeout) })?;
        if let Outcome::Polled(answers) = &outcome {
            for (fd, answer) in fds.iter_mut().zip(answers) {
                fd.revents = answer.revents;
            }
        }
        Ok(outcome.value())
    });
    answer(result) as c_int
}

pub(crate) extern "C" fn epoll_create(_: User, _size: c_int) -> c_int {
    let make = |world: &World| {
        let mut inside = world.lock();
        let fd = inside.host.epoll_create();
        inside.publish(fd).map(i64::from)
    };
    answer(world::get().ok_or(Errno(libc::ENOSYS)).and_then(make)) as c_int
}

pub(crate) unsafe extern "C" fn epoll_ctl(
    _: User,
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let wanted = if event.is_null() {
        EpollEvent::default()
    } else {
        // SAFETY: packetdrill passes null or an event, as epoll_ctl() asks.
        let event = unsafe { event.read() };
        EpollEvent { events: event.events, data: event.u64 }
    };
    let operation = match operation {
        libc::EPOLL_CTL_ADD => Ok(Operation::Add),
        libc::EPOLL_CTL_MOD => Ok(Operation::Modify),
        libc::EPOLL_CTL_DEL => Ok(Operation::Delete),
        _ => Err(Errno(libc::EINVAL)),
    };
    let result = operation.and_then(|operation| {
        let fd = at_once(fd, |_, fd| Ok(fd))?;
        at_once(epoll, |host, epoll| host.epoll_control(epoll, operation, fd, wanted))
    });
    answer(result.map(|()| 0)) as c_int
}

pub(crate) unsafe extern "C" fn epoll_wait(
    _: User,
    epoll: c_int,
    into: *mut epoll_event,
    most: c_int,
    timeout: c_int,
) -> c_int {
    let result = world::get().ok_or(Errno(libc::ENOSYS)).and_then(|world| {
        let fd = world.lock().fd(epoll)?;
        let most = usize::try_from(most).map_err(|_| Errno(libc::EINVAL))?;
        let until = deadline(world, timeout);
        let outcome = world.call(Call::EpollWait { fd, most, until })?;
        if let Outcome::Events(events) = &outcome {
            for (at, event) in events.iter().enumerate() {
                let event = epoll_event { events: event.events, u64: event.data };
                // SAFETY: packetdrill passes room for `most` events, and there are not more than that.
                unsafe { into.add(at).write(event) };
            }
        }
        Ok(outcome.value())
    });
    answer(result) as c_int
}
