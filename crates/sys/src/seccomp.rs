//! System calls of a program that another process answers (seccomp_unotify(2)). Linux 5.14 or newer.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::capability::{self, SYS_ADMIN};
use crate::error::check;

/// `AUDIT_ARCH_X86_64` or `AUDIT_ARCH_AARCH64` (linux/audit.h): whose numbers of calls are meant.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Where the number of the call and the architecture are in `struct seccomp_data`.
const AT_NUMBER: u32 = 0;
const AT_ARCH: u32 = 4;
const AT_ARGUMENTS: u32 = 16;
/// Most calls of a filter, and most of those that are picked by an argument: its jumps have eight bits.
const CALLS_MAX: usize = 200;
const FLAGGED_MAX: usize = 16;
/// Instructions for one that is picked by an argument.
const FLAGGED_LEN: usize = 3;
/// Instructions that look for a mark.
const MARK_LEN: usize = 5;
/// The argument that may be a mark.
const MARKED: u32 = 5;

/// A call that is picked only if an argument has one of some bits: what it is without costs the filter, and no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flagged {
    /// The number of the call.
    pub call: i64,
    /// Which argument, from 0 to 5, of which the low half is looked at: an int.
    pub argument: u32,
    /// The bits.
    pub bits: u32,
}

/// From now on these calls (`SYS_accept4` and others) of the calling thread, and of whatever it starts, wait for an answer
/// of who has the [`Listener`] that this descriptor becomes. Others, those of another architecture, and those whose sixth
/// argument is `mark`, are the kernel's: who knows the mark has the kernel answer, where a call takes fewer arguments.
///
/// Without `CAP_SYS_ADMIN` no program that is executed from now on gains rights (`PR_SET_NO_NEW_PRIVS`).
///
/// # Errors
/// `ResourceBusy` if there is such a listener already, `InvalidInput` for too many calls, and other errors of seccomp(2).
pub fn answer_elsewhere(calls: &[i64], flagged: &[Flagged], mark: u64) -> io::Result<OwnedFd> {
    if calls.len() > CALLS_MAX || flagged.len() > FLAGGED_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if !capability::has(SYS_ADMIN)? {
        // SAFETY: PR_SET_NO_NEW_PRIVS takes numbers, the unused ones 0.
        check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    }
    let filter = filter(calls, flagged, mark);
    let program = libc::sock_fprog {
        len: filter.len() as libc::c_ushort,
        filter: filter.as_ptr().cast_mut(),
    };
    let (mode, flag) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the kernel copies `program`, which names so many live instructions.
    let fd = unsafe { libc::syscall(libc::SYS_seccomp, mode, flag, &raw const program) };
    let fd = check(fd as libc::c_int)?;
    // SAFETY: the call succeeded, so `fd` is a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A program of classic BPF: the architecture, then each call, in order, then each that is picked by an argument, and of
/// those that are picked the mark.
fn filter(calls: &[i64], flagged: &[Flagged], mark: u64) -> Vec<libc::sock_filter> {
    let load = |at: u32| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let has = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    let end = |action: u32| step(libc::BPF_RET | libc::BPF_K, 0, 0, action);
    let len = calls.len() + FLAGGED_LEN * flagged.len();
    let mut all = vec![load(AT_ARCH)];
    // Over all calls, to what lets one through.
    all.push(step(equals, 0, len as u8 + 1, ARCH));
    all.push(load(AT_NUMBER));
    // Over all that follows, to what looks for the mark.
    let after = |at: usize| (len - at) as u8;
    all.extend((0..).zip(calls).map(|(at, call)| step(equals, after(at), 0, *call as u32)));
    for (number, Flagged { call, argument, bits }) in (0..).zip(flagged) {
        let jump = calls.len() + FLAGGED_LEN * number + FLAGGED_LEN - 1;
        all.push(step(equals, 0, FLAGGED_LEN as u8 - 1, *call as u32));
        all.push(load(AT_ARGUMENTS + 8 * argument));
        all.push(step(has, after(jump), after(jump) - 1, *bits));
    }
    all.push(end(libc::SECCOMP_RET_ALLOW));
    // Low half first: both architectures are little-endian.
    for half in 0..2 {
        all.push(load(AT_ARGUMENTS + 8 * MARKED + 4 * half));
        let to_answer = (MARK_LEN - 2 - 2 * half as usize) as u8;
        all.push(step(equals, 0, to_answer, (mark >> (32 * half)) as u32));
    }
    all.push(end(libc::SECCOMP_RET_ALLOW));
    all.push(end(libc::SECCOMP_RET_USER_NOTIF));
    all
}

fn step(code: u32, if_true: u8, if_false: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: if_true, jf: if_false, k }
}

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// By which it is answered.
    pub id: u64,
    /// The thread, as this pid namespace knows it; 0 if it does not.
    pub thread: u32,
    /// The number of the call.
    pub call: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// How a call ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// With this result.
    Value(i64),
    /// With this error of errno(3).
    Error(i32),
    /// As the kernel has it, which now looks at its arguments itself: they may have changed.
    Kernel,
}

