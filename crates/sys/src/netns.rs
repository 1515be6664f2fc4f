//! Network namespaces, and the user namespace that lets an ordinary user make one.
//!
//! A network namespace is a property of a thread. An anonymous one, without a mount, lives as long as a
//! descriptor of it or a thread in it, so it vanishes when the process ends, in whatever way.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

use crate::error::check;
use crate::{Error, Result, interface, process};

/// Gives the calling thread a new network namespace, empty but for a loopback that is down.
pub fn unshare_net() -> Result<()> {
    // SAFETY: unshare takes an integer and touches no memory of ours.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
        .map(drop)
        .map_err(|cause| Error::new("make a network namespace", cause))
}

/// Moves the whole process to new user and network namespaces, in which its user and group are
/// root. Needs no privilege where the system allows user namespaces.
///
/// The process must still have one thread only (`EINVAL` otherwise, by user_namespaces(7)).
pub fn unshare_user_net() -> Result<()> {
    let user = process::uid();
    // SAFETY: getegid has no arguments and always succeeds.
    let group = unsafe { libc::getegid() };
    // SAFETY: unshare takes an integer and touches no memory of ours.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })
        .map_err(|cause| Error::new("make a user namespace", cause))?;
    // An ordinary user may write gid_map only after it has given up setgroups.
    map_ids("setgroups", "deny".to_owned())?;
    map_ids("uid_map", format!("0 {user} 1"))?;
    map_ids("gid_map", format!("0 {group} 1"))
}

fn map_ids(file: &str, content: String) -> Result<()> {
    fs::write(format!("/proc/self/{file}"), content)
        .map_err(|cause| Error::new(format!("write the user namespace's {file}"), cause))
}

/// The calling thread's network namespace.
pub fn current() -> Result<OwnedFd> {
    File::open("/proc/thread-self/ns/net")
        .map(OwnedFd::from)
        .map_err(|cause| Error::new("open the network namespace of this thread", cause))
}

/// Moves the calling thread to a network namespace.
pub fn enter(namespace: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: setns takes a descriptor, valid for the borrow, and touches no memory of ours.
    check(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) })
        .map(drop)
        .map_err(|cause| Error::new("enter a network namespace", cause))
}

/// Starts a thread that enters a network namespace and then runs `work`. Joining it returns the result of
/// `work`, or why the namespace could not be entered.
pub fn spawn_in<F, T>(namespace: BorrowedFd<'_>, work: F) -> Result<JoinHandle<Result<T>>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let namespace = namespace.try_clone_to_owned().map_err(no_thread)?;
    let inside = move || {
        enter(namespace.as_fd())?;
        drop(namespace);
        Ok(work())
    };
    thread::Builder::new().spawn(inside).map_err(no_thread)
}

/// Runs `work` in a network namespace, on a thread of its own, and waits for it. A panic of `work` is resumed
/// in the calling thread.
pub fn run_in<F, T>(namespace: BorrowedFd<'_>, work: F) -> Result<T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    thread::scope(|scope| {
        let inside = || {
            enter(namespace)?;
            Ok(work())
        };
        let thread = thread::Builder::new().spawn_scoped(scope, inside).map_err(no_thread)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn no_thread(cause: io::Error) -> Error {
    Error::new("start a thread in a network namespace", cause)
}

/// An anonymous network namespace. It vanishes, with the virtual interfaces in it, when the last descriptor
/// of it and the last thread in it are gone.
#[derive(Debug)]
pub struct Namespace(OwnedFd);

impl Namespace {
    /// Makes a namespace with its loopback up. The calling thread stays in its own.
    pub fn new() -> Result<Self> {
        let make = || {
            unshare_net()?;
            interface::set_up("lo")?;
            current().map(Self)
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().spawn_scoped(scope, make).map_err(no_thread)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a thread in this namespace, by [`spawn_in`].
    pub fn spawn<F, T>(&self, work: F) -> Result<JoinHandle<Result<T>>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_in(self.as_fd(), work)
    }

    /// Runs `work` in this namespace and waits for it, by [`run_in`].
    pub fn run<F, T>(&self, work: F) -> Result<T>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        run_in(self.as_fd(), work)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
