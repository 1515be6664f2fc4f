//! What is a device's own.

/// The device's EUI-64, locally administered: the same for all processes of a user.
pub(crate) fn guid() -> u64 {
    0x0277_6861_7266_0000 | u64::from(sys::process::uid() as u16)
}
