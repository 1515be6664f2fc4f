//! wharf as its users run it: the built program, real kernels' TCP/IP and real programs, on hosts
//! made of network namespaces.
//!
//! Each test says why it skips where it lacks a privilege or a program. None depends on speed.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

mod bench;
mod beside;
mod changes;
mod control;
mod costs;
mod degen;
mod demo;
mod differential;
mod ends;
mod follows;
mod forwards;
mod handoff;
mod handoff_captured;
mod handoff_descriptors;
mod handoff_doctor;
mod handoff_ends;
mod handoff_forms;
mod handoff_host;
mod handoff_hostile;
mod handoff_idle;
mod handoff_in_place;
mod handoff_info;
mod handoff_kept;
mod handoff_memory;
mod handoff_nics;
mod handoff_obstacles;
mod handoff_processes;
mod handoff_programs;
mod handoff_reasons;
mod handoff_refused;
mod handoff_seen;
mod handoff_stopped;
mod handoff_unsent;
mod handoff_waits;
mod handoff_workers;
mod leases;
mod logged;
mod paper;
mod quic;
mod rdma;
mod received;
mod refused;
mod running;
mod runtimes;
mod segments;
mod setup;
mod shared;
mod silent;
mod storm;
mod tagged;
mod tcp;
mod through;
mod traffic;
mod transmit;
mod tunnels;
mod udp;
