//! A worker between a wire and a host in memory, in virtual time.

mod acknowledge;
mod both_ways;
mod inward;
mod outward;
mod refused;
mod rig;
mod two_way;
