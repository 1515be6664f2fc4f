//! A worker's requests: put, counted, and completed.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::Thread;

use sys::frames::{Frame, FramePool};
use sys::poll::{EventFd, Interest, PollSet};
use wire::VirtioNetHdr;

use crate::port::{Delivery, Refused, Served};

use super::order::Inlet;

/// Frames of a batch, by default.
const BATCH: usize = 64;

/// Room for the headers of any packet that LRO merges.
const HEADER_ROOM: usize = 256;
/// Room for the frames of most packets; it grows if needed.
const FRAMES_ROOM: usize = 64;

/// Nanoseconds to wait at the end before it is checked whether the scheduler still runs.
const LAST_LOOK: u64 = 10_000_000;

/// One packet on its way to the host port, and back.
#[derive(Debug)]
pub(super) struct Request(Box<Content>);

/// The contents of a request; its memory is used again.
#[derive(Debug)]
struct Content {
    worker: usize,
    vnet: VirtioNetHdr,
    header: Vec<u8>,
    frames: Vec<Frame>,
    rest: Vec<u8>,
    outcome: Result<Served, Refused>,
}

impl Request {
    fn new(worker: usize) -> Self {
        Request(Box::new(Content {
            worker,
            vnet: VirtioNetHdr::default(),
            header: Vec::with_capacity(HEADER_ROOM),
            frames: Vec::with_capacity(FRAMES_ROOM),
            rest: Vec::new(),
            outcome: Ok(Served::default()),
        }))
    }

    /// Takes the packet over, with its frames. Header and rest are copied, as they are valid only during the
    /// call. A rest is the part of a received super-packet that did not fit into its frame.
    fn fill(&mut self, packet: Delivery<'_>) {
        let content = &mut *self.0;
        content.vnet = packet.vnet;
        content.header.clear();
        content.header.extend_from_slice(packet.header);
        content.rest.clear();
        packet.rest.into_iter().for_each(|piece| content.rest.extend_from_slice(piece));
        std::mem::swap(&mut content.frames, packet.frames);
    }

    /// The worker that made the request.
    pub(super) fn worker(&self) -> usize {
        self.0.worker
    }

    /// The packet, to be delivered.
    pub(super) fn packet(&mut self) -> Delivery<'_> {
        let Content { vnet, header, frames, rest, .. } = &mut *self.0;
        Delivery { vnet: *vnet, header, frames, rest: [rest, &[]] }
    }

    /// Sets the result.
    pub(super) fn complete(&mut self, outcome: Result<Served, Refused>) {
        self.0.outcome = outcome;
    }
}

/// Wakes a worker that sleeps until some of its requests are completed.
#[derive(Debug)]
pub(super) struct Bell {
    event: EventFd,
    /// Completions until the worker is to be woken; 0 while it is awake.
    armed: AtomicUsize,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Bell { event: EventFd::new()?, armed: AtomicUsize::new(0) })
    }

    /// Reports a completion, which the worker can take already.
    pub(super) fn ring(&self) {
        // Either the worker is seen to sleep here, or the worker, which looks once more after it has armed
        // the bell, sees the completion (`Requests::arm`).
        fence(Ordering::SeqCst);
        let count = |armed: usize| armed.checked_sub(1);
        if self.armed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) == Ok(1) {
            // The only error is a counter about to overflow: then the event is signalled already.
            let _ = self.event.signal();
        }
    }
}

/// The queue between one worker and the scheduler.
#[derive(Debug)]
pub struct Requests {
    worker: usize,
    inlet: Inlet<Request>,
    done: Receiver<Request>,
    bell: Arc<Bell>,
    scheduler: Thread,
    /// Requests that are not in use.
    spare: Vec<Request>,
    in_flight: usize,
    in_flight_max: usize,
    frames_in_flight: usize,
    frames_max: usize,
}

impl Requests {
    /// For a worker whose queue counts as full with so many outstanding requests, or with an eighth of the
    /// frames of its pool.
    pub(super) fn new(
        worker: usize,
        depth: usize,
        frames: usize,
        inlet: Inlet<Request>,
        done: Receiver<Request>,
        bell: Arc<Bell>,
        scheduler: Thread,
    ) -> Self {
        Requests {
            worker,
            inlet,
            done,
            bell,
            scheduler,
            // A batch may begin while there is room for a single request.
            spare: (0..depth + BATCH).map(|_| Request::new(worker)).collect(),
            in_flight: 0,
            in_flight_max: depth,
            frames_in_flight: 0,
            frames_max: (frames / 8).max(1),
        }
    }

    /// Number of requests that are not completed yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether the worker may receive more from the wire. Packets that it holds or has received may be put in
    /// any case: the queue has a place for every frame of the worker's pool.
    pub fn has_room(&self) -> bool {
        self.in_flight < self.in_flight_max && self.frames_in_flight < self.frames_max
    }

    /// Queues a packet, and takes its frames. It fails only if the scheduler has ended too early; then the
    /// frames stay where they are.
    pub(super) fn put(&mut self, packet: Delivery<'_>) -> io::Result<()> {
        let Delivery { vnet, header, frames, rest } = packet;
        let count = frames.len();
        let mut request = self.spare.pop().unwrap_or_else(|| Request::new(self.worker));
        request.fill(Delivery { vnet, header, frames: &mut *frames, rest });
        if let Err(mut request) = self.inlet.put(request) {
            std::mem::swap(&mut request.0.frames, frames);
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.in_flight += 1;
        self.frames_in_flight += count;
        self.scheduler.unpark();
        Ok(())
    }

    /// Takes one completion, if there is one, and gives its frames back to the worker's pool. Returns what the
    /// host's kernel has taken, or why it refused the packet.
    pub fn completed(&mut self, pool: &FramePool) -> Option<Result<Served, Refused>> {
        let mut request = match self.done.try_recv() {
            Ok(request) => request,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => {
                // The scheduler has ended too early; no more completions come.
                (self.in_flight, self.frames_in_flight) = (0, 0);
                return None;
            }
        };
        let content = &mut *request.0;
        self.in_flight -= 1;
        self.frames_in_flight -= content.frames.len();
        content.frames.drain(..).for_each(|frame| pool.free(frame));
        let result = content.outcome;
        self.spare.push(request);
        Some(result)
    }

    /// Makes completions wake the thread that polls [`fd`](Self::fd): the next one, or, while there is no
    /// [room](Self::has_room), as many as make enough room to be worth a wake-up. To be followed by another
    /// look for [completions](Self::completed) before polling.
    pub fn arm(&self) {
        let completions = if self.has_room() { 1 } else { self.in_flight / 4 };
        self.bell.armed.store(completions.max(1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Ends the waking: no thread polls any more.
    ///
    /// # Errors
    /// The error of `read` on an eventfd.
    pub fn disarm(&self) -> io::Result<()> {
        self.bell.armed.store(0, Ordering::Relaxed);
        self.bell.event.drain().map(drop)
    }

    /// Descriptor that becomes readable when there are completions to look for.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.event.as_fd()
    }

    /// Waits for a completion, for a bounded time.
    ///
    /// # Errors
    /// The error of `ppoll`.
    pub fn wait(&self) -> io::Result<()> {
        let mut set = PollSet::new();
        set.add(self.fd(), Interest::Read)?;
        set.wait(Some(LAST_LOOK))?;
        self.disarm()
    }
}
