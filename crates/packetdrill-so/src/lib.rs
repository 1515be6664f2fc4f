//! The TCP engine as packetdrill loads it: `packetdrill --so_filename=libwharf_packetdrill.so SCRIPT`.
//!
//! packetdrill asks `packetdrill_interface_init` for a table of
//! functions and uses them in place of system calls, of its TUN interface and of the clock. Time is
//! virtual: it passes when packetdrill sleeps or waits for a packet, and not otherwise.
//!
//! A socket begins with the settings (`net.ipv4.tcp_*`) of the network namespace in which packetdrill
//! runs, as far as the engine has them, and with super-packets if `tun0` there has GSO: the scripts set
//! both.
//!
//! packetdrill reads `struct tcp_info` with its own getsockopt(), past the table. If this object is
//! preloaded as well (`LD_PRELOAD`), module `preload` answers that for descriptors of the engine.
// C calls us with its pointers. Each block says what C promises about them.
#![allow(unsafe_code)]

mod calls;
mod init;
mod interface;
mod memory;
mod options;
mod preload;
mod time;
mod waiting;
mod world;
