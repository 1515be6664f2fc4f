//! iWARP without IO: RDMA over any ordered byte stream.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ddp;
pub mod mpa;
pub mod rdmap;
