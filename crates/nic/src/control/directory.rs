//! Root's directory of sockets and locks.
//!
//! A lock (flock(2)) tells a file that is in use from one that a killed process left: the kernel releases it
//! with the process. Files are made and removed under one lock of the whole directory, so that none is
//! removed that another process is about to use.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sys::process;

use super::place::{DIRECTORY, HANDOFFS, SOCKET};

/// Suffix of the locks.
const LOCK: &str = ".lock";
/// The lock of the directory.
const WHOLE: &str = "lock";

/// The directory, locked.
#[derive(Debug)]
pub(super) struct Directory {
    _lock: File,
}

impl Directory {
    /// Locks the directory, if this process is its owner.
    ///
    /// # Errors
    /// `PermissionDenied` for a process that is not root, or only in a user namespace of its own: there the
    /// real root's directory belongs to another user. Else why the directory cannot be used.
    pub(super) fn lock() -> io::Result<Directory> {
        if !process::is_root() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match DirBuilder::new().mode(0o755).create(DIRECTORY) {
            // The umask may have removed permissions.
            Ok(()) => fs::set_permissions(DIRECTORY, Permissions::from_mode(0o755))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let found = fs::symlink_metadata(DIRECTORY)?;
        if !found.is_dir() || found.st_uid() != 0 || found.st_mode() & 0o022 != 0 {
            let words = format!("{DIRECTORY} is not a directory that only root may write to");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
        }
        let lock = open(&Path::new(DIRECTORY).join(WHOLE), true)?;
        lock.lock()?;
        Ok(Directory { _lock: lock })
    }

    /// Removes the files of killed processes, in any namespace.
    pub(super) fn sweep(&self) {
        for entry in fs::read_dir(DIRECTORY).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_str().unwrap_or_default();
            if let Some(name) = name.strip_suffix(HANDOFFS)
                && !Path::new(DIRECTORY).join(format!("{name}{LOCK}")).exists()
            {
                // Its wharf had the name's lock.
                let _ = fs::remove_file(&path);
            }
            let Some(name) = name.strip_suffix(LOCK) else { continue };
            let unused = open(&path, false).is_ok_and(|lock| lock.try_lock().is_ok());
            if unused {
                // A file that cannot be removed is replaced when its name is taken again.
                for suffix in [SOCKET, HANDOFFS] {
                    let _ = fs::remove_file(Path::new(DIRECTORY).join(format!("{name}{suffix}")));
                }
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Takes a name, until what is returned is dropped or the process ends.
    ///
    /// # Errors
    /// `AddrInUse` if another process has it.
    pub(super) fn take(&self, name: &str) -> io::Result<Taken> {
        let path = Path::new(DIRECTORY).join(format!("{name}{LOCK}"));
        let lock = open(&path, true)?;
        match lock.try_lock() {
            Ok(()) => Ok(Taken { files: vec![path], lock: Some(lock) }),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::AddrInUse.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    // A process without permission to read it cannot take the lock.
    OpenOptions::new().read(true).write(true).create(create).mode(0o600).open(path)
}

/// A name that this process has taken, and its files.
#[derive(Debug)]
pub(super) struct Taken {
    files: Vec<PathBuf>,
    lock: Option<File>,
}

impl Taken {
    /// Adds another file that is removed with the name.
    pub(super) fn with(mut self, file: &Path) -> Taken {
        self.files.insert(0, file.to_owned());
        self
    }

    /// Gives the name back while the caller has the directory locked; the files are left for the next
    /// process.
    pub(super) fn leave(mut self) {
        self.files.clear();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.files.is_empty() {
            return;
        }
        // Without the directory's lock another process might have opened what is to be removed; the next
        // process removes it then.
        if let Ok(_directory) = Directory::lock() {
            for file in &self.files {
                let _ = fs::remove_file(file);
            }
            self.lock = None;
        }
    }
}
