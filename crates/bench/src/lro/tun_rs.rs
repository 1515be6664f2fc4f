//! tun-rs' GRO, in process: `GROTable::apply_gro` over a burst, which lets everything go at its
//! end. It takes IP packets behind a `virtio_net_hdr`, verifies every checksum, and appends
//! payload to the buffer of the first packet, which has room for 64 KB.

use std::time::{Duration, Instant};

use tun_rs::{GROTable, IDEAL_BATCH_SIZE, VIRTIO_NET_HDR_LEN};
use wire::ETHERNET_LEN;

use super::workload::{BURST, LAP, PAYLOAD, Stream, Workload};
use crate::side_by_side::{Lap, Runner, Sample, laps};
use crate::{Error, System};

/// Longest IP packet.
const IP_MAX: usize = 65_535;
/// Stands where the `virtio_net_hdr` will; what is still there was merged away.
const UNTOUCHED: [u8; VIRTIO_NET_HDR_LEN] = [0xff; VIRTIO_NET_HDR_LEN];

const _: () = assert!(BURST == IDEAL_BATCH_SIZE);

#[derive(Default)]
pub(super) struct TunRs {
    table: GROTable,
    buffers: Vec<Vec<u8>>,
}

impl TunRs {
    fn lap(
        &mut self,
        workload: &Workload,
        header: &mut [u8],
        stream: &mut Stream,
    ) -> Result<Lap, Error> {
        let mut time = Duration::ZERO;
        let mut large = 0;
        for _ in 0..LAP / BURST {
            for buffer in &mut self.buffers {
                workload.write(header, stream);
                let packet = VIRTIO_NET_HDR_LEN + header.len() - ETHERNET_LEN;
                buffer.truncate(packet + PAYLOAD);
                buffer[..VIRTIO_NET_HDR_LEN].copy_from_slice(&UNTOUCHED);
                buffer[VIRTIO_NET_HDR_LEN..packet].copy_from_slice(&header[ETHERNET_LEN..]);
            }
            let begin = Instant::now();
            let done = self.table.apply_gro(&mut self.buffers, VIRTIO_NET_HDR_LEN, false);
            time += begin.elapsed();
            done.map_err(|error| failed(error.to_string()))?;
            large += self.outputs(header.len())?;
        }
        Ok(Lap { time, packets: LAP as u64, large })
    }

    /// How many packets the burst became, all of its payload among them.
    fn outputs(&self, headers_len: usize) -> Result<u64, Error> {
        let written = self.buffers.iter().filter(|buffer| !buffer.starts_with(&UNTOUCHED));
        let headers_len = VIRTIO_NET_HDR_LEN + headers_len - ETHERNET_LEN;
        let (mut count, mut payload) = (0, 0);
        for buffer in written {
            count += 1;
            payload += buffer.len() - headers_len;
        }
        if payload == BURST * PAYLOAD {
            return Ok(count);
        }
        Err(failed(format!("of {} bytes {payload} came out", BURST * PAYLOAD)))
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
        (!workload.setting.verify).then_some("without verification: it always verifies")
    }

    fn slice(&mut self, workload: &Workload, time: Duration) -> Result<Sample, Error> {
        let mut buffer = Vec::with_capacity(VIRTIO_NET_HDR_LEN + IP_MAX);
        buffer.extend(UNTOUCHED);
        buffer.extend(&workload.frame()[ETHERNET_LEN..]);
        self.buffers.resize_with(BURST, || Vec::with_capacity(buffer.capacity()));
        for own in &mut self.buffers {
            own.clone_from(&buffer);
        }
        let headers_len = workload.frame().len() - PAYLOAD;
        let mut header = workload.frame()[..headers_len].to_vec();
        let mut stream = Stream::default();
        laps(time, || self.lap(workload, &mut header, &mut stream))
    }
}