/// What a [`Listener`] has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No call waits.
    Quiet,
    /// One does.
    Waits,
    /// No process is left whose calls would.
    Over,
}

/// Where calls are answered: readable when one waits, and hung up when no process is left whose calls these are.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl From<OwnedFd> for Listener {
    fn from(fd: OwnedFd) -> Self {
        Listener(fd)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Listener {
    /// The next call that waits. If none does, it waits for one. `None` for one that has ended meanwhile.
    ///
    /// # Errors
    /// Those of ioctl(2).
    pub fn receive(&self) -> io::Result<Option<Waiting>> {
        // SAFETY: integers only, for which zeros are valid, and which the kernel asks for.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
        // SAFETY: the kernel writes one seccomp_notif.
        match check(unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut call) }) {
            Ok(_) => Ok(Some(Waiting {
                id: call.id,
                thread: call.pid,
                call: call.data.nr.into(),
                arguments: call.data.args,
            })),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// What there is to do.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn state(&self) -> io::Result<State> {
        let mut fd = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that may be written.
        check(unsafe { libc::poll(&raw mut fd, 1, 0) })?;
        Ok(match fd.revents {
            found if found & (libc::POLLHUP | libc::POLLERR) != 0 => State::Over,
            found if found & libc::POLLIN != 0 => State::Waits,
            _ => State::Quiet,
        })
    }

    /// Whether the call waits still: what was found of its thread before is of that thread, and of no other that has its
    /// number now.
    pub fn waits(&self, id: u64) -> bool {
        let request = libc::SECCOMP_IOCTL_NOTIF_ID_VALID;
        // SAFETY: the kernel reads a u64.
        unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw const id) == 0 }
    }

    /// Ends the call. Returns whether it had not ended before.
    pub fn answer(&self, id: u64, answer: Answer) -> bool {
        let (val, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Error(error) => (0, -error, 0),
            Answer::Kernel => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        let response = libc::seccomp_notif_resp { id, val, error, flags };
        let request = libc::SECCOMP_IOCTL_NOTIF_SEND;
        // SAFETY: the kernel reads one seccomp_notif_resp.
        unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw const response) == 0 }
    }

    /// Ends the call with a new descriptor of its process's, for this file: the lowest that is free, which is returned.
    ///
    /// # Errors
    /// `NotFound` if the call has ended, `EMFILE` if the process can have no more: the call waits then.
    pub fn give(&self, id: u64, file: impl AsFd, closes_at_exec: bool) -> io::Result<i32> {
        self.add(id, file, libc::SECCOMP_ADDFD_FLAG_SEND, 0, closes_at_exec)
    }

    /// Whether the kernel is new enough to [`give`](Self::give).
    pub fn can_give(&self) -> bool {
        // What it does not know it says before it looks for the call; no call has this number.
        let given = self.give(u64::MAX, self, true);
        given.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// A descriptor of the process's is this file from now on. The call waits on.
    ///
    /// # Errors
    /// `NotFound` if the call has ended, and those of dup2(2).
    pub fn put(&self, id: u64, file: impl AsFd, at: u32, closes_at_exec: bool) -> io::Result<()> {
        self.add(id, file, libc::SECCOMP_ADDFD_FLAG_SETFD, at, closes_at_exec).map(drop)
    }

    fn add(
        &self,
        id: u64,
        file: impl AsFd,
        flag: libc::c_ulong,
        at: u32,
        closes_at_exec: bool,
    ) -> io::Result<i32> {
        let request = libc::seccomp_notif_addfd {
            id,
            flags: flag as u32,
            srcfd: file.as_fd().as_raw_fd() as u32,
            newfd: at,
            newfd_flags: if closes_at_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        let number = libc::SECCOMP_IOCTL_NOTIF_ADDFD;
        // SAFETY: the kernel reads one seccomp_notif_addfd, whose descriptor is open.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), number, &raw const request) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: u64 = 0x1234_5678_9abc_def0;

    /// What a filter says of a call, as the kernel would run it.
    fn verdict(filter: &[libc::sock_filter], arch: u32, number: u32, third: u32) -> u32 {
        verdict_of(filter, arch, number, (third, 0))
    }

    /// The same of one with a sixth argument.
    fn verdict_of(
        filter: &[libc::sock_filter],
        arch: u32,
        number: u32,
        (third, sixth): (u32, u64),
    ) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let step = filter[at];
            match u32::from(step.code) {
                code if code == libc::BPF_RET | libc::BPF_K => return step.k,
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    loaded = match step.k {
                        AT_ARCH => arch,
                        AT_NUMBER => number,
                        // linux/seccomp.h: four bytes each, then the instruction's address of eight.
                        32 => third,
                        56 => sixth as u32,
                        60 => (sixth >> 32) as u32,
                        other => panic!("{other}"),
                    };
                }
                code if code == libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K => {
                    at += usize::from(if loaded & step.k != 0 { step.jt } else { step.jf });
                }
                _ => at += usize::from(if loaded == step.k { step.jt } else { step.jf }),
            }
            at += 1;
        }
    }

    #[test]
    fn a_filter_picks_the_calls_of_this_architecture() {
        for count in [0, 1, 7, CALLS_MAX] {
            let calls: Vec<i64> = (100..).take(count).collect();
            let filter = filter(&calls, &[], MARK);
            for number in 90..320 {
                let is_one = calls.contains(&number);
                let action =
                    if is_one { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
                assert_eq!(verdict(&filter, ARCH, number as u32, 0), action, "{number} of {count}");
                assert_eq!(verdict(&filter, !ARCH, number as u32, 0), libc::SECCOMP_RET_ALLOW);
            }
        }
        assert!(answer_elsewhere(&[0; CALLS_MAX + 1], &[], MARK).is_err());
    }

    #[test]
    fn a_filter_picks_calls_by_their_arguments() {
        for (count, others) in [(0, 1), (3, 2), (CALLS_MAX, FLAGGED_MAX)] {
            let calls: Vec<i64> = (100..).take(count).collect();
            let flagged: Vec<_> =
                (400..).take(others).map(|call| Flagged { call, argument: 2, bits: 5 }).collect();
            let filter = filter(&calls, &flagged, MARK);
            for number in 90..420 {
                for third in 0..16 {
                    let is_flagged = (400..400 + others as i64).contains(&number) && third & 5 != 0;
                    let is_one = calls.contains(&number) || is_flagged;
                    let action =
                        if is_one { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
                    let number = number as u32;
                    assert_eq!(verdict(&filter, ARCH, number, third), action, "{number} {third}");
                    let other = verdict(&filter, !ARCH, number, third);
                    assert_eq!(other, libc::SECCOMP_RET_ALLOW);
                }
            }
        }
    }

    #[test]
    fn a_filter_leaves_marked_calls_to_the_kernel() {
        let flagged = [Flagged { call: 400, argument: 2, bits: 5 }];
        let filter = filter(&[100, 101], &flagged, MARK);
        for number in [100, 101, 400] {
            let of = |sixth| verdict_of(&filter, ARCH, number, (1, sixth));
            assert_eq!(of(MARK), libc::SECCOMP_RET_ALLOW, "{number}");
            for other in [0, MARK as u32 as u64, MARK >> 32 << 32, !MARK, MARK + 1] {
                assert_eq!(of(other), libc::SECCOMP_RET_USER_NOTIF, "{number}, {other:x}");
            }
        }
    }

    #[test]
    fn calls_of_a_thread_are_answered_by_another() {
        use crate::calls;
        use std::sync::mpsc::channel;
        let (tell, told) = channel();
        // The filter is that thread's for good.
        let caller = std::thread::spawn(move || {
            let near = calls::socket(libc::AF_INET).unwrap();
            let calls = [libc::SYS_shutdown, libc::SYS_listen];
            tell.send(answer_elsewhere(&calls, &[], MARK).unwrap()).unwrap();
            let first = calls::shutdown(&near, libc::SHUT_RDWR);
            let second = calls::shutdown(&near, libc::SHUT_RDWR);
            let new = calls::listen(&near, 1).unwrap();
            (first, second, new)
        });
        let listener = Listener::from(told.recv().unwrap());
        assert!(listener.can_give());
        let next = || listener.receive().unwrap().unwrap();
        let call = next();
        assert_eq!((call.call, call.arguments[1]), (libc::SYS_shutdown, libc::SHUT_RDWR as u64));
        assert!(listener.waits(call.id) && !listener.waits(call.id + 1000));
        assert!(listener.answer(call.id, Answer::Error(libc::EXDEV)));
        assert!(!listener.answer(call.id, Answer::Value(0)) && !listener.waits(call.id));
        let call = next();
        assert!(listener.answer(call.id, Answer::Kernel));
        let (file, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let call = next();
        assert!(listener.put(call.id, &file, 1 << 30, true).is_err());
        let given = listener.give(call.id, &file, true).unwrap();
        assert_eq!(
            listener.give(call.id, &file, true).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        assert!(matches!(listener.state(), Ok(State::Quiet | State::Over)));
        let (first, second, new) = caller.join().unwrap();
        assert_eq!(given, new as i32);
        assert_eq!((first, second), (Err(libc::EXDEV), Err(libc::ENOTCONN)));
        assert_eq!(listener.state().unwrap(), State::Over);
        // It is of this process, in which the thread was.
        // SAFETY: it was made for the call, and nobody owns it.
        drop(unsafe { OwnedFd::from_raw_fd(new as i32) });
    }
}
