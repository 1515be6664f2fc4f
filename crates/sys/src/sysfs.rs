//! Settings of interfaces under `/sys/class/net`, as the calling thread's network namespace has
//! them. What is mounted at `/sys` shows the namespace that it was mounted in; so this mounts a
//! sysfs of its own, in no place where anybody else could see it.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;

use crate::error::check;
use crate::interface::checked;
use crate::{Error, Result};

/// linux/mount.h.
const FSCONFIG_CMD_CREATE: libc::c_uint = 6;

/// Sets an interface's setting, such as `gro_flush_timeout`. Needs `CAP_SYS_ADMIN` and Linux 5.2.
pub fn write(interface: &str, setting: &'static str, value: &str) -> Result<()> {
    let attribute = PathBuf::from("class/net").join(checked(interface)?).join(setting);
    let set = || -> io::Result<()> {
        let sysfs = mount()?;
        // Through /proc, so that it is opened as any file is.
        let root = PathBuf::from(format!("/proc/self/fd/{}", sysfs.as_raw_fd()));
        File::options().write(true).open(root.join(&attribute))?.write_all(value.as_bytes())
    };
    set().map_err(|cause| Error::new(format!("set the {setting} of"), cause).on(interface))
}

/// A sysfs that is mounted nowhere, as long as the descriptor is open.
fn mount() -> io::Result<OwnedFd> {
    const SYSFS: &CStr = c"sysfs";
    // SAFETY: fsopen reads a string that ends in NUL.
    let context = unsafe { libc::syscall(libc::SYS_fsopen, SYSFS.as_ptr(), 1) };
    let context = check(context as libc::c_int)?;
    // SAFETY: the call succeeded, so this is a new descriptor that nothing else owns.
    let context = unsafe { OwnedFd::from_raw_fd(context) };
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: FSCONFIG_CMD_CREATE takes no key and no value.
    let created = unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0)
    };
    check(created as libc::c_int)?;
    // SAFETY: fsmount takes integers. FSMOUNT_CLOEXEC is 1.
    let mount = unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), 1, 0) };
    let mount = check(mount as libc::c_int)?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(mount) })
}
