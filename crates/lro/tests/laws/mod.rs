//! The laws of receive offload, over traces of every kind, and Linux's rules one by one.

mod acknowledge;
mod acks;
mod aggregate;
mod arbitrary;
mod bounds;
mod conservation;
mod delivery;
mod forged;
mod holes;
mod honest;
mod host;
mod merging;
mod model;
mod naive;
mod no_link;
mod paper;
mod paths;
mod patterns;
mod receiver;
mod reorder;
mod rules;
mod run;
mod sent;
mod trace;
mod udp;
mod untouched;
