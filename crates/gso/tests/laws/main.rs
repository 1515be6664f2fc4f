//! The laws of segmentation and of checksum completion, as properties and as examples.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod completion;
mod datagrams;
mod fragment_ids;
mod fragments;
mod hostile;
mod kernel;
mod kernel_fragments;
mod mtu;
mod outcome;
mod refusals;
mod sctp;
mod segments;
mod super_packets;
mod tunnel;
