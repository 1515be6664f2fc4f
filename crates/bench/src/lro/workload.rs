//! The input of every system: the same segments in the same order.
//!
//! In each round every flow sends [`SEGMENTS`] segments of [`PAYLOAD`] bytes. Flows take turns
//! packet by packet; in which order a flow's own segments come, its [`Case`] says. A system gets
//! them in bursts of [`BURST`], which lie ready in its buffers: only what it does with them is
//! timed. Buffers are few and used again, so that frames are in the cache as a NIC's ring
//! would have them.

use wire::{ETHERNET_LEN, Flags, checksum, protocol};

use super::case::{Case, ORDERS, SEGMENTS};
use super::{Setting, figure};
use crate::packet::{self, Ip};
use crate::side_by_side::{self, Total};
use crate::{Figure, System};

/// Payload of a segment: an MTU of 1,500 with IPv4 and timestamps.
pub(crate) const PAYLOAD: usize = 1448;
/// Frames handed over between two looks at the clock; wireguard-go's and tun-rs' ideal batch, and
/// the most that DPDK takes.
pub(crate) const BURST: usize = 128;
/// At least so many packets make a lap, the shortest time that is looked at.
pub(crate) const LAP: usize = 16_384;

/// The segments of one case at one setting.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) case: Case,
    pub(crate) setting: Setting,
    orders: Vec<u16>,
    /// The segment with source port and sequence number 0.
    frame: Vec<u8>,
    /// Where the TCP header begins.
    transport_at: usize,
    /// Its checksum, complemented.
    sum: u32,
}

impl Workload {
    pub(crate) fn new(case: Case, setting: Setting) -> Workload {
        let transport_at = ETHERNET_LEN + setting.ip.header_len();
        let frame = frame(setting.ip);
        let sum = [frame[transport_at + 16], frame[transport_at + 17]];
        let sum = u32::from(!u16::from_be_bytes(sum));
        Workload { case, setting, orders: case.orders(), frame, transport_at, sum }
    }

    /// A frame to [`write`](Self::write) into.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Packets of a round.
    pub(crate) fn round(&self) -> usize {
        self.setting.flows as usize * SEGMENTS
    }

    /// Makes `headers`, Ethernet to TCP options at least, those of the next segment of the stream,
    /// if they were those of another.
    pub(crate) fn write(&self, headers: &mut [u8], stream: &mut Stream) {
        let (flow, seq) = stream.next(self);
        let tcp = &mut headers[self.transport_at..];
        tcp[..2].copy_from_slice(&flow.to_be_bytes());
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        // RFC 1624: the checksum moves with the words that change.
        let mut sum = self.sum + u32::from(flow) + (seq >> 16) + (seq & 0xffff);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        tcp[16..18].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
}

impl side_by_side::Workload for Workload {
    const BENCH: &'static str = "lro";

    /// Ten numbers of 32 bits, the orders with 16 bits a number, and the frame; little-endian.
    fn to_bytes(&self) -> Vec<u8> {
        let numbers = [SEGMENTS, ORDERS, PAYLOAD, BURST, LAP, self.transport_at, self.frame.len()];
        let Setting { flows, verify, .. } = self.setting;
        let numbers = numbers.into_iter().map(|n| n as u32);
        let numbers = numbers.chain([flows, self.sum, verify.into()]);
        let mut bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
        bytes.extend(self.orders.iter().flat_map(|n| n.to_le_bytes()));
        bytes.extend(&self.frame);
        bytes
    }

    fn figures(&self, system: System, total: Total) -> Vec<Figure> {
        let mean_aggregate = total.packets as f64 * PAYLOAD as f64 / total.large as f64;
        let values = [("ns_per_packet", total.ns_per_packet), ("mean_aggregate", mean_aggregate)];
        values.map(|(metric, value)| figure(self.case, self.setting, system, metric, value)).into()
    }
}

/// Where in the endless stream of segments a system is.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stream {
    round: u32,
    turn: usize,
    flow: u32,
}

impl Stream {
    /// Source port and sequence number of the next segment.
    fn next(&mut self, workload: &Workload) -> (u16, u32) {
        let flow = self.flow;
        let order = flow.wrapping_add(self.round) as usize % ORDERS;
        let segment = u32::from(workload.orders[order * SEGMENTS + self.turn]);
        let segment = self.round.wrapping_mul(SEGMENTS as u32).wrapping_add(segment);
        self.flow += 1;
        if self.flow == workload.setting.flows {
            self.flow = 0;
            self.turn += 1;
            if self.turn == SEGMENTS {
                self.turn = 0;
                self.round = self.round.wrapping_add(1);
            }
        }
        (flow as u16, segment.wrapping_mul(PAYLOAD as u32))
    }
}

/// The segment from port 0 with sequence number 0, complete.
fn frame(ip: Ip) -> Vec<u8> {
    let mut tcp = packet::tcp_header(Flags::ACK).to_vec();
    tcp.extend(packet::payload(PAYLOAD));
    let (mut frame, pseudo_header) = packet::ethernet_and_ip(ip, protocol::TCP, tcp.len());
    let sum = checksum::sum(&tcp).plus(pseudo_header).complement();
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    frame.extend(tcp);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side_by_side::Workload as _;
    use std::collections::HashSet;

    /// Every frame of a round verifies, and each flow sends each of its segments once.
    #[test]
    fn a_round_has_every_segment_of_every_flow_once() {
        for ip in [Ip::V4, Ip::V6] {
            for case in Case::ALL {
                let workload = Workload::new(case, Setting { flows: 3, ip, verify: true });
                let mut frame = workload.frame().to_vec();
                // Sequence numbers wrap in the last round.
                for round in [0, 1, u32::MAX] {
                    let mut stream = Stream { round, ..Stream::default() };
                    let mut seen = HashSet::new();
                    for n in 0..workload.round() {
                        workload.write(&mut frame, &mut stream);
                        testkit::verify::checksums(&frame).unwrap();
                        let tcp = &frame[workload.transport_at..];
                        assert_eq!(usize::from(u16::from_be_bytes([tcp[0], tcp[1]])), n % 3);
                        seen.insert((tcp[1], tcp[4..8].to_vec()));
                    }
                    assert_eq!(seen.len(), workload.round());
                }
            }
        }
    }

    #[test]
    fn what_peers_read_is_as_long_as_it_says() {
        let setting = Setting { flows: 65_536, ip: Ip::V4, verify: false };
        let workload = Workload::new(Case::Swap, setting);
        let bytes = workload.to_bytes();
        assert_eq!(bytes.len(), 10 * 4 + ORDERS * SEGMENTS * 2 + workload.frame().len());
        assert_eq!(bytes[28..32], 65_536u32.to_le_bytes());
    }
}
