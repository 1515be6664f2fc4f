//! The operating system as wharf needs it: TAP, AF_XDP, AF_PACKET, netlink, ethtool, namespaces,
//! processes, clocks. This crate knows nothing of protocols: what is inside a frame is the concern
//! of `wire` and those above it.
//!
//! Everything here speaks to the Linux kernel of the calling thread's network namespace, blocks
//! only where its name says so, and reports failure as [`Error`] (what was tried, on which
//! interface, and the kernel's own words) or as a plain [`std::io::Error`] where the caller already
//! knows the rest.
// System calls are `unsafe` by nature. They are gathered here so that every other crate can do
// without; each block argues why the safe function around it is sound.
#![allow(unsafe_code)]

pub mod affinity;
pub mod allocator;
pub mod capability;
pub mod cgroup;
pub mod clock;
pub mod epoll;
mod error;
pub mod ethtool;
pub mod frames;
pub mod ingress;
mod mapping;
pub mod memory;
pub mod netlink;
pub mod netns;
pub mod packet;
pub mod poll;
pub mod process;
mod sockopt;
pub mod sysctl;
pub mod sysfs;
pub mod tap;
pub mod tcp;
pub mod udp;
pub mod unix;
pub mod xdp;

pub use error::{Error, Result};
pub use netlink::interface;
