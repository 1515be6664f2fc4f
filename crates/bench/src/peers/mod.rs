//! Peers that are no Rust crates: small harnesses in `bench/peers`, built where what they need is
//! installed. Their sources are part of this binary, so it works from anywhere; they are built
//! in a directory that is gone before anything is measured. One harness serves all benches.

mod build;
mod process;

use std::path::{Path, PathBuf};

use crate::System;
use crate::side_by_side::{Found, Workload};
use build::Scratch;
use process::Peer;

/// Why peers that are Rust crates are absent, where they are.
#[cfg(not(feature = "peers"))]
pub(crate) const NOT_BUILT_IN: &str = "wharf was built without the feature `peers`";

/// Why a peer has no part in a workload; see [`Runner::left_out`].
///
/// [`Runner::left_out`]: crate::side_by_side::Runner::left_out
pub(crate) type LeftOut<W> = fn(&W) -> Option<&'static str>;

/// wireguard-go's `handleGRO`.
pub(crate) fn wireguard_go<W: Workload + 'static>(left_out: LeftOut<W>) -> Found<W> {
    let scratch = Scratch::new("wireguard-go")?;
    let program = build::wireguard_go(&scratch)?;
    let arguments = ["-test.run=^TestWharfPeer$", "-test.timeout=0"];
    Ok(Box::new(Peer::start(System::WireguardGo, &program, &arguments, left_out)?))
}

/// gVisor's `gro.GRO`.
pub(crate) fn gvisor<W: Workload + 'static>(left_out: LeftOut<W>) -> Found<W> {
    let scratch = Scratch::new("gvisor")?;
    let program = build::gvisor(&scratch)?;
    Ok(Box::new(Peer::start(System::Gvisor, &program, &[], left_out)?))
}

/// DPDK's `rte_gro_reassemble_burst` and `rte_gro_reassemble`.
pub(crate) fn dpdk<W: Workload + 'static>(left_out: LeftOut<W>) -> Found<W> {
    let scratch = Scratch::new("dpdk")?;
    let program = build::dpdk(&scratch)?;
    Ok(Box::new(Peer::start(System::Dpdk, &program, &[], left_out)?))
}

/// A program that is there for as long as this is.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    _scratch: Scratch,
}

impl Program {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn build(name: &str, build: fn(&Scratch) -> Result<PathBuf, String>) -> Result<Self, String> {
        let scratch = Scratch::new(name)?;
        Ok(Program { path: build(&scratch)?, _scratch: scratch })
    }
}

/// gVisor's TCP.
pub(crate) fn gvisor_tcp() -> Result<Program, String> {
    Program::build("gvisor-tcp", build::gvisor_tcp)
}

/// A program of verbs and of sockets, for `rdma`.
pub(crate) fn verbs() -> Result<Program, String> {
    Program::build("verbs", build::verbs)
}

/// libfabric's TCP, for `rdma`.
pub(crate) fn fabric() -> Result<Program, String> {
    Program::build("fabric", build::fabric)
}

/// A program of verbs and of sockets, for `rdma-wan`.
pub(crate) fn rdma_wan() -> Result<Program, String> {
    Program::build("rdma-wan", build::rdma_wan)
}

/// lwIP's TCP.
pub(crate) fn lwip() -> Result<Program, String> {
    Program::build("lwip", build::lwip)
}
