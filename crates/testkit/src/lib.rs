//! Tools of wharf's tests.
//!
//! - [`browser`]: pages in a real browser.
//! - [`bytes`]: input of a fuzzed test, taken piece by piece.
//! - [`firewall`]: rules of nftables, without nft(8).
//! - [`gro`]: the local kernel's GRO as an oracle of what may be merged.
//! - [`lab`]: hosts in network namespaces, wires between them, programs on them.
//! - [`lossy`]: a wire that loses some frames and reorders others.
//! - [`missing`]: tests that this machine cannot run.
//! - [`packet`]: frames written field by field, super-packets with their `virtio_net_hdr`.
//! - [`reassemble`]: an independent, naive reassembler of IP fragments.
//! - [`sctp`]: SCTP packets of chunks, and their CRC32c by its definition.
//! - [`snmp`]: counters of a host's kernel for received packets.
//! - [`verify`]: an independent, naive verifier of lengths and checksums.

pub mod browser;
pub mod bytes;
pub mod firewall;
pub mod forms;
pub mod gro;
pub mod icmp;
pub mod lab;
pub mod lossy;
pub mod missing;
pub mod packet;
mod pattern;
pub mod reassemble;
pub mod sctp;
pub mod snmp;
pub mod verify;
