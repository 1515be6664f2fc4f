//! Verbs over a stream: what completes, what is placed, and what is refused.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod close;
mod data;
mod denied;
mod fences;
mod laws;
mod objects;
mod order;
mod peers;
mod queues;
mod raw;
mod siw_bugs;
mod terminate;
mod windows;
#[path = "../world/mod.rs"]
mod world;
