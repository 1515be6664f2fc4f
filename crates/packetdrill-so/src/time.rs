//! The clock and the wire.

use std::ffi::{c_int, c_longlong, c_uint, c_void};

use libc::timeval;

use crate::interface::User;
use crate::memory::{bytes, put};
use crate::world::{self, LONGEST_WAIT, Nanos};

/// The virtual time at which everything begins: 2001-09-09, so that no time is 0.
const EPOCH: Nanos = 1_000_000_000_000_000_000;

/// packetdrill spins on the clock for the last moments before an event: looking at it takes time.
const A_LOOK: Nanos = 1000;

pub(crate) extern "C" fn usleep(_: User, microseconds: c_uint) -> c_int {
    let Some(world) = world::get() else { return -1 };
    let inside = world.lock();
    let until = inside.host.now() + Nanos::from(microseconds) * 1000;
    drop(world.advance(inside, until));
    0
}

pub(crate) unsafe extern "C" fn gettimeofday(
    _: User,
    into: *mut timeval,
    _zone: *mut c_void,
) -> c_int {
    let Some(world) = world::get() else { return -1 };
    let mut inside = world.lock();
    if !world.leave(&mut inside) {
        let until = inside.host.now() + A_LOOK;
        inside = world.advance(inside, until);
    }
    let now = EPOCH + inside.host.now();
    let time = timeval {
        tv_sec: (now / 1_000_000_000) as libc::time_t,
        tv_usec: (now % 1_000_000_000 / 1000) as libc::suseconds_t,
    };
    // SAFETY: packetdrill passes the address of a timeval.
    unsafe { into.write(time) };
    0
}

pub(crate) unsafe extern "C" fn netdev_send(_: User, packet: *const c_void, len: usize) -> c_int {
    let Some(world) = world::get() else { return -1 };
    // SAFETY: packetdrill passes a packet of `len` bytes.
    let packet = unsafe { bytes(packet, len) };
    let mut inside = world.lock();
    // What no connection could see is lost, as on a wire.
    let _ = inside.host.deliver(packet);
    world.go_on(&mut inside);
    0
}

/// Waits for the next packet. None at all in a long time is a packet of no bytes, which packetdrill
/// refuses: it would wait for ever otherwise.
pub(crate) unsafe extern "C" fn netdev_receive(
    _: User,
    into: *mut c_void,
    len: *mut usize,
    time: *mut c_longlong,
) -> c_int {
    let Some(world) = world::get() else { return -1 };
    let mut inside = world.lock();
    let until = inside.host.now() + LONGEST_WAIT;
    loop {
        if let Some(sent) = inside.host.next_packet() {
            // SAFETY: packetdrill passes the room that it has, and where the time goes.
            unsafe {
                *len = put(into, *len, &sent.packet);
                *time = ((EPOCH + sent.at) / 1000) as c_longlong;
            }
            return 0;
        }
        if inside.host.now() >= until {
            // SAFETY: as above.
            unsafe { *len = 0 };
            return 0;
        }
        inside = world.step(inside, until);
    }
}
