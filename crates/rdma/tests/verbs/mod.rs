//! Verbs over a stream: what completes, what is placed, and what is refused.

mod close;
mod data;
mod denied;
mod fences;
mod laws;
mod objects;
mod order;
mod parked;
mod peers;
mod queues;
mod raw;
mod siw_bugs;
mod terminate;
mod windows;
