//! The rate at which frames are received through AF_XDP and AF_PACKET on the same veth.
//!
//! A thread on one CPU sends frames of 1,448 bytes by sendmmsg into one end of a veth pair as fast
//! as the kernel takes them; a thread on another receives at the other end and looks at the first
//! bytes of each. For either port, once with a receiver that spins and once with one that sleeps
//! until something comes, it prints packets received per second, packets lost for want of room,
//! the time that the receiver spent per packet in calls that found any, its CPU time per packet
//! (waiting and empty calls included), and the sender's. The kernel's part of receiving (XDP and
//! the copy into the pool, or the queueing to the packet socket) runs in softirq on the sender's
//! CPU, so it is within the sender's time.
//!
//! Needs root. Run as `cargo run --release -p sys --example portrate [SECONDS]`.

use std::error::Error;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use sys::frames::{Frame, FramePool};
use sys::netlink::link::{VethEnd, create_veth};
use sys::packet::{self, Message, PacketSocket, Received};
use sys::poll::poll;
use sys::xdp::{self, Mode, Redirect, XdpSocket};
use sys::{affinity, clock, interface, netns};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const FRAME: usize = 1448;
const BATCH: usize = 64;
const CHUNKS: u32 = 8192;

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(3), |text| text.parse::<u64>())?;
    netns::unshare_net()?;
    create_veth(&VethEnd::new("near"), &VethEnd::new("far"))?;
    interface::set_up("near")?;
    interface::set_up("far")?;
    let (near, far) = (interface::index("near")?, interface::index("far")?);
    println!(
        "{:<24}{:>12}{:>12}{:>12}{:>12}",
        "port", "packets/s", "lost/s", "receive ns", "send ns"
    );
    for spin in [true, false] {
        let how = if spin { "spinning" } else { "sleeping" };
        let mut port = XdpPort::open(far, Mode::Native)?;
        report(&format!("AF_XDP native, {how}"), near, &mut port, spin, seconds)?;
        drop(port);
        let mut port = XdpPort::open(far, Mode::Generic)?;
        report(&format!("AF_XDP generic, {how}"), near, &mut port, spin, seconds)?;
        drop(port);
        let mut port = PacketPort::open(far)?;
        report(&format!("AF_PACKET, {how}"), near, &mut port, spin, seconds)?;
    }
    Ok(())
}

/// Somewhere frames come in.
trait Port: AsFd + Send {
    /// Receives and frees the packets that wait, after a look at their bytes. Returns how many.
    fn receive(&mut self) -> Result<usize>;
    /// Packets that arrived and were dropped, since the port was opened.
    fn lost(&mut self) -> Result<u64>;
}

struct XdpPort {
    pool: FramePool,
    socket: XdpSocket,
    _redirect: Redirect,
    batch: Vec<Frame>,
}

impl XdpPort {
    fn open(ifindex: u32, mode: Mode) -> Result<Self> {
        let mut pool = FramePool::new(CHUNKS, 2048)?;
        let mut redirect = Redirect::attach(ifindex, mode)?;
        let mut socket = XdpSocket::open(ifindex, 0, &pool, xdp::Config::default())?;
        socket.refill(&mut pool);
        redirect.set(&socket)?;
        Ok(Self { pool, socket, _redirect: redirect, batch: Vec::with_capacity(BATCH) })
    }
}

impl AsFd for XdpPort {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for XdpPort {
    fn receive(&mut self) -> Result<usize> {
        let count = self.socket.receive(&mut self.pool, &mut self.batch, BATCH);
        for frame in &self.batch {
            self.pool.prefetch(frame);
        }
        for frame in self.batch.drain(..) {
            look_at(self.pool.bytes(&frame));
            self.pool.free(frame);
        }
        self.socket.refill(&mut self.pool);
        Ok(count)
    }

    fn lost(&mut self) -> Result<u64> {
        let counted = self.socket.statistics()?;
        Ok(counted.rx_dropped + counted.rx_ring_full + counted.rx_fill_ring_empty)
    }
}

struct PacketPort {
    pool: FramePool,
    socket: PacketSocket,
    batch: Vec<Received>,
}

impl PacketPort {
    fn open(ifindex: u32) -> Result<Self> {
        Ok(Self {
            pool: FramePool::new(CHUNKS, 2048)?,
            socket: PacketSocket::open(ifindex, packet::Config::default())?,
            batch: Vec::with_capacity(BATCH),
        })
    }
}

impl AsFd for PacketPort {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Port for PacketPort {
    fn receive(&mut self) -> Result<usize> {
        let count = self.socket.receive(&mut self.pool, &mut self.batch, BATCH)?;
        for received in self.batch.drain(..) {
            look_at(self.pool.bytes(&received.frame));
            self.pool.free(received.frame);
        }
        Ok(count)
    }

    fn lost(&mut self) -> Result<u64> {
        Ok(self.socket.statistics()?.dropped)
    }
}

fn look_at(bytes: &[u8]) {
    std::hint::black_box(bytes.first());
}

fn report(name: &str, near: u32, port: &mut dyn Port, spin: bool, seconds: u64) -> Result<()> {
    let stop = AtomicBool::new(false);
    let send_cpu = AtomicU64::new(0);
    let got = std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(near, &stop, &send_cpu));
        let receiver = scope.spawn(|| receive(port, spin, seconds));
        let result = receiver.join();
        stop.store(true, Relaxed);
        sender.join().map_err(|_| "the sender panicked")??;
        result.map_err(|_| "the receiver panicked")?
    })?;
    let lost = port.lost()?;
    println!(
        "{name:<24}{:>12}{:>12}{:>12}{:>12}{:>12}",
        got.packets / seconds,
        lost / seconds,
        got.busy / got.packets.max(1),
        got.cpu / got.packets.max(1),
        send_cpu.load(Relaxed) / got.packets.max(1),
    );
    Ok(())
}

fn send(near: u32, stop: &AtomicBool, cpu: &AtomicU64) -> Result<()> {
    pin(1)?;
    let mut socket = PacketSocket::open(near, packet::Config::default())?;
    let mut bytes = [0_u8; FRAME];
    bytes[..6].fill(0xff);
    // An EtherType for local experiments: the kernel's own stack drops it early.
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    let (header, payload) = bytes.split_at(54);
    let messages = [Message { vnet: [0; 10], header, payload }; BATCH];
    let start = clock::thread_cpu();
    while !stop.load(Relaxed) {
        socket.send(&messages)?;
    }
    cpu.store(clock::thread_cpu() - start, Relaxed);
    Ok(())
}

/// Packets received, and times in nanoseconds.
struct Got {
    packets: u64,
    busy: u64,
    cpu: u64,
}

fn receive(port: &mut dyn Port, spin: bool, seconds: u64) -> Result<Got> {
    pin(0)?;
    let mut got = Got { packets: 0, busy: 0, cpu: clock::thread_cpu() };
    let mut now = clock::now();
    let end = now + seconds * 1_000_000_000;
    while now < end {
        let before = now;
        let count = port.receive()?;
        now = clock::now();
        if count > 0 {
            got.packets += count as u64;
            got.busy += now - before;
        } else if !spin {
            poll(&[port.as_fd()], Some(100_000_000))?;
            now = clock::now();
        }
    }
    got.cpu = clock::thread_cpu() - got.cpu;
    Ok(got)
}

fn pin(nth: usize) -> Result<()> {
    let cpus = affinity::cpus()?;
    Ok(affinity::pin(cpus[nth % cpus.len()])?)
}
