//! Root's directory of sockets and locks.
//!
//! A lock (flock(2)) tells a file that is in use from one that a killed process left behind: the
//! kernel gives it back with the process. Files come and go under one lock of the whole directory,
//! so that none removes what another is about to use.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::linux::fs::MetadataExt as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sys::process;

use super::place::{DIRECTORY, SOCKET};

/// What the name of every lock ends with.
const LOCK: &str = ".lock";
/// The lock of the directory.
const WHOLE: &str = "lock";

/// The directory, locked.
#[derive(Debug)]
pub(super) struct Directory {
    _lock: File,
}

impl Directory {
    /// The directory, where this process is its owner.
    ///
    /// # Errors
    /// `PermissionDenied` for those who are not root, or are only in a user namespace of their own:
    /// there the real root's directory belongs to another user. And what else keeps it from being used.
    pub(super) fn lock() -> io::Result<Directory> {
        if !process::is_root() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match DirBuilder::new().mode(0o755).create(DIRECTORY) {
            // The umask may have taken from it.
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

    /// Removes what killed processes have left behind, in any namespace.
    pub(super) fn sweep(&self) {
        for entry in fs::read_dir(DIRECTORY).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(LOCK)) else {
                continue;
            };
            let unused = open(&path, false).is_ok_and(|lock| lock.try_lock().is_ok());
            if unused {
                // What cannot be removed is replaced when its name is wanted again.
                let _ = fs::remove_file(Path::new(DIRECTORY).join(format!("{name}{SOCKET}")));
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Takes a name, until what is returned is dropped or the process ends.
    ///
    /// # Errors
    /// `AddrInUse` when another has it.
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
    // Who may not read it cannot take the lock.
    OpenOptions::new().read(true).write(true).create(create).mode(0o600).open(path)
}

/// A name that is this process's, and its files.
#[derive(Debug)]
pub(super) struct Taken {
    files: Vec<PathBuf>,
    lock: Option<File>,
}

impl Taken {
    /// Another file goes with the name.
    pub(super) fn with(mut self, file: &Path) -> Taken {
        self.files.insert(0, file.to_owned());
        self
    }

    /// Gives the name back where the caller has the directory locked; the files are for the next to
    /// come.
    pub(super) fn leave(mut self) {
        self.files.clear();
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.files.is_empty() {
            return;
        }
        // Without the directory's lock another might just have opened what is to be removed; the next
        // to come removes it then.
        if let Ok(_directory) = Directory::lock() {
            for file in &self.files {
                let _ = fs::remove_file(file);
            }
            self.lock = None;
        }
    }
}
