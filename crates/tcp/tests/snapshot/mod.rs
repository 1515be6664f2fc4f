//! Snapshots as bytes: what is written is read again, and nothing else is.

mod bytes;
mod config;
mod duplicates;
mod persist;
mod refusals;
mod urgent;
