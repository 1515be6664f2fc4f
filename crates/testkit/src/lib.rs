//! What wharf's tests share.
//!
//! - [`browser`]: pages in a real browser.
//! - [`bytes`]: what a fuzzed test decides by.
//! - [`gro`]: the local kernel as an oracle of what may merge.
//! - [`lab`]: hosts in network namespaces, wires between them, programs on them.
//! - [`lossy`]: a wire that loses some frames and turns others around.
//! - [`missing`]: what a test needs and this machine lacks.
//! - [`packet`]: frames written field by field, super-packets with their `virtio_net_hdr`.
//! - [`reassemble`]: an independent, naive reassembler of IP fragments.
//! - [`sctp`]: SCTP packets of chunks, and their CRC32c by its definition.
//! - [`snmp`]: what a host's kernel counts of what it received.
//! - [`verify`]: an independent, naive verifier of lengths and checksums.

pub mod browser;
pub mod bytes;
pub mod gro;
pub mod lab;
pub mod lossy;
pub mod missing;
pub mod packet;
mod pattern;
pub mod reassemble;
pub mod sctp;
pub mod snmp;
pub mod verify;
