//! The paper on connection handoff: instructions of the bypass layer and of the NIC.

use std::time::Duration;

use super::handoff::{ByPlace, library, options};
use super::{Judge, Run, Scale, Scenario, Series, XAxis, YAxis};
use crate::handoff::{Case, Options, handoff};
use crate::paper::parameters::Parameters;
use crate::{Error, Report};

/// Figure 7's bypass layer, and Table 2.
pub(in crate::paper) fn instructions() -> Scenario {
    let series = |id, metric, label| Series::new(id, "nic", metric, label);
    Scenario {
        x: XAxis {
            label: "connections at the NIC",
            unit: "",
            words: " connections",
            scale: Scale::Log2,
        },
        y: YAxis {
            label: "Instructions, and misses of caches",
            unit: "a packet",
            factor: 1.0,
            scale: Scale::Log10,
        },
        series: vec![
            series("bypass", "bypass_instructions_per_packet", "bypass layer"),
            series("bypass_copy", "bypass_copy_instructions_per_packet", "bypass layer, copy"),
            series("nic", "nic_instructions_per_packet", "NIC"),
            series("handoff", "nic_handoff_instructions_per_packet", "NIC, handoff interface"),
            series("tcp", "nic_tcp_instructions_per_packet", "NIC, TCP"),
            series(
                "ip_ethernet",
                "nic_ip_ethernet_instructions_per_packet",
                "NIC, IP and Ethernet",
            ),
            series("other", "nic_other_instructions_per_packet", "NIC, other"),
            series(
                "bypass_data_misses",
                "bypass_data_misses_per_packet",
                "bypass layer, L1 data misses",
            ),
            series(
                "bypass_misses",
                "bypass_last_level_misses_per_packet",
                "bypass layer, L2 misses",
            ),
            series("nic_data_misses", "nic_data_misses_per_packet", "NIC, L1 data misses"),
            series("nic_misses", "nic_last_level_misses_per_packet", "NIC, L2 misses"),
        ],
        points: vec![1, 256],
        quick: vec![1],
        run: Run::Instructions,
        // Processes that begin under callgrind.
        overhead: Duration::from_secs(15),
        at_least: Duration::from_secs(4),
        judge: Judge::Published { subjects: &["nic", "bypass"] },
        differs: "callgrind counts instructions outside the kernel alone. The paper's card has no kernel; \
                  wharf has Linux for the last step to the wire, and what its system calls do is left \
                  out. A program's calls are none with handoff, unless they have to wait. \
                  The bypass layer is libwharf.so without its copy of the payload, which the paper has in \
                  its layer for system calls: callgrind counts that once for each byte, although it is one \
                  instruction. A function of Rust's libraries or of libc is of the part that called it; \
                  what the compiler has joined is of the part that it was joined to. Misses are not the \
                  machine's: callgrind simulates the caches of the paper's host, 64 KB for data and 256 KB \
                  in all, for each of both processes, without prefetching. Under \
                  callgrind both are some tens of times slower, and clocks and the kernel are not: a worker \
                  finds less to do in a turn, and what it does by the clock, such as publishing \
                  its counters, comes more often a packet. With 256 connections each has a buffer of 64 KB, so that all \
                  are full before the count begins. The wire's port is that of the other figures. \
                  A message is a segment, 1,448 bytes with timestamps; the paper's has 1,460.",
    }
}

pub(super) fn run(
    connections: u32,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let usual = options(Case::Instructions, library(parameters)?, parameters);
    let options = Options { counted: vec![connections as usize], ..usual };
    handoff(&options, &mut ByPlace(report))
}
