//! The tests of `wharf` as one program, which is compiled and linked once.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod bench_gso;
mod bench_lro;
mod bench_paper;
mod bench_tcp;
mod cli;
mod docs;
mod pcap;
