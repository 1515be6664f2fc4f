//! Functions of libc's that take as many arguments as a program likes, and end in system calls of libc's own. Something is
//! done before; libc's function goes on with all arguments where they are.

use std::ffi::c_void;

use handoff::RestoreReason;
use libc::c_int;

use super::process;
use crate::connection;
use crate::os;
use crate::real::{Real, named};
use crate::vfork;

/// A function that does `$work` with the first argument before it is libc's.
macro_rules! before {
    ($($name:ident: $work:path;)*) => {$(
        /// # Safety
        /// As the function of libc's of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            extern "C" fn work(first: usize) -> *mut c_void {
                static REAL: Real = named!($name);
                let errno = os::errno();
                $work(first);
                os::set_errno(errno);
                REAL.get()
            }
            // All registers in which arguments are, those of numbers as well, and how many of these there are
            // (System V ABI for x86-64, section 3.2.3). The stack is aligned for the call: 16 bytes for the return address
            // and rbp, 56 for seven words, 136 for eight registers of 16 bytes and 8 more.
            std::arch::naked_asm!(
                "push rbp",
                "mov rbp, rsp",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "sub rsp, 136",
                "movups [rsp], xmm0",
                "movups [rsp + 16], xmm1",
                "movups [rsp + 32], xmm2",
                "movups [rsp + 48], xmm3",
                "movups [rsp + 64], xmm4",
                "movups [rsp + 80], xmm5",
                "movups [rsp + 96], xmm6",
                "movups [rsp + 112], xmm7",
                "call {work}",
                "mov r11, rax",
                "movups xmm0, [rsp]",
                "movups xmm1, [rsp + 16]",
                "movups xmm2, [rsp + 32]",
                "movups xmm3, [rsp + 48]",
                "movups xmm4, [rsp + 64]",
                "movups xmm5, [rsp + 80]",
                "movups xmm6, [rsp + 96]",
                "movups xmm7, [rsp + 112]",
                "add rsp, 136",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "pop rbp",
                "jmp r11",
                work = sym work,
            )
        }
    )*};
}

before! {
    execl: executes;
    execlp: executes;
    execle: executes;
    system: spawns;
    popen: spawns;
    dprintf: writes;
    vdprintf: writes;
    __dprintf_chk: writes;
    __vdprintf_chk: writes;
}

/// Another program is to take the place of this one.
fn executes(_path: usize) {
    process::before_exec();
    if !vfork::is_own() {
        vfork::leave();
    }
}

/// A shell is to be executed by a child that libc makes inside.
fn spawns(command: usize) {
    if command != 0 {
        process::inherits(os::outlives_exec);
    }
}

/// libc writes to this descriptor.
fn writes(fd: usize) {
    if let Some(connection) = connection::at(fd as c_int) {
        connection.restore(RestoreReason::Unserved);
    }
}
