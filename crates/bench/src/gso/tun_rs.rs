//! tun-rs' GSO, in process: `gso_split`. It takes an IP packet and writes IP packets into buffers
//! of their own, payload included, and computes their checksums.

use std::time::{Duration, Instant};

use tun_rs::VirtioNetHdr;
use wire::ETHERNET_LEN;

use super::workload::Workload;
use crate::packet::Ip;
use crate::side_by_side::{Lap, Runner, Sample, laps};
use crate::{Error, System};

#[derive(Default)]
pub(super) struct TunRs {
    packet: Vec<u8>,
    buffers: Vec<Vec<u8>>,
    sizes: Vec<usize>,
}

impl TunRs {
    fn split(&mut self, workload: &Workload, hdr: VirtioNetHdr) -> Result<usize, Error> {
        let is_v6 = workload.case.ip() == Ip::V6;
        tun_rs::gso_split(&mut self.packet, hdr, &mut self.buffers, &mut self.sizes, 0, is_v6)
            .map_err(|error| failed(error.to_string()))
    }

    fn lap(&mut self, workload: &Workload, hdr: VirtioNetHdr) -> Result<Lap, Error> {
        let begin = Instant::now();
        let mut segments = 0;
        for _ in 0..workload.lap() {
            segments += self.split(workload, hdr)?;
        }
        let time = begin.elapsed();
        Ok(Lap { time, packets: segments as u64, large: workload.lap() as u64 })
    }

    fn check(&mut self, workload: &Workload, hdr: VirtioNetHdr) -> Result<(), Error> {
        let segments = self.split(workload, hdr)?;
        let sized = self.buffers.iter().zip(&self.sizes).take(segments);
        let packets: Vec<&[u8]> = sized.map(|(buffer, &size)| &buffer[..size]).collect();
        workload.check(&packets).map_err(failed)
    }
}

fn failed(why: String) -> Error {
    Error::Failed { system: "tun-rs", why }
}

impl Runner<Workload> for TunRs {
    fn system(&self) -> System {
        System::TunRs
    }

    fn left_out(&self, workload: &Workload) -> Option<&'static str> {
        workload.case.is_fragmented().then_some("of frag4 and frag6: it makes no fragments")
    }

    fn slice(&mut self, workload: &Workload, time: Duration) -> Result<Sample, Error> {
        let of_frame = workload.hdr;
        let hdr = wire::VirtioNetHdr {
            hdr_len: of_frame.hdr_len - ETHERNET_LEN as u16,
            csum_start: of_frame.csum_start - ETHERNET_LEN as u16,
            ..of_frame
        };
        let hdr = VirtioNetHdr::decode(&hdr.encode_legacy());
        let hdr = hdr.map_err(|error| failed(error.to_string()))?;
        self.packet = workload.packet[ETHERNET_LEN..].to_vec();
        self.buffers = vec![vec![0; workload.mtu]; workload.segments];
        self.sizes = vec![0; workload.segments];
        self.check(workload, hdr)?;
        laps(time, || self.lap(workload, hdr))
    }
}
