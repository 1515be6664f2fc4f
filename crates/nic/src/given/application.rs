//! What a worker makes of an application that writes anything anywhere, and of a peer that sends anything: for tests and
//! fuzzing.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;

use handoff::command::{NicControl, OsControl};
use handoff::machine::{ToNic, ToOs};
use handoff::ring::command::{Kept, Producer};
use handoff::session::{Layout, Offsets, Shared};
use handoff::{Cid, Epoch, RestoreReason};
use sys::frames::FramePool;
use tcp::repair::{Repair, RepairPath, RepairWindow};
use tcp::{FourTuple, StackConfig};
use wire::{FlowHash, Seq, VirtioNetHdr};

use crate::config::Config;
use crate::handle::Wake;
use crate::lane::handoff::link::{Key, Process, State, ToAgent, ToWorker, Way};
use crate::lane::handoff::records::{Beginnings, Mirror};
use crate::lane::handoff::{HandoffLane, Settings};
use crate::port::memory::{MemoryHost, MemoryWire};
use crate::steer::{Claims, Lookup, Phase};
use crate::worker::{Worker, handle};

const MS: u64 = 1_000_000;
const CHUNKS: u32 = 256;
const CONNECTIONS: u32 = 4;
const LAYOUT: Layout =
    Layout { workers: 1, commands: 16, connections: CONNECTIONS, send: 4096, receive: 4096 };

#[derive(Debug)]
struct Memory(Vec<AtomicU64>, Offsets);

impl Process for Memory {
    fn offsets(&self) -> &Offsets {
        &self.1
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn wake(&self) {}

    fn wake_waiters(&self, _word: &AtomicU64) {}

    fn doorbell(&self, _worker: u32) -> Option<BorrowedFd<'_>> {
        None
    }
}

struct Deaf;

impl Wake for Deaf {
    fn wake(&self) {}
}

/// An established connection whose peer takes much.
pub(crate) fn state(number: u32) -> Repair {
    Repair {
        local: ([10, 0, 0, 9], 4000 + number as u16).into(),
        remote: ([10, 0, 0, 1], 7).into(),
        state: tcp::State::Established,
        write_seq: Seq(1000),
        unacknowledged: 0,
        unsent: 0,
        rcv_nxt: Seq(5000),
        send_queue: Vec::new(),
        recv_queue: Vec::new(),
        behind_hole: Vec::new(),
        sacked: Vec::new(),
        timestamps: false,
        sack: true,
        window_scale: Some((7, 7)),
        mss_clamp: 1460,
        ecn: false,
        timestamp: 0,
        ts_recent: None,
        window: RepairWindow {
            snd_wl1: Seq(5000),
            snd_wnd: 1 << 22,
            max_window: 1 << 22,
            rcv_wnd: 4096,
            rcv_wup: Seq(5000),
        },
        path: RepairPath {
            rto: 200_000,
            rtt: 1000,
            rttvar: 500,
            min_rtt: 1000,
            snd_cwnd: 2000,
            snd_ssthresh: 2000,
            snd_mss: 1460,
            rcv_mss: 1460,
            advmss: 1460,
            pmtu: 1500,
            backoff: 0,
            last_data_sent: 0,
        },
        socket_options: Default::default(),
        is_deaf: false,
    }
}

/// Whether the packets of a connection go to the worker from now on: not before an earlier one of the same ends has left.
fn claimed(claims: &mut Claims, number: u32) -> bool {
    match claims.lookup().phase(number) {
        Some(Phase::Gone) => claims.release(number),
        Some(_) => return false,
        None => {}
    }
    let Repair { local, remote, .. } = state(number);
    claims.claim(number, &FourTuple { local, remote }, 0).is_ok()
}

