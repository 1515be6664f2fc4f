//! The layer that `wharf run` loads into a program (`libwharf.so`), as a program that knows of it asks it to hand a
//! connection off to a NIC.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

use libc::c_int;

/// A function of the layer's that takes a descriptor.
type Function = extern "C" fn(c_int) -> c_int;

/// What the layer has for such programs.
#[derive(Clone, Copy)]
struct Layer {
    hand_off: Function,
    is_handed_off: Function,
}

fn layer() -> Option<Layer> {
    static FOUND: OnceLock<Option<Layer>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        Some(Layer {
            hand_off: function(c"wharf_hand_off")?,
            is_handed_off: function(c"wharf_is_handed_off")?,
        })
    })
}

fn function(name: &CStr) -> Option<Function> {
    // SAFETY: the name ends with a NUL.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    // SAFETY: the layer's functions of these names have this type, for which null is none, and stay loaded.
    unsafe { std::mem::transmute::<*mut libc::c_void, Option<Function>>(address) }
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
