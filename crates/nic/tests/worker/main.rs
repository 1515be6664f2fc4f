//! A worker between a wire and a host in memory, in virtual time.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod acknowledge;
mod both_ways;
mod inward;
mod outward;
mod rig;
mod two_way;
