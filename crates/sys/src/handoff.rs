//! The layer that `wharf run` loads into a program (`libwharf.so`), as a program that knows of it asks it to hand a
//! connection off to a NIC.

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use libc::{c_int, iovec, size_t, ssize_t};

/// A function of the layer's that takes a descriptor.
type Function = extern "C" fn(c_int) -> c_int;

type Taker = unsafe extern "C" fn(*mut c_void, *const iovec);
type Receive = unsafe extern "C" fn(c_int, size_t, Taker, *mut c_void) -> ssize_t;
type Writer = unsafe extern "C" fn(*mut c_void, *const iovec) -> size_t;
type Transmit = unsafe extern "C" fn(c_int, size_t, Writer, Taker, *mut c_void) -> ssize_t;

/// What the layer has for such programs.
#[derive(Clone, Copy)]
struct Layer {
    hand_off: Function,
    is_handed_off: Function,
    receive: Receive,
    transmit: Transmit,
}

fn layer() -> Option<Layer> {
    static FOUND: OnceLock<Option<Layer>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let of = |name| {
            // SAFETY: the layer's functions of these names have this type, for which null is none, and stay loaded.
            unsafe { std::mem::transmute::<*mut c_void, Option<Function>>(address(name)) }
        };
        // SAFETY: the same.
        let receive = unsafe {
            std::mem::transmute::<*mut c_void, Option<Receive>>(address(c"wharf_receive"))
        };
        // SAFETY: the same.
        let transmit = unsafe {
            std::mem::transmute::<*mut c_void, Option<Transmit>>(address(c"wharf_transmit"))
        };
        Some(Layer {
            hand_off: of(c"wharf_hand_off")?,
            is_handed_off: of(c"wharf_is_handed_off")?,
            receive: receive?,
            transmit: transmit?,
        })
    })
}

fn address(name: &CStr) -> *mut c_void {
    // SAFETY: the name ends with a NUL.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Whether the layer is loaded into this process.
pub fn is_loaded() -> bool {
    layer().is_some()
}

/// Has the connection of this descriptor go to the NIC, and again when it may after it has come back. Returns whether the
/// layer knows of the connection; the NIC may refuse it all the same.
pub fn hand_off(connection: impl AsFd) -> bool {
    layer().is_some_and(|layer| (layer.hand_off)(connection.as_fd().as_raw_fd()) == 0)
}

/// Whether the connection of this descriptor is at the NIC, or on its way there or back.
pub fn is_handed_off(connection: impl AsFd) -> bool {
    layer().is_some_and(|layer| (layer.is_handed_off)(connection.as_fd().as_raw_fd()) == 1)
}

/// Shows at most so many received bytes of this connection where the NIC has put them, in two parts, to `take`, which takes all
/// of them. Returns how many; 0 at the end of the stream. Nothing is waited for. `take` makes no call on the connection.
///
/// # Errors
/// `WouldBlock` if there is nothing, `NotConnected` if the kernel has the connection, and what recv(2) says.
pub fn receive<F: FnMut([&[u8]; 2])>(
    connection: impl AsFd,
    most: usize,
    mut take: F,
) -> io::Result<usize> {
    unsafe extern "C" fn taker<F: FnMut([&[u8]; 2])>(context: *mut c_void, parts: *const iovec) {
        // SAFETY: `context` is that of the one call below, which is not over.
        let take = unsafe { &mut *context.cast::<F>() };
        // SAFETY: the layer shows two parts, which are readable and stay what they are until this returns.
        take(unsafe { shown(parts) });
    }
    let layer = layer().ok_or(io::ErrorKind::NotConnected)?;
    let (fd, context) = (connection.as_fd().as_raw_fd(), (&raw mut take).cast());
    // SAFETY: the function may be called with `take`, which outlives the call.
    let received = unsafe { (layer.receive)(fd, most, taker::<F>, context) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Has `lay` write at most so many bytes of this connection where the NIC sends them from, in two parts of which it fills the
/// first before the second, and say how many. Returns how many of them are sent: all, or none if the connection has gone back
/// to the kernel meanwhile, which is an error, and then `keep` is shown them. Nothing is waited for. Neither makes a call on the
/// connection.
///
/// # Errors
/// `WouldBlock` if there is no room, `NotConnected` if the kernel has the connection, and what send(2) says.
pub fn transmit<L, K>(
    connection: impl AsFd,
    most: usize,
    mut lay: L,
    mut keep: K,
) -> io::Result<usize>
where
    L: FnMut([&mut [u8]; 2]) -> usize,
    K: FnMut([&[u8]; 2]),
{
    unsafe extern "C" fn writer<L, K>(context: *mut c_void, parts: *const iovec) -> size_t
    where
        L: FnMut([&mut [u8]; 2]) -> usize,
    {
        // SAFETY: `context` is that of the one call below, which is not over.
        let (lay, _) = unsafe { &mut *context.cast::<(&mut L, &mut K)>() };
        // SAFETY: the layer shows two parts that are nobody else's until this returns.
        lay(unsafe { free(parts) })
    }
    unsafe extern "C" fn keeper<L, K: FnMut([&[u8]; 2])>(
        context: *mut c_void,
        parts: *const iovec,
    ) {
        // SAFETY: the same.
        let (_, keep) = unsafe { &mut *context.cast::<(&mut L, &mut K)>() };
        // SAFETY: the layer shows two parts, which are readable and stay what they are until this returns.
        keep(unsafe { shown(parts) });
    }
    let layer = layer().ok_or(io::ErrorKind::NotConnected)?;
    let mut both = (&mut lay, &mut keep);
    let (fd, context) = (connection.as_fd().as_raw_fd(), (&raw mut both).cast());
    // SAFETY: the functions may be called with `both`, which outlives the call.
    let sent = unsafe { (layer.transmit)(fd, most, writer::<L, K>, keeper::<L, K>, context) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Two parts as slices.
///
/// # Safety
/// The pointer is to two parts, which are readable and do not change as long as the result is used.
unsafe fn shown<'a>(parts: *const iovec) -> [&'a [u8]; 2] {
    // SAFETY: the caller's promise.
    let parts = unsafe { &*parts.cast::<[iovec; 2]>() };
    parts.map(|part| match part.iov_len {
        0 => &[][..],
        // SAFETY: the same.
        len => unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), len) },
    })
}

/// The same to be written.
///
/// # Safety
/// The pointer is to two parts, which are readable and writable, and which nobody else reads or writes as long as the result is
/// used.
unsafe fn free<'a>(parts: *const iovec) -> [&'a mut [u8]; 2] {
    // SAFETY: the caller's promise.
    let parts = unsafe { &*parts.cast::<[iovec; 2]>() };
    parts.map(|part| match part.iov_len {
        0 => &mut [][..],
        // SAFETY: the same; the parts do not overlap.
        len => unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), len) },
    })
}
