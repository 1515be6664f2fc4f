//! TCP connections of programs that no library is loaded into: static ones, those in Go, those that use io_uring.
//!
//! A supervisor, a process beside the program, answers some of its system calls (seccomp_unotify(2)). Where the program
//! accepts or connects, it gets one end of a pair of Unix sockets in place of the TCP socket. The supervisor has the other
//! end, and the TCP socket, and moves the bytes between them. What the program does with its end is the kernel's: read,
//! write, epoll, sendfile, splice, io_uring, fork, exec. Only names and options are asked of the supervisor, who asks the
//! TCP socket.
//!
//! The supervisor knows nothing of the NIC. It makes libc's calls on its TCP sockets, and `wharf run` has loaded
//! `libwharf.so` into it: that offers its connections to the NIC, serves the calls there, and has them back at the kernel,
//! as it does in any program.
//!
//! | module | what |
//! |---|---|
//! | `supervisor` | what waits, and what comes next |
//! | `call`, `caller` | what a program has called with, and its thread: its memory and its descriptors |
//! | `accepts`, `connects` | calls that make connections, and those of them that wait |
//! | `wakes` | listeners that are to be ready for a connection that no call has got |
//! | `theirs` | files of the program's, which it may take long to close |
//! | `options` | which of a connection's sockets an option is of |
//! | `relays`, `relay` | connections, and the bytes of each |
//!
//! The program may be hostile. What is read of its memory is copied and then judged, and counts only if the call waited
//! afterwards still. It can make its own supervisor wait, and no other. The supervisor does for it what the program could do
//! itself: it connects by the program's own sockets, and keeps no right but to look at the program.

mod accepts;
mod call;
mod caller;
mod connects;
mod options;
mod relay;
mod relays;
mod supervisor;
mod theirs;
mod wakes;

pub use call::{CALLS, FLAGGED};
pub use supervisor::Supervisor;
