//! Children with a copy of this process's memory that are made past fork(3), whose handlers (pthread_atfork(3)) have the
//! connections back: `_Fork`, clone(2), and the system calls by their numbers.

use handoff::RestoreReason;
use libc::{c_int, c_long, c_ulonglong, c_void, pid_t};

use super::process::{before_fork, in_child};
use crate::connection::{self, Connection, epoll};
use crate::real::real;
use crate::sharers;
use crate::trap;
use crate::vfork;

/// What the layer has to do with a child.
enum Kind {
    /// It is a thread; or it has this process's memory until it executes another program, and says so by its calls.
    Own,
    /// It goes on with a copy of the memory, as after fork(2).
    Forked,
    /// It is not seen when it begins.
    Unseen,
}

/// The kind of a child by its flags, where it is seen when it begins if it has a copy of the memory.
fn kind(flags: c_ulonglong, is_seen: bool) -> Kind {
    let has = |flag: c_int| flags & flag as c_ulonglong != 0;
    if has(libc::CLONE_THREAD) || has(libc::CLONE_VM) && has(libc::CLONE_VFORK) {
        Kind::Own
    } else if has(libc::CLONE_VM) || !is_seen {
        Kind::Unseen
    } else if has(libc::CLONE_SETTLS) || has(libc::CLONE_FILES) {
        // The layer's own variables of a thread are not there; or what the child closes is closed here.
        Kind::Unseen
    } else {
        Kind::Forked
    }
}

/// A child of this kind is about to be made. Returns whether it is to begin as one of fork(2).
fn before(flags: c_ulonglong, is_seen: bool) -> bool {
    // By the number of a process it is told who has a connection: where numbers are others, that cannot be.
    let has_other_numbers = flags & libc::CLONE_NEWPID as c_ulonglong != 0;
    match kind(flags, is_seen) {
        Kind::Own => return false,
        Kind::Unseen => {
            connection::give_all_back(RestoreReason::Fork);
            epoll::nest_all();
            return false;
        }
        Kind::Forked if has_other_numbers => {
            connection::give_all_back(RestoreReason::Fork);
            epoll::nest_all();
        }
        Kind::Forked => {}
    }
    before_fork();
    true
}

/// There is no child, for which connections were had back: they may go to the NIC again.
#[cold]
fn has_failed() {
    epoll::fork_failed();
    connection::all().filter_map(Connection::shared).for_each(sharers::give_up);
}

/// Makes a child by `call`, which returns there, too.
fn fork_by(flags: c_ulonglong, is_seen: bool, call: impl FnOnce() -> c_long) -> c_long {
    let is_forked = vfork::is_own() && before(flags, is_seen);
    let child = call();
    match child {
        0 if is_forked => in_child(),
        ..0 if is_forked => has_failed(),
        _ => {}
    }
    child
}

/// As `fork` by its number. `vfork` is served so, too: a child that returns from the call would have destroyed its parent's
/// stack.
///
/// # Safety
/// The program's call.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn fork_by_number() -> c_long {
    // SAFETY: the program's call; the child has a copy of all memory.
    fork_by(0, true, || unsafe { trap::call(libc::SYS_fork, [0; 6]) })
}

/// clone(2) by its number.
///
/// # Safety
/// The program's call. A child that has another stack finds there what it returns to.
pub(super) unsafe fn clone_by_number(words: [c_long; 6]) -> c_long {
    let [flags, stack, ..] = words;
    // SAFETY: the caller's promise.
    fork_by(flags as c_ulonglong, stack == 0, || unsafe { trap::call(libc::SYS_clone, words) })
}

/// What clone3(2) is given (`struct clone_args`), as far as Linux has had it since the first version.
#[repr(C)]
struct Arguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// clone3(2) by its number.
///
/// # Safety
/// As of [`clone_by_number`].
pub(super) unsafe fn clone3_by_number(words: [c_long; 6]) -> c_long {
    let [at, len, ..] = words;
    let at = at as *const Arguments;
    let is_whole = !at.is_null() && len as usize >= size_of::<Arguments>();
    // SAFETY: the program promises so many bytes, of integers.
    let given = is_whole.then(|| unsafe { at.read_unaligned() });
    let (flags, stack) = given.map_or((0, 1), |given| (given.flags, given.stack));
    // SAFETY: the caller's promise.
    let call = || unsafe { trap::call(libc::SYS_clone3, words) };
    if is_whole { fork_by(flags, stack == 0, call) } else { call() }
}

/// `_Fork` of glibc, which calls no handlers.
///
/// # Safety
/// As `_Fork` of libc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> pid_t {
    // SAFETY: the program's call.
    let call = || unsafe { real!(_Fork(): fn() -> pid_t) };
    fork_by(0, true, || call().into()) as pid_t
}

type Function = unsafe extern "C" fn(*mut c_void) -> c_int;

/// What a child is to do first.
struct First {
    function: Function,
    argument: *mut c_void,
}

/// In a child of [`clone`] that has a copy of the memory.
unsafe extern "C" fn begin(first: *mut c_void) -> c_int {
    // SAFETY: it is on the stack of the thread that made the child, of which that has a copy.
    let First { function, argument } = unsafe { first.cast::<First>().read() };
    in_child();
    // SAFETY: the program's call of clone(2).
    unsafe { function(argument) }
}

/// # Safety
/// As clone(2) of libc, whose last three arguments, if there are any, come where they do here.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    function: Option<Function>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut pid_t,
    tls: *mut c_void,
    child_tid: *mut pid_t,
) -> c_int {
    let call = |function: Option<Function>, argument: *mut c_void| {
        // SAFETY: the program's call; that the function is variadic makes no difference to how pointers are passed.
        unsafe {
            real!(clone(function, stack, flags, argument, parent_tid, tls, child_tid):
                fn(Option<Function>, *mut c_void, c_int, *mut c_void, *mut pid_t, *mut c_void, *mut pid_t) -> c_int)
        }
    };
    let is_forked = vfork::is_own() && before(flags as u32 as c_ulonglong, true);
    match function {
        Some(function) if is_forked => {
            let mut first = First { function, argument };
            let child = call(Some(begin), (&raw mut first).cast());
            if child < 0 {
                has_failed();
            }
            child
        }
        _ => call(function, argument),
    }
}
