//! `libwharf.so`: the bypass layer of TCP connection handoff, loaded into a program by `wharf run` (`LD_PRELOAD`).
//!
//! It stands in front of libc's socket calls. A connection that the policy picks is offered to the NIC; from then on its
//! calls are served by rings in memory that is shared with wharf, without a system call where data flows. **What the
//! layer sees and cannot serve, it serves by having the connection restored to the kernel first.** Calls that concern no
//! such connection go to libc after one load.
//!
//! | module | what |
//! |---|---|
//! | `calls` | libc's functions, by kind |
//! | `connection` | one connection: offered, read, written, restored |
//! | `connection::epoll` | the registrations of connections in epoll sets |
//! | `table`, `pool` | what each descriptor is, and where that lies |
//! | `own` | descriptors of the layer's own |
//! | `sharers` | which processes have a connection, after fork(2) |
//! | `vfork` | children that have this process's memory, and descriptors of their own |
//! | `session` | each wharf: its socket, its memory, its rings of commands; which there are |
//! | `lock` | a lock that knows its thread |
//! | `timeout` | how long the library waits for wharf, and what comes then |
//! | `cancel` | threads that are cancelled |
//! | `policy` | by which policy connections are offered |
//! | `build` | of which build the library is |
//! | `names` | the ends of connections |
//! | `os`, `trap`, `real` | the kernel's calls, and libc's own functions |
//!
//! There is no thread of the layer's own: all is done in the program's calls. A handler of a signal may make such a call
//! in the middle of another one (signal-safety(7)). So those that POSIX lets it make allocate nothing where connections
//! are read and written; they wait with no lock; and a lock that their own thread has they do without.
// A C interface, called by whatever the program is: each block says on what of the callers it relies.
#![allow(unsafe_code)]
// The functions are for the dynamic linker, by their names.
#![allow(unreachable_pub)]

mod build;
mod calls;
mod cancel;
mod connection;
mod lock;
mod names;
mod os;
mod own;
mod policy;
mod pool;
mod real;
mod session;
mod sharers;
mod table;
mod timeout;
mod trap;
mod vfork;
