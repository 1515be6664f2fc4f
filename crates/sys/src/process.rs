//! Processes: signals, credentials of a socket's peer, privileges of this process, and CPU times.

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use crate::capability::{self, BPF, NET_ADMIN, SYS_ADMIN};
use crate::error::check;

/// A signal that wharf sends or waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// `SIGINT`: Ctrl-C.
    Interrupt,
    /// `SIGTERM`: request to stop.
    Terminate,
    /// `SIGHUP`: the terminal is gone, or a service manager wants a reload.
    HangUp,
    /// `SIGCHLD`: a child process ended.
    Child,
    /// `SIGKILL`: cannot be waited for.
    Kill,
    /// `SIGSTOP`: cannot be waited for.
    Stop,
    /// `SIGCONT`: a process that was stopped goes on.
    Continue,
}

impl Signal {
    /// The kernel's number of the signal.
    pub fn number(self) -> i32 {
        match self {
            Self::Interrupt => libc::SIGINT,
            Self::Terminate => libc::SIGTERM,
            Self::HangUp => libc::SIGHUP,
            Self::Child => libc::SIGCHLD,
            Self::Kill => libc::SIGKILL,
            Self::Stop => libc::SIGSTOP,
            Self::Continue => libc::SIGCONT,
        }
    }

    /// The signal with this number, if it is one of the above.
    pub fn from_number(number: i32) -> Option<Self> {
        [
            Self::Interrupt,
            Self::Terminate,
            Self::HangUp,
            Self::Child,
            Self::Kill,
            Self::Stop,
            Self::Continue,
        ]
        .into_iter()
        .find(|signal| signal.number() == number)
    }
}

/// A descriptor of a process, readable once it has ended; it never refers to another process.
pub fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid_t(pid)?, 0) };
    let fd = check(fd as libc::c_int)?;
    // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The inodes of the sockets that a process has. To be told of another's takes the right to trace it (ptrace(2)).
pub fn socket_inodes(pid: u32) -> io::Result<HashSet<u32>> {
    let mut all = HashSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let name = match fs::read_link(entry?.path()) {
            Ok(name) => name,
            // It was closed in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let inode = name.to_str().and_then(|name| name.strip_prefix("socket:["));
        all.extend(inode.and_then(|inode| inode.strip_suffix(']')?.parse::<u32>().ok()));
    }
    Ok(all)
}

/// Moves a descriptor to where it closes before all others when this process ends, however it ends. It stays where it is if
/// there is no room: it closes later then.
///
/// The kernel closes the descriptors of a process that ends from the highest number down: it collects them from the
/// lowest up (`close_files`), and takes the last that was collected first (`task_work_run`). To close interfaces takes it
/// tens of milliseconds.
pub fn close_first<T: From<OwnedFd> + Into<OwnedFd>>(descriptor: T) -> T {
    /// A table of descriptors takes nine bytes for each number up to the highest.
    const HIGHEST: u64 = 1 << 16;
    /// Of these there are few.
    const PLACES: u64 = 64;
    let descriptor: OwnedFd = descriptor.into();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is one rlimit that the kernel may write.
    let known = check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) });
    let end = if known.is_ok() { limit.rlim_cur.min(HIGHEST) } else { 0 };
    let least = end.saturating_sub(PLACES) as libc::c_int;
    // SAFETY: fcntl takes integers with this command; the descriptor is open.
    let moved = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    match check(moved) {
        // SAFETY: the call succeeded, so `moved` is a new descriptor that nothing else owns.
        Ok(moved) => unsafe { OwnedFd::from_raw_fd(moved) }.into(),
        Err(_) => descriptor.into(),
    }
}

/// Sends a signal to one process. `ESRCH` if there is no such process.
pub fn kill(pid: u32, signal: Signal) -> io::Result<()> {
    // SAFETY: kill takes integers and touches no memory of ours.
    check(unsafe { libc::kill(pid_t(pid)?, signal.number()) }).map(drop)
}

/// The id of one process: 0 and negative numbers would mean whole groups.
fn pid_t(pid: u32) -> io::Result<libc::pid_t> {
    match libc::pid_t::try_from(pid) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Names the calling thread as `ps` and `top` show it (15 bytes; the rest is cut off).
pub fn set_name(name: &str) -> io::Result<()> {
    let mut comm = [0u8; 16];
    for (to, from) in comm[..15].iter_mut().zip(name.bytes().take_while(|&byte| byte != 0)) {
        *to = from;
    }
    // SAFETY: `comm` is 16 readable bytes ending in NUL, as PR_SET_NAME asks.
    check(unsafe { libc::prctl(libc::PR_SET_NAME, comm.as_ptr()) }).map(drop)
}

/// Credentials of the process at the other end of a Unix socket when it connected (`SO_PEERCRED`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Process id, as seen from this pid namespace.
    pub pid: i32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

/// The credentials of the process at the other end.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<PeerCredentials> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `credentials` is writable and `length` is its size.
    check(unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut length,
        )
    })?;
    Ok(PeerCredentials { pid: credentials.pid, uid: credentials.uid, gid: credentials.gid })
}

