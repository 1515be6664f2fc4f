//! `libwharf_rdma.so`: verbs of programs that `wharf run --rdma` starts (`LD_PRELOAD`), in front of libibverbs and
//! librdmacm of rdma-core, with their ABI. None of its objects ever reaches those: each of their functions that takes one is
//! here, if only to fail.
//!
//! Verbs that make and end objects are messages to the device; work and completions go by queues in memory that is shared
//! with it ([`rdma::session`]).
//!
//! | module | what |
//! |---|---|
//! | [`abi`], [`abi_cm`] | structures of the headers |
//! | [`devices`] | the device, its port, contexts |
//! | [`regions`], [`buffers`] | protection domains, memory regions and windows; memory that is allocated for regions |
//! | [`queues`] | completion queues and channels; [`extended_queues`] has `ibv_cq_ex` |
//! | [`pairs`] | queue pairs, shared receive queues; [`posting`] and [`building`] (`ibv_wr_*`) their work |
//! | [`events`] | asynchronous events |
//! | [`ids`] | the connection manager: identifiers; [`connecting`], [`cm_events`], [`endpoints`] and [`addresses`] |
//! | [`strings`], [`refused`] | names; what is not supported |
//! | `objects`, `work_queues`, `identifiers` | what objects of verbs and of the connection manager are here |
//! | `shared` | memory that is a file's |
//! | `session`, `users`, `os` | the device's socket and memory, whose it may be, and the kernel's calls |
//!
//! # What is relied on
//! All functions are C's, called under the contract of their man pages: pointers to objects are those that this library has
//! returned and that were not destroyed, other pointers are readable or writable as far as the headers say, and an object is
//! not destroyed while another thread uses it. Each `unsafe` here rests on that.
// A C interface: see above.
#![allow(unsafe_code, unsafe_op_in_unsafe_fn, clippy::missing_safety_doc)]
// Their man pages are the documentation of the functions.
#![allow(missing_docs)]

pub mod abi;
pub mod abi_cm;
pub mod addresses;
pub mod buffers;
pub mod building;
pub mod cm_events;
pub mod connecting;
pub mod devices;
pub mod endpoints;
pub mod events;
pub mod extended_queues;
pub mod identifiers;
pub mod ids;
mod objects;
mod os;
pub mod pairs;
pub mod posting;
pub mod queues;
pub mod refused;
pub mod regions;
mod session;
mod shared;
pub mod strings;
mod users;
mod work_queues;
