//! Children that libc makes inside, to execute another program: posix_spawn(3), system(3), popen(3). They have the
//! descriptors that execve(2) does not close, and those that they are told to have.

use libc::{c_char, c_int, c_void, pid_t};

use super::process;
use crate::os;
use crate::real::real;

/// The beginning of `posix_spawn_file_actions_t`, as glibc has it since 2.2.
#[repr(C)]
struct Actions {
    allocated: c_int,
    used: c_int,
    all: *const Action,
}

/// `struct __spawn_action` of glibc's.
#[repr(C)]
struct Action {
    kind: c_int,
    unused: c_int,
    fd: c_int,
    new: c_int,
    /// Of those that have a path.
    rest: [usize; 2],
}

/// Kinds of actions: `spawn_do_close` and so on, in their order.
const CLOSE: c_int = 0;
const DUP2: c_int = 1;
const OPEN: c_int = 2;
const CLOSE_FROM: c_int = 5;

/// Numbers by which a child has one descriptor of its parent's; more than are counted.
struct Numbers {
    all: [c_int; 8],
    count: usize,
    is_full: bool,
}

impl Numbers {
    fn has(&self, fd: c_int) -> bool {
        self.all[..self.count].contains(&fd)
    }

    fn add(&mut self, fd: c_int) {
        if self.has(fd) {
            return;
        }
        match self.all.get_mut(self.count) {
            Some(place) => {
                *place = fd;
                self.count += 1;
            }
            None => self.is_full = true,
        }
    }

    fn retain(&mut self, stays: impl Fn(c_int) -> bool) {
        let before = self.count;
        self.count = 0;
        for at in 0..before {
            let fd = self.all[at];
            if stays(fd) {
                self.all[self.count] = fd;
                self.count += 1;
            }
        }
    }
}

/// Returns true if the program has the descriptor `fd` of this process's after these actions, done one after the other
/// (posix_spawn(3)), and execve(2).
fn gets(actions: &[Action], fd: c_int) -> bool {
    let mut has = Numbers { all: [0; 8], count: 0, is_full: false };
    has.add(fd);
    // Of its own number, which execve(2) may close. What dup2(2) makes stays open.
    let mut is_copied = false;
    for Action { kind, fd: of, new, .. } in actions {
        match *kind {
            CLOSE | OPEN => has.retain(|one| one != *of),
            CLOSE_FROM => has.retain(|one| one < *of),
            DUP2 if has.has(*of) => {
                is_copied |= *new == fd;
                has.add(*new);
            }
            DUP2 => has.retain(|one| one != *new),
            _ => continue,
        }
        is_copied &= has.has(fd);
    }
    let is_elsewhere = has.all[..has.count].iter().any(|one| *one != fd);
    is_elsewhere || has.is_full || has.has(fd) && (is_copied || os::outlives_exec(fd))
}

/// A child is about to be made with these actions.
///
/// # Safety
/// They are null, or as libc has written them.
unsafe fn spawns(actions: *const c_void) {
    // SAFETY: the caller's promise.
    let actions = unsafe { actions.cast::<Actions>().as_ref() };
    let all = actions.filter(|actions| actions.used > 0 && !actions.all.is_null());
    // SAFETY: libc has written so many.
    let all = all.map(|all| unsafe { std::slice::from_raw_parts(all.all, all.used as usize) });
    let all = all.unwrap_or_default();
    process::inherits(|fd| gets(all, fd));
}

macro_rules! spawning {
    ($($name:ident;)*) => {$(
        /// # Safety
        /// As the function of libc's of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            child: *mut pid_t,
            file: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: *const *const c_char,
            environment: *const *const c_char,
        ) -> c_int {
            // SAFETY: the program's call.
            unsafe {
                spawns(actions);
                real!($name(child, file, actions, attributes, arguments, environment):
                    fn(*mut pid_t, *const c_char, *const c_void, *const c_void, *const *const c_char,
                        *const *const c_char) -> c_int)
            }
        }
    )*};
}

spawning! {
    posix_spawn;
    posix_spawnp;
}
