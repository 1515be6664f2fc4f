//! What the kernel does to receive for one of the two hosts is not done in the time of the other.

use sys::sysfs::Sysfs;

use super::cores::Cores;
use super::system::{Link, System};
use super::testbed::{NEAR, Testbed};
use crate::Error;
use crate::gso_throughput::receiving_thread;
use crate::link::steer;
use crate::sink::io;

/// Has each host receive on its own CPU, once there is a server.
///
/// # Errors
/// What the kernel says, such as that this process may not mount sysfs.
pub(super) fn receive_apart(testbed: &Testbed, system: System) -> Result<(), Error> {
    let Some(Cores { server, client }) = testbed.cores else { return Ok(()) };
    steer(&testbed.client, NEAR, client)?;
    match (system, testbed.link) {
        // The server reads a TAP's frames itself.
        (_, Link::Tap | Link::TapOffloads) => Ok(()),
        // Without AF_XDP there is nothing that a thread could do.
        (System::Wharf, _) => {
            poll_on(testbed, server).or_else(|_| steer(&testbed.server, &testbed.far, server))
        }
        _ => steer(&testbed.server, &testbed.far, server),
    }
}

/// What feeds AF_XDP is a thread of the kernel on this CPU, and goes before all else, as an interrupt.
fn poll_on(testbed: &Testbed, core: usize) -> Result<(), Error> {
    let name = testbed.far.clone();
    testbed.server.run(move || -> Result<(), Error> {
        let setting = Sysfs::mount()?.setting(&name, "threaded")?;
        setting.set("1").map_err(io("receive in a thread"))?;
        let thread = receiving_thread(&name)?;
        sys::affinity::pin_thread(thread, core).map_err(io("pin the receiving thread"))?;
        sys::process::set_real_time(thread).map_err(io("let the kernel receive first"))
    })?
}
