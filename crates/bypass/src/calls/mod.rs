//! libc's functions, as this library has them.

mod data;
mod files;
mod messages;
mod options;
mod process;
mod raw;
mod sockets;
mod stream;
mod wait;
