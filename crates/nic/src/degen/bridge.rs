//! A router-in-the-middle: what arrives at one interface leaves at the other, as degen says.
//!
//! One thread serves both. The kernel stamps each frame when it receives it, and the delay counts from
//! that stamp (`rdma-over-ip` section 3), so what is asked for is what is added, however long the
//! thread took to come by. It takes all that waits in bursts, and sleeps until shortly before the next
//! frame is due.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use degen::Nanos;
use sys::frames::{Frame, FramePool};
use sys::interface::{self, Interface};
use sys::packet::{BATCH, Filter, Membership};
use sys::poll::{Interest, PollSet};

use super::settings::{Direction, Settings};
use super::shared::{Shared, Snapshot};
use super::ways::Ways;
use crate::counters::Entry;
use crate::error::Error;
use crate::features::Suited;
use crate::open;
use crate::port::packet::PacketWire;
use crate::port::{RxFrame, Wire};
use crate::quiet::Quiet;

/// How long it takes about to be woken, on a machine that is itself virtual: a frame that is due sooner
/// is waited for awake.
const WAKING: Nanos = 20_000;
/// How long the thread may go on without sleep, and how long it then sleeps at least: no frame is late
/// by more for it than it takes to be woken.
const AWAKE: Nanos = 300_000;
const REST: Duration = Duration::from_micros(3);
/// The kernel wakes at the time asked for or after.
const PUNCTUAL: Nanos = 1;

/// Two interfaces and degen between them.
#[derive(Debug)]
pub struct Bridge {
    shared: Arc<Shared>,
    ports: Arc<Ports>,
    thread: Option<JoinHandle<io::Result<()>>>,
    interfaces: [Interface; 2],
    /// Found gone, of each interface.
    gone: [AtomicBool; 2],
    notices: Vec<String>,
    _held: Vec<(Membership, Option<Quiet>, Suited)>,
}

/// What the ports counted, a short while ago.
#[derive(Debug, Default)]
struct Ports(std::sync::Mutex<[PortCounters; 2]>);

/// Of one port.
#[derive(Clone, Copy, Debug, Default)]
struct PortCounters {
    /// Frames that the kernel dropped in front of the port.
    dropped: u64,
    /// Frames that the interface would not take.
    lost: u64,
}

impl Bridge {
    /// Begins to carry frames between two interfaces, which are set up, in the network namespace of
    /// the calling thread. Up to `frames` may be under way or wait.
    ///
    /// # Errors
    /// See [`Error`]; nothing is left behind.
    pub fn start(between: [&str; 2], settings: &Settings, frames: u32) -> Result<Bridge, Error> {
        let mut notices = Vec::new();
        let interfaces = [open::find_wire(between[0])?, open::find_wire(between[1])?];
        for name in between {
            interface::set_up(name).map_err(|error| match error.is_permission() {
                true => Error::Permission { name: name.to_owned() },
                false => Error::Sys(error),
            })?;
        }
        if interfaces[0].mtu != interfaces[1].mtu {
            let [one, other] = &interfaces;
            notices.push(format!(
                "frames that are longer than the smaller MTU are lost: {} has {} bytes, {} has {}",
                one.name, one.mtu, other.name, other.mtu
            ));
        }
        let chunk = open::packet_chunk(interfaces.iter().map(|info| info.mtu).max().unwrap_or(0));
        let pool = FramePool::new(frames, chunk).map_err(Error::Worker)?;
        let mut held = Vec::new();
        let mut sides = Vec::new();
        for info in &interfaces {
            let config = sys::packet::Config { stamps: true, ..Default::default() };
            sides.push(Side::new(open::packet_wire(info, config, Default::default())?));
            let promiscuous = Membership::hold(info.index, Filter::Promiscuous)
                .map_err(|cause| Error::Packet { name: info.name.clone(), cause })?;
            let suited = Suited::to_packet(&info.name, &mut notices);
            held.push((promiscuous, open::quiet(info, &mut notices), suited));
        }
        let shared = Arc::new(Shared::new(settings.configs.clone()).map_err(Error::Worker)?);
        let ports = Arc::new(Ports::default());
        let ways = Ways::new(settings, Arc::clone(&shared), sys::clock::now());
        let carrier = Carrier { ways, sides, pool, ports: Arc::clone(&ports), awake_since: 0 };
        let thread = std::thread::Builder::new()
            .name("wharf-degen".to_owned())
            .spawn(move || carrier.run())
            .map_err(Error::Worker)?;
        let thread = Some(thread);
        let gone = Default::default();
        Ok(Bridge { shared, ports, thread, interfaces, gone, notices, _held: held })
    }

