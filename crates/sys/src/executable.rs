//! What the kernel does with a program's file when it is executed.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::check;

/// Rights that a process gains by executing a file. The dynamic linker then leaves `LD_PRELOAD` and its kin alone
/// (secure execution, ld.so(8)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gain {
    /// Those of the file's owner (set-user-ID).
    User,
    /// Those of its group (set-group-ID).
    Group,
    /// Capabilities (capabilities(7)).
    Capabilities,
}

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Gain::User => "it is setuid",
            Gain::Group => "it is setgid",
            Gain::Capabilities => "it has file capabilities",
        })
    }
}

const SET_UID: u32 = 0o4000;
/// Set-group-ID without the right of the group to execute it is mandatory locking, and gives nothing.
const SET_GID: u32 = 0o2010;

/// What this process would gain by executing a file that is no script: scripts gain nothing.
///
/// # Errors
/// What stat(2) says, or statvfs(3).
pub fn gain(file: &Path) -> io::Result<Option<Gain>> {
    let status = std::fs::metadata(file)?;
    // SAFETY: the three take integers, or nothing.
    let (user, group, gains_nothing) = unsafe {
        let none: libc::c_ulong = 0;
        let bound = libc::prctl(libc::PR_GET_NO_NEW_PRIVS, none, none, none, none);
        (libc::getuid(), libc::getgid(), bound == 1)
    };
    if gains_nothing || is_on_nosuid(file)? {
        return Ok(None);
    }
    if status.mode() & SET_UID != 0 && status.uid() != user {
        return Ok(Some(Gain::User));
    }
    if status.mode() & SET_GID == SET_GID && status.gid() != group {
        return Ok(Some(Gain::Group));
    }
    // Root has them anyway.
    Ok((user != 0 && has_capabilities(file)).then_some(Gain::Capabilities))
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// Whether it lies on a file system from which nobody gains anything (`nosuid`, mount(8)).
fn is_on_nosuid(file: &Path) -> io::Result<bool> {
    let path = c_path(file)?;
    let mut found = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` ends with a NUL; the kernel's answer is written to live memory of that size.
    check(unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) })?;
    // SAFETY: integers only, zeroed before.
    Ok(unsafe { found.assume_init() }.f_flag & libc::ST_NOSUID != 0)
}

fn has_capabilities(file: &Path) -> bool {
    let Ok(path) = c_path(file) else { return false };
    // SAFETY: both names end with a NUL, and with a length of 0 nothing is written.
    let len = unsafe {
        let attribute = c"security.capability".as_ptr();
        libc::getxattr(path.as_ptr(), attribute, std::ptr::null_mut(), 0)
    };
    len > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn what_a_file_gives_is_known() {
        let folder = std::env::temp_dir().join(format!("wharf-executable-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("program");
        fs::write(&file, "").unwrap();
        let set = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        set(0o755);
        assert_eq!(gain(&file).unwrap(), None);
        if is_on_nosuid(&file).unwrap() {
            return testkit::missing::lacks("a temporary folder without nosuid");
        }
        // One's own is nothing new.
        set(0o6755);
        assert_eq!(gain(&file).unwrap(), None);
        if !crate::process::has_all_of_root() {
            return testkit::missing::lacks("root, for files of other users");
        }
        let found = |mode| {
            set(mode);
            gain(&file).unwrap()
        };
        chown(&file, Some(4_242), Some(4_242)).unwrap();
        assert_eq!(
            [0o4755, 0o2755, 0o2745].map(found),
            [Some(Gain::User), Some(Gain::Group), None]
        );
        assert_eq!(found(0o755), None);
        assert!(gain(&folder.join("none")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