/// The effective user id.
pub fn uid() -> u32 {
    // SAFETY: geteuid has no arguments and always succeeds.
    unsafe { libc::geteuid() }
}

/// Gives a thread priority over all ordinary ones on its CPU, whenever it can run (`SCHED_FIFO`, sched(7)).
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`, `ESRCH` if there is no such thread.
pub fn set_real_time(id: u32) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: `parameters` is readable; the kernel copies it.
    check(unsafe { libc::sched_setscheduler(pid_t(id)?, libc::SCHED_FIFO, &raw const parameters) })
        .map(drop)
}

/// The same for the calling thread.
///
/// # Errors
/// `EPERM` without `CAP_SYS_NICE`.
pub fn run_in_real_time() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: 0 is the calling thread; `parameters` is readable, and the kernel copies it.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) }).map(drop)
}

/// Nanoseconds by which the kernel may wake the calling thread too late, to wake it together with others
/// (`PR_SET_TIMERSLACK`; 50,000 by default).
///
/// # Errors
/// None that are known.
pub fn set_timer_slack(nanoseconds: u64) -> io::Result<()> {
    // 0 would mean the default.
    let slack = nanoseconds.max(1) as libc::c_ulong;
    // SAFETY: PR_SET_TIMERSLACK takes a number.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack) }).map(drop)
}

/// Lets this process have `files` descriptors at a time, if it may not have so many already (`RLIMIT_NOFILE`).
///
/// # Errors
/// `PermissionDenied` above the hard limit without `CAP_SYS_RESOURCE`, or above `fs.nr_open`.
pub fn allow_open_files(files: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is one rlimit that the kernel may write.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    if limit.rlim_cur >= files {
        return Ok(());
    }
    limit = libc::rlimit { rlim_cur: files, rlim_max: limit.rlim_max.max(files) };
    // SAFETY: `limit` is one rlimit that the kernel reads.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}

/// Lets this process have as many descriptors at a time as it may at most: a million, or its hard limit.
///
/// # Errors
/// None that are known.
pub fn allow_most_open_files() -> io::Result<()> {
    const MOST: u64 = 1 << 20;
    if allow_open_files(MOST).is_ok() {
        return Ok(());
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is one rlimit that the kernel may write.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    allow_open_files(limit.rlim_max)
}

/// How many descriptors this process may have at a time.
///
/// # Errors
/// None that are known.
pub fn open_files_allowed() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is one rlimit that the kernel may write.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    Ok(limit.rlim_cur)
}

/// Gives the calling thread, and those that it starts from now on, a table of descriptors of their own, a copy of the
/// present one (`CLONE_FILES`). [`allow_open_files`] counts for each table. From now on a descriptor that is opened
/// on one side is none on the other, or another: nothing that owns one may be handed over.
///
/// # Errors
/// `OutOfMemory`.
pub fn unshare_files() -> io::Result<()> {
    // SAFETY: unshare takes flags. Descriptors that others own stay open in their table and, as copies, in this one.
    check(unsafe { libc::unshare(libc::CLONE_FILES) }).map(drop)
}

/// Whether the effective user is root *of this user namespace*.
pub fn is_root() -> bool {
    uid() == 0
}

/// Whether this is root of the first user namespace, and not only of one of an ordinary user.
pub fn has_all_of_root() -> bool {
    is_root() && in_initial_user_namespace()
}

/// An owner, as far as this process's user namespace shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Root.
    Root,
    /// The user that this process runs as.
    Own,
    /// Another user.
    Other(u32),
    /// A user without a number here: all of them are shown as one (`overflowuid`, user_namespaces(7)), the
    /// real root among them.
    Unknown,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Root => f.write_str("root"),
            Owner::Own => f.write_str("this user"),
            Owner::Other(uid) => write!(f, "user {uid}"),
            Owner::Unknown => f.write_str("a user whom this user namespace does not know"),
        }
    }
}

/// The owner with the user id `uid`, as this process sees it.
pub fn owner(uid: u32) -> Owner {
    const OVERFLOW: u32 = 65_534;
    let overflow = || {
        let set = fs::read_to_string("/proc/sys/kernel/overflowuid");
        set.ok().and_then(|uid| uid.trim().parse().ok()).unwrap_or(OVERFLOW)
    };
    match uid {
        0 => Owner::Root,
        uid if !in_initial_user_namespace() && uid == overflow() => Owner::Unknown,
        uid if uid == self::uid() => Owner::Own,
        uid => Owner::Other(uid),
    }
}

/// Runs `work` as an ordinary user, on a thread of its own: to the kernel, users belong to threads.
///
/// # Errors
/// `EPERM` if this process is not root.
pub fn run_as<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let change = || -> io::Result<()> {
        let id = libc::c_ulong::from(uid);
        let none = std::ptr::null::<libc::gid_t>();
        // libc's own functions change all threads, so the system calls are made directly.
        // SAFETY: setgroups reads no list of length 0; the others take integers.
        let results = unsafe {
            [
                libc::syscall(libc::SYS_setgroups, 0_usize, none),
                libc::syscall(libc::SYS_setresgid, id, id, id),
                libc::syscall(libc::SYS_setresuid, id, id, id),
            ]
        };
        results.into_iter().try_for_each(|result| check(result as libc::c_int).map(drop))
    };
    std::thread::scope(|scope| {
        let inside = || change().map(|()| work());
        let thread = std::thread::Builder::new().spawn_scoped(scope, inside)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether the calling thread may configure the network of its user namespace (`CAP_NET_ADMIN`
/// in effect): make a TAP, move addresses.
pub fn has_net_admin() -> bool {
    has(NET_ADMIN)
}

/// Whether the calling thread may load an XDP program: `CAP_BPF` and `CAP_NET_ADMIN`, or
/// `CAP_SYS_ADMIN`, and that in the initial user namespace, as the kernel asks for networking BPF.
pub fn has_bpf() -> bool {
    (has(SYS_ADMIN) || (has(BPF) && has(NET_ADMIN))) && in_initial_user_namespace()
}

fn has(capability: u32) -> bool {
    capability::has(capability).unwrap_or(false)
}

/// The initial user namespace is the one that maps every id to itself (user_namespaces(7)).
fn in_initial_user_namespace() -> bool {
    fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// CPU time of all `ksoftirqd` threads since boot, in nanoseconds: network work of the kernel outside of
/// processes, which a process's own times do not include.
///
/// `None` where they cannot be seen (a container's pid namespace, `hidepid`).
pub fn ksoftirqd_cpu() -> Option<u64> {
    let processes = fs::read_dir("/proc").ok()?;
    let times = processes.flatten().filter_map(|entry| ksoftirqd_time(&entry.path()));
    times.fold(None, |sum, time| Some(sum.unwrap_or(0) + time))
}

/// The CPU time of the process at `/proc/PID` if it is a ksoftirqd.
fn ksoftirqd_time(process: &Path) -> Option<u64> {
    named(process, "ksoftirqd/")?;
    cpu_time(process)
}

/// CPU time of the threads of this process whose names begin with `name`, in nanoseconds.
pub fn threads_cpu(name: &str) -> u64 {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return 0 };
    let time = |thread: &Path| named(thread, name).and_then(|_| cpu_time(thread));
    threads.flatten().filter_map(|entry| time(&entry.path())).sum()
}

/// CPU time of all threads that a process has, in nanoseconds; `None` if there is none of that id.
pub fn all_threads_cpu(id: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{id}/task")).ok()?;
    Some(threads.flatten().filter_map(|thread| cpu_time(&thread.path())).sum())
}

/// CPU time of one process or thread, in nanoseconds; `None` if there is none of that id.
pub fn process_cpu(id: u32) -> Option<u64> {
    cpu_time(&Path::new("/proc").join(id.to_string()))
}

/// The id of a process, or of a thread of the kernel, whose name begins with `name`.
pub fn find(name: &str) -> Option<u32> {
    let mut processes = fs::read_dir("/proc").ok()?.flatten();
    processes.find_map(|entry| named(&entry.path(), name))
}

/// The id of a thread of this process whose name begins with `name`.
pub fn thread(name: &str) -> Option<u32> {
    threads(name).first().copied()
}

/// The ids of all threads of this process whose names begin with `name`, those first that were started first.
pub fn threads(name: &str) -> Vec<u32> {
    let Ok(all) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let mut ids: Vec<u32> = all.flatten().filter_map(|entry| named(&entry.path(), name)).collect();
    ids.sort_unstable();
    ids
}

/// The id of the process or thread at `/proc/PID` or `/proc/PID/task/TID` if its name begins so.
fn named(thread: &Path, name: &str) -> Option<u32> {
    let id = thread.file_name()?.to_str()?.parse().ok()?;
    fs::read_to_string(thread.join("comm")).ok()?.starts_with(name).then_some(id)
}

/// Time on the CPU of the process or thread at `/proc/PID`.
fn cpu_time(process: &Path) -> Option<u64> {
    // schedstat's first field is time on the CPU in nanoseconds; stat counts in ticks of 10 ms.
    match fs::read_to_string(process.join("schedstat")) {
        Ok(schedstat) => schedstat.split_whitespace().next()?.parse().ok(),
        Err(_) => stat_time(&fs::read_to_string(process.join("stat")).ok()?),
    }
}

/// utime + stime of a `/proc/PID/stat` line (proc(5)), in nanoseconds.
fn stat_time(stat: &str) -> Option<u64> {
    // The name, in parentheses, may itself contain spaces: fields are counted after it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    // SAFETY: sysconf takes an integer and touches no memory of ours.
    let per_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    Some(ticks * (1_000_000_000 / per_second.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::Command;

    #[test]
    fn what_closes_first_is_behind_all_others() {
        let (own, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let before = own.as_raw_fd();
        let mut own = close_first(own);
        let another = std::fs::File::open("/dev/null").unwrap();
        assert!(own.as_raw_fd() > before && own.as_raw_fd() > another.as_raw_fd());
        own.write_all(b"here").unwrap();
        let mut heard = [0; 4];
        other.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"here");
        drop(own);
        assert_eq!(other.read(&mut heard).unwrap(), 0, "it is open elsewhere");
    }

    #[test]
    fn a_pidfd_of_a_killed_child_becomes_readable() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = pidfd_open(child.id()).unwrap();
        kill(child.id(), Signal::Kill).unwrap();
        let ready = crate::poll::poll(&[std::os::fd::AsFd::as_fd(&pidfd)], None).unwrap();
        assert!(ready.contains(0));
        child.wait().unwrap();
        assert_eq!(
            kill(child.id(), Signal::Terminate).unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
    }

    #[test]
    fn more_files_may_be_open_up_to_what_the_kernel_has() {
        allow_open_files(1).unwrap();
        allow_open_files(64).unwrap();
        let limits = fs::read_to_string("/proc/self/limits").unwrap();
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let now: u64 = files.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert!(now >= 64, "a limit is never lowered: {files}");
        let refused = allow_open_files(1 << 40).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_thread_with_files_of_its_own_has_a_limit_of_its_own() {
        let opened = std::thread::spawn(|| {
            unshare_files().unwrap();
            let file = fs::File::open("/proc/thread-self/comm").unwrap();
            file.as_raw_fd()
        });
        let number = opened.join().unwrap();
        let named = format!("/proc/thread-self/fd/{number}");
        let is_here = |path: &str| fs::read_link(path).is_ok_and(|to| to.ends_with("comm"));
        assert!(!is_here(&named), "{named} was opened elsewhere");
    }

    #[test]
    fn process_groups_cannot_be_named() {
        for pid in [0, u32::MAX, i32::MAX as u32 + 1] {
            assert_eq!(kill(pid, Signal::Child).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = peer_credentials(&near).unwrap();
        assert_eq!((peer.pid as u32, peer.uid), (std::process::id(), uid()));
    }

    #[test]
    fn work_is_done_as_another_user_by_one_thread() {
        let before = uid();
        if before != 0 {
            assert!(run_as(4_242, || ()).is_err());
            return;
        }
        assert_eq!(run_as(4_242, uid).unwrap(), 4_242);
        assert_eq!((uid(), owner(0), owner(4_242)), (0, Owner::Root, Owner::Other(4_242)));
    }

    #[test]
    fn a_thread_is_named_as_far_as_the_name_fits() {
        std::thread::spawn(|| {
            set_name("wharf-worker-number-7").unwrap();
            assert_eq!(fs::read_to_string("/proc/thread-self/comm").unwrap(), "wharf-worker-nu\n");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_stat_line_is_read_past_a_name_with_spaces() {
        let stat = "9 (odd) name) S 2 0 0 0 -1 0 0 0 0 0 3 4 0 0 20 0 1 0 5 0 0";
        // SAFETY: as in `stat_time`.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
        assert_eq!(stat_time(stat), Some(7 * (1_000_000_000 / per_second)));
        assert_eq!(stat_time("9 (short) S 2"), None);
    }
}
