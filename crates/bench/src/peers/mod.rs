//! Peers that are no Rust crates: small harnesses in `bench/peers`, built where what they need is
//! installed. Their sources are part of this binary, so it works from anywhere; they are built
//! in a directory that is gone before anything is measured.

mod build;
mod process;

use crate::lro::{Ip, Setting};
use crate::side_by_side::{Runner, System};
use build::Scratch;
use process::Peer;

/// `rte_gro_param.max_flow_num` has 16 bits.
const DPDK_FLOWS_MAX: u32 = 65_535;

/// wireguard-go's `handleGRO`.
pub(crate) fn wireguard_go() -> Result<Box<dyn Runner>, String> {
    let scratch = Scratch::new("wireguard-go")?;
    let program = build::wireguard_go(&scratch)?;
    let arguments = ["-test.run=^TestWharfPeer$", "-test.timeout=0"];
    let left_out =
        |setting: Setting| (!setting.verify).then_some("without verification: it always verifies");
    Ok(Box::new(Peer::start(System::WireguardGo, &program, &arguments, left_out)?))
}

/// gVisor's `gro.GRO`.
pub(crate) fn gvisor() -> Result<Box<dyn Runner>, String> {
    let scratch = Scratch::new("gvisor")?;
    let program = build::gvisor(&scratch)?;
    Ok(Box::new(Peer::start(System::Gvisor, &program, &[], |_| None)?))
}

/// DPDK's `rte_gro_reassemble_burst` and `rte_gro_reassemble`.
pub(crate) fn dpdk() -> Result<Box<dyn Runner>, String> {
    let scratch = Scratch::new("dpdk")?;
    let program = build::dpdk(&scratch)?;
    let left_out = |setting: Setting| {
        if setting.verify {
            Some("with verification: it verifies no checksum")
        } else if setting.ip == Ip::V6 {
            Some("with IPv6: it merges TCP over IPv4 only")
        } else if setting.flows > DPDK_FLOWS_MAX {
            Some("at 65,536 flows: its max_flow_num has 16 bits")
        } else {
            None
        }
    };
    Ok(Box::new(Peer::start(System::Dpdk, &program, &[], left_out)?))
}
