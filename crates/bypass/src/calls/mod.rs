//! libc's functions, as this library has them.

#[cfg(target_arch = "x86_64")]
mod before;
mod children;
mod data;
mod epoll;
mod files;
mod held;
mod messages;
mod options;
mod own;
mod pipes;
mod poll;
mod process;
mod raw;
mod select;
mod sockets;
mod spawn;
mod stream;
mod threads;
mod transfer;