    /// What did not go as well as it might have, and why; one line each.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// To change what is done to frames, and to see it.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// All counters.
    pub fn counters(&self) -> Vec<Entry> {
        let snapshot: Snapshot = self.shared.snapshot();
        let mut entries = snapshot.entries(Direction::BOTH.map(Direction::name));
        for (group, port) in ["first", "second"].into_iter().zip(self.ports.read()) {
            entries.push(Entry { group, name: "rx_dropped", value: port.dropped });
            entries.push(Entry { group, name: "tx_lost", value: port.lost });
        }
        entries
    }

    /// Has it ended by itself, or is an interface gone? To be asked in the network namespace that it
    /// was started in.
    pub fn has_failed(&self) -> bool {
        for (info, gone) in self.interfaces.iter().zip(&self.gone) {
            let found = Interface::by_index(info.index);
            if found.is_err_and(|error| error.is_missing()) {
                gone.store(true, Ordering::Relaxed);
            }
        }
        self.gone.iter().any(|gone| gone.load(Ordering::Relaxed))
            || self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Ends; what is under way is lost.
    ///
    /// # Errors
    /// What made it end before it was told to.
    pub fn stop(mut self) -> io::Result<()> {
        let ended = self.end();
        let gone = self.gone.iter().zip(&self.interfaces);
        let gone: Vec<&str> = gone
            .filter(|(gone, _)| gone.load(Ordering::Relaxed))
            .map(|(_, info)| info.name.as_str())
            .collect();
        match gone[..] {
            [] => ended,
            [one] => Err(io::Error::other(format!("the interface {one} is gone"))),
            _ => Err(io::Error::other(format!("the interfaces {} are gone", gone.join(" and ")))),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        self.shared.stop();
        let panicked = |_| Err(io::Error::other("degen panicked"));
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // Whoever wants to know why it ended calls `stop`.
        let _ = self.end();
    }
}

impl Ports {
    fn read(&self) -> [PortCounters; 2] {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn publish(&self, counters: [PortCounters; 2]) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = counters;
    }
}

/// One interface.
#[derive(Debug)]
struct Side {
    wire: PacketWire,
    /// Received, on the way into degen; empty between turns.
    received: VecDeque<(RxFrame, Option<Nanos>)>,
    /// A frame that has come out and that the interface had no room for.
    waiting: Option<Frame>,
}

impl Side {
    fn new(wire: PacketWire) -> Self {
        Side { wire, received: VecDeque::with_capacity(BATCH), waiting: None }
    }
}

/// The thread's work.
#[derive(Debug)]
struct Carrier {
    ways: Ways,
    /// The first and the second interface.
    sides: Vec<Side>,
    pool: FramePool,
    ports: Arc<Ports>,
    /// When the thread last slept.
    awake_since: Nanos,
}

impl Carrier {
    fn run(mut self) -> io::Result<()> {
        // The default would make every frame up to 50 us late.
        let _ = sys::process::set_timer_slack(PUNCTUAL);
        // What else runs here is not to be felt on the path; without the right to it, it may be.
        let _ = sys::process::run_in_real_time();
        let result = self.carry();
        self.publish();
        self.ways.close(&self.pool);
        for side in self.sides.drain(..) {
            side.wire.close(&mut self.pool);
        }
        result
    }

    fn carry(&mut self) -> io::Result<()> {
        while !self.ways.shared().is_stopped() {
            self.ways.take_up_changes();
            let mut worked = false;
            for direction in Direction::BOTH {
                worked |= self.take_in(direction)?;
                worked |= self.let_out(direction)?;
            }
            if !worked {
                self.sleep()?;
            }
            self.rest();
            if self.ways.publish_sometimes(sys::clock::now()) {
                self.publish_ports();
            }
        }
        Ok(())
    }

    /// A burst from an interface into degen. Was there one?
    fn take_in(&mut self, direction: Direction) -> io::Result<bool> {
        let side = &mut self.sides[direction as usize];
        side.wire.receive_stamped(&mut self.pool, &mut side.received, BATCH)?;
        let now = sys::clock::now();
        let worked = !side.received.is_empty();
        for (received, stamp) in side.received.drain(..) {
            let overflow = side.wire.overflow(&received);
            let at = stamp.map_or(now, |stamp| stamp.min(now));
            self.ways.arrive(direction, &mut self.pool, received, overflow, at);
        }
        Ok(worked)
    }

    /// What is due, out of the other interface. Was there something?
    fn let_out(&mut self, direction: Direction) -> io::Result<bool> {
        let side = &mut self.sides[1 - direction as usize];
        let mut worked = false;
        // Whatever falls due meanwhile is for the next turn.
        let now = sys::clock::now();
        let due = |ways: &mut Ways, pool: &mut FramePool| ways.depart(direction, pool, now);
        while let Some(frame) = side.waiting.take().or_else(|| due(&mut self.ways, &mut self.pool))
        {
            if let Err(frame) = side.wire.send_frame(&mut self.pool, frame) {
                side.waiting = Some(frame);
                break;
            }
            worked = true;
        }
        side.wire.flush(&mut self.pool)?;
        Ok(worked)
    }

    /// Lets others have the CPU for a moment every now and then: the kernel would stop a real-time
    /// thread that never sleeps for 50 ms in each second (sched(7), `sched_rt_runtime_us`).
    fn rest(&mut self) {
        if sys::clock::now().saturating_sub(self.awake_since) > AWAKE {
            std::thread::sleep(REST);
            self.awake_since = sys::clock::now();
        }
    }

    /// Until a frame arrives or is nearly due.
    fn sleep(&mut self) -> io::Result<()> {
        let now = sys::clock::now();
        let due = self.ways.next_deadline().map(|due| due.saturating_sub(now));
        if due.is_some_and(|due| due < WAKING) {
            std::hint::spin_loop();
            return Ok(());
        }
        self.publish();
        let mut set = PollSet::new();
        set.add(self.ways.shared().waker().as_fd(), Interest::Read);
        let mut retry = None;
        for side in &mut self.sides {
            let pending = side.waiting.is_some() || side.wire.is_pending();
            let again = side.wire.retry_after().filter(|_| pending);
            retry = retry.into_iter().chain(again).min();
            let interest = match pending && again.is_none() {
                true => Interest::ReadWrite,
                false => Interest::Read,
            };
            let fd: Option<BorrowedFd<'_>> = side.wire.fd();
            fd.map(|fd| set.add(fd, interest));
        }
        let due = due.map(|due| due - WAKING);
        set.wait(due.into_iter().chain(retry).min())?;
        self.awake_since = sys::clock::now();
        if set.readable(0) {
            self.ways.shared().waker().drain()?;
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.ways.publish();
        self.publish_ports();
    }

    fn publish_ports(&mut self) {
        let counters =
            |side: &mut Side| PortCounters { dropped: side.wire.dropped(), lost: side.wire.lost() };
        let [first, second] = &mut self.sides[..] else { return };
        self.ports.publish([counters(first), counters(second)]);
    }
}