/// A worker with some connections of one process, which writes words, commands and bytes wherever it likes between the
/// worker's turns, while the OS asks for connections back and offers them again. No turn panics, and no frame is missing
/// in the end.
pub fn application(bytes: &[u8]) {
    let ((near_wire, wire), (near_host, host)) = (MemoryWire::new(), MemoryHost::new());
    let config = Config::default();
    let (sender, worker_inbox) = channel();
    let (to_agent, inbox) = channel();
    let to_worker = Way::new(sender, Arc::new(Deaf));
    let Ok(mirror) = Mirror::new(CONNECTIONS) else { return };
    let (lookup, mut claims) = Lookup::new(FlowHash::from_seed(1), CONNECTIONS as usize);
    let mut beginnings = Beginnings::new(mirror.clone());
    let settings = Settings {
        worker: 0,
        has_peers: false,
        mac: [2, 0, 0, 0, 0, 1],
        stack: StackConfig { secret: [3; 16], half_open: 0, connections: CONNECTIONS },
        memory: 1 << 20,
        config: Arc::new(config.tcp(1500)),
        secret: [4; 16],
        connections: CONNECTIONS as usize,
        mirror,
        lookup: Arc::clone(&lookup),
        load: None,
        resources: Arc::default(),
        tells_kernel: true,
    };
    let (Ok(pool), Ok(handle)) = (FramePool::new(CHUNKS, 2048), handle(config.clone(), 1500))
    else {
        return;
    };
    let worker = Worker::new(Arc::new(handle), config, near_wire, near_host, pool);
    let agent = Way::new(to_agent, Arc::new(Deaf));
    let lane = |lro| HandoffLane::new(settings, lro, worker_inbox, agent);
    let Ok(mut worker) = worker.with_handoff(lane) else { return };
    let Ok(offsets) = LAYOUT.offsets() else { return };
    let words = (0..LAYOUT.words()).map(|_| AtomicU64::new(0)).collect();
    let memory = Arc::new(Memory(words, offsets));
    to_worker.tell(ToWorker::Begin { session: 0, process: memory.clone() });
    let Ok(shared) = Shared::new(LAYOUT, &memory.0) else { return };
    // What means something comes before the data.
    let words = LAYOUT.data_of(Cid(0)).0 / 8;
    let mut commands = Kept::default();
    let mut epochs = [Epoch::default(); CONNECTIONS as usize];
    // In which the kernel does not have them.
    let mut out = [None; CONNECTIONS as usize];
    let mut now = 1000 * MS;
    for step in bytes.chunks_exact(12) {
        let value = u64::from_le_bytes(step[4..].try_into().unwrap_or_default());
        let at = usize::from(step[1]) | usize::from(step[2]) << 8;
        let word = &memory.0[at % words];
        let number = u32::from(step[3]) % CONNECTIONS;
        let (key, tag) = (Key { session: 0, cid: Cid(number) }, epochs[number as usize].tag());
        match step[0] % 16 {
            0 | 1 => word.store(value, Ordering::Relaxed),
            2..=4 => _ = word.fetch_add(value & 0xffff, Ordering::Relaxed),
            5 => _ = word.fetch_xor(1 << (value % 64), Ordering::Relaxed),
            6..=8 => {
                if let Ok(ring) = shared.to_nic(0) {
                    let mut ring = Producer::resume(ring, commands);
                    let mut command = [0; 16];
                    command[..12].copy_from_slice(step);
                    // Of a connection that is there, in its epoch.
                    command[0] = 1 + step[1] % 8;
                    command[2..4].copy_from_slice(&tag.to_le_bytes());
                    command[4..8].copy_from_slice(&number.to_le_bytes());
                    let _ = ring.push(command);
                    commands = ring.keep();
                }
            }
            9 if claimed(&mut claims, number) => {
                let epoch = epochs[number as usize].next();
                let epoch = if epoch.is_nic() { epoch } else { epoch.next() };
                epochs[number as usize] = epoch;
                let state = state(number);
                if let (None, Some(area)) = (out[number as usize], shared.area(key.cid)) {
                    let name = (key.cid, epoch);
                    if beginnings.write(number, name, (0, &area), &state, now).is_ok() {
                        out[number as usize] = Some(epoch.tag());
                    }
                }
                let path = FourTuple { local: state.local, remote: state.remote };
                let next_hop = [2, 0, 0, 0, 0, 2];
                to_worker.tell(ToWorker::Offer { key, epoch, path, next_hop, place: number });
                for told in [ToNic::Handoff(State::of(state, now)), ToNic::ForwardEnd] {
                    to_worker.tell(ToWorker::Told { key, tag: epoch.tag(), told });
                }
            }
            10 => {
                let told = ToNic::Restore(RestoreReason::Command);
                to_worker.tell(ToWorker::Told { key, tag, told });
            }
            11 => wire.send(VirtioNetHdr::default(), step[1..].repeat(6)),
            _ => now += value % (200 * MS),
        }
        now += MS;
        if worker.turn(now).is_err() {
            return;
        }
        wire.take();
        host.take();
        while let Ok(message) = inbox.try_recv() {
            let ToAgent::Told { key, tag, told } = message else { continue };
            // The kernel has it again.
            if let ToOs::Restore(..) | ToOs::Control(OsControl::Refused(_)) = told {
                let out = &mut out[key.cid.0 as usize];
                *out = out.filter(|was| *was != tag);
                let told = ToNic::Control(NicControl::Restored);
                to_worker.tell(ToWorker::Told { key, tag, told });
            }
        }
    }
    to_worker.tell(ToWorker::End { session: 0, resets: [].into(), stay: [].into() });
    for _ in 0..4 {
        now += 1000 * MS;
        if worker.turn(now).is_err() {
            return;
        }
        wire.take();
    }
    assert_eq!(worker.pool().available(), CHUNKS as usize, "frames are missing");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_worker_bears_any_application(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            super::application(&bytes);
        }
    }
}
