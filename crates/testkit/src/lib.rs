//! What wharf's tests share.
//!
//! - [`packet`]: frames written field by field, super-packets with their `virtio_net_hdr`.
//! - [`verify`]: an independent, naive verifier of lengths and checksums.

pub mod packet;
pub mod verify;
