//! The operating system's interfaces that wharf needs: TAP, AF_XDP, AF_PACKET, netlink, ethtool, namespaces,
//! processes, clocks. This crate knows no protocols: the contents of a frame are for `wire` and the crates
//! above it.
//!
//! All calls are for the calling thread's network namespace, block only where their name implies it, and
//! return an [`Error`] (the operation, the interface, and the kernel's error) or a plain [`std::io::Error`]
//! where the caller already knows the rest.
// System calls are `unsafe` by nature. They are gathered here so that every other crate can do
// without; each block argues why the safe function around it is sound.
#![allow(unsafe_code)]

pub mod affinity;
mod alarm;
pub mod allocator;
pub mod bpf;
pub mod calls;
pub mod capability;
pub mod cgroup;
pub mod clock;
pub mod entropy;
pub mod epoll;
mod error;
pub mod ethtool;
pub mod executable;
pub mod foreign;
pub mod frames;
pub mod futex;
pub mod handoff;
pub mod ingress;
mod mapping;
pub mod memory;
pub mod memory_file;
pub mod netlink;
pub mod netns;
pub mod notify;
pub mod packet;
pub mod packets;
pub mod poll;
pub mod process;
pub mod process_memory;
pub mod seccomp;
pub mod shared;
pub mod shared_event;
mod sockopt;
pub mod spin;
pub mod stream;
pub mod sysctl;
pub mod sysfs;
pub mod tap;
pub mod tcp;
pub mod traced;
pub mod udp;
pub mod unix;
mod vectored;
mod versions;
pub mod xdp;
pub mod xtables;

pub use error::{Error, Result};
pub use netlink::interface;
pub use versions::Versions;
