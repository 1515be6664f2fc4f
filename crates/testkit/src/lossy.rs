//! A wire that loses some frames and reorders others, the same ones each time, or that shows each to a test.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use sys::frames::FramePool;
use sys::packet::{BATCH, Config, Message, PacketSocket, Received};
use sys::poll::poll;
use sys::{Result, interface};

use crate::lab::Host;

/// Nanoseconds between two looks whether the thread is to end.
const LOOK_EVERY: u64 = 20_000_000;

/// One frame in so many is lost, and one in so many waits for those behind it. They are primes, so that they
/// do not fall into step with the traffic.
const LOSE: u64 = 211;
const DELAY: u64 = 53;
/// Frames that pass one that is held back.
const PASS: u64 = 3;

/// Number of frames in memory, of 2 KB each.
const FRAMES: u32 = 1024;
const FRAME_SIZE: u32 = 2048;

/// Carries frames between two interfaces of a host, except for some that it loses. It ends when this is
/// dropped.
#[derive(Debug)]
pub struct Lossy {
    stop: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Lossy {
    /// Starts between two interfaces of `host` that are up, for frames no longer than Ethernet's MTU.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn between(host: &Host, one: &str, other: &str) -> Self {
        Self::start(host, [one, other], true, Box::new(|_, _| {}))
    }

    /// The same, but it loses none by itself and keeps their order. It shows each to `watch`, with 0 for one that comes
    /// from `one` and 1 for one from `other`, before it goes on.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn watched(
        host: &Host,
        [one, other]: [&str; 2],
        watch: impl FnMut(usize, &[u8]) + Send + 'static,
    ) -> Self {
        Self::start(host, [one, other], false, Box::new(watch))
    }

    /// It [loses and reorders](Self::between), and [shows](Self::watched) each frame before.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn losing_and_watched(
        host: &Host,
        ends: [&str; 2],
        watch: impl FnMut(usize, &[u8]) + Send + 'static,
    ) -> Self {
        Self::start(host, ends, true, Box::new(watch))
    }

    fn start(host: &Host, [one, other]: [&str; 2], loses: bool, watch: Watch) -> Self {
        let open = |name| -> Result<PacketSocket> {
            let index = interface::index(name)?;
            PacketSocket::open(index, Config::default())
                .map_err(|cause| sys::Error::new("open a packet socket on", cause).on(name))
        };
        let sockets = host.run(|| Ok::<_, sys::Error>([open(one)?, open(other)?]));
        let sockets = sockets.unwrap_or_else(|error| panic!("{error}"));
        let (stop, lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (enough, count) = (Arc::clone(&stop), Arc::clone(&lost));
        let thread = std::thread::spawn(move || carry(sockets, &enough, (loses, &count), watch));
        Self { stop, lost, thread: Some(thread) }
    }

    /// Number of frames lost so far.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(Ok(())))), "the wire is broken: {ended:?}");
        }
    }
}

/// Sees each frame, and whence it comes.
type Watch = Box<dyn FnMut(usize, &[u8]) + Send>;

/// One direction.
#[derive(Default)]
struct Way {
    count: u64,
    /// A frame that is held back, and the number of the frame that it waits for.
    waiting: Option<(Received, u64)>,
}

fn carry(
    mut sockets: [PacketSocket; 2],
    stop: &AtomicBool,
    (loses, lost): (bool, &AtomicU64),
    mut watch: Watch,
) -> io::Result<()> {
    let mut pool = FramePool::new(FRAMES, FRAME_SIZE)?;
    let mut ways = [Way::default(), Way::default()];
    let (mut received, mut passing) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        poll(&[sockets[0].as_fd(), sockets[1].as_fd()], Some(LOOK_EVERY))?;
        for (from, way) in ways.iter_mut().enumerate() {
            sockets[from].receive(&mut pool, &mut received, BATCH)?;
            for frame in received.drain(..) {
                watch(from, pool.bytes(&frame.frame));
                way.count += u64::from(loses);
                if !loses {
                    passing.push(frame);
                } else if way.count.is_multiple_of(LOSE) {
                    lost.fetch_add(1, Ordering::Relaxed);
                    pool.free(frame.frame);
                } else if way.count.is_multiple_of(DELAY) && way.waiting.is_none() {
                    way.waiting = Some((frame, way.count + PASS));
                } else {
                    passing.push(frame);
                }
                if let Some((frame, _)) = way.waiting.take_if(|(_, until)| way.count >= *until) {
                    passing.push(frame);
                }
            }
            // No frame may come behind the last one to release it.
            passing.extend(way.waiting.take().map(|(frame, _)| frame));
            send(&mut sockets[1 - from], &pool, &passing)?;
            passing.drain(..).for_each(|frame| pool.free(frame.frame));
        }
    }
    Ok(())
}

/// Sends as many frames as there is room for; the others are lost, as on any wire.
fn send(to: &mut PacketSocket, pool: &FramePool, frames: &[Received]) -> io::Result<()> {
    let message = |frame: &Received| {
        let vnet = frame.vnet;
        Message { vnet, header: pool.bytes(&frame.frame), payload: &[] }
    };
    let messages: Vec<Message<'_>> = frames.iter().map(message).collect();
    match to.send(&messages) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(ENOBUFS) => Ok(()),
        Err(error) => Err(error),
    }
}

const ENOBUFS: i32 = 105;
