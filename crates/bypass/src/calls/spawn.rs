//! Children that libc makes inside, to execute another program: posix_spawn(3), system(3), popen(3). They have the
//! descriptors that execve(2) does not close, and those that they are told to have.

use libc::{c_char, c_int, c_void, pid_t};

use super::process;
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

/// Its kind where it is of dup2(2): `spawn_do_dup2`.
const DUP2: c_int = 1;

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
    process::inherits(|fd| all.iter().any(|action| action.kind == DUP2 && action.fd == fd));
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
