//! Snapshots as bytes: what is written is read again, and nothing else is.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod bytes;
mod config;
mod duplicates;
mod given;
mod persist;
mod refusals;
mod urgent;
