//! One process: the loop of its thread.

mod awake;
mod flow;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

use rdma::mpa::Config;
use rdma::session::Process;
use rdma::session::control::Control;
use rdma::session::process::Told;
use rdma::verbs::Qp;
use sys::epoll::Epoll;
use sys::packets::PacketSocket;
use sys::poll::EventFd;
use sys::shared::SharedMemory;
use wire::Nanos;

use crate::manager::{Around, Manager};
use crate::memory::Remote;
use crate::outlet::{Outlets, completion, encode_async};
use crate::stats::{Calls, Connection, Served};
use crate::stream::Stream;
use crate::terms::Terms;
use crate::token::Token;
use awake::Awake;

/// What a turn reads from a stream, or lays out for it, at once.
const BUFFER: usize = 256 << 10;
/// How many of these a stream may have of a turn, each way, before the others are looked at.
const TURN_MAX: usize = 4;

/// How often posts are taken before the streams are looked at.
const POSTS_MAX: usize = 4;
/// How long a turn may go on with posts, with streams that have more, and with those that are ready, before it goes on with
/// the next of these: whatever is left has its turn before others that come later.
const PART_MAX: Nanos = 1_000_000;
/// Turns in a row that may find posts, and do not look what else is ready: that needs a system call.
const UNLOOKED_MAX: u32 = 8;

/// See the module's documentation.
pub(crate) struct Serving {
    socket: PacketSocket,
    doorbell: EventFd,
    shared: SharedMemory,
    process: Process,
    memory: Remote,
    epoll: Epoll,
    outlets: Outlets,
    manager: Manager,
    terms: Terms,
    streams: BTreeMap<u64, Stream>,
    /// The stream and the identifier of each queue pair.
    carried: BTreeMap<u32, Carried>,
    last_stream: u64,
    /// Streams whose turn was over before they had nothing more, each once.
    unfinished: VecDeque<u64>,
    /// Streams with a message that waits for a receive.
    waiting: BTreeSet<u64>,
    /// The one of them that was looked at last, of those that share receives.
    looked: u64,
    /// How long each part of a turn may be: see [`PART_MAX`].
    part_max: Nanos,
    /// Turns since it was looked what is ready.
    unlooked: u32,
    awake: Awake,
    /// When the first stream or identifier is due, or before that. It is looked for anew when it may be sooner.
    due: Option<Nanos>,
    may_be_sooner: bool,
    /// What was ready last, and what was posted to.
    ready: Vec<Token>,
    posted: VecDeque<Qp>,
    buffer: Vec<u8>,
    message: Vec<u8>,
    served: Arc<Served>,
    calls: Calls,
    /// Readable when the process has ended.
    pidfd: Option<OwnedFd>,
}

#[derive(Clone, Copy, Debug)]
struct Carried {
    stream: u64,
    id: u32,
}

/// Why a session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The process has closed it, or is gone.
    Gone,
    /// It wrote or sent what is not possible.
    Hostile,
}

impl Serving {
    /// The session that a Hello begins.
    pub(crate) fn begin(
        socket: PacketSocket,
        pidfd: Option<OwnedFd>,
        memory: sys::process_memory::ProcessMemory,
        terms: Terms,
        served: Arc<Served>,
    ) -> std::io::Result<Self> {
        let page = rdma::session::control::WORDS * 8;
        let limits = terms.limits;
        let shared = SharedMemory::new(c"wharf-rdma", limits.queue_bytes + page)?;
        let (doorbell, epoll) = (EventFd::new()?, Epoll::new()?);
        epoll.add(&socket, Token::Socket.into())?;
        // It is not read: each ring is reported once.
        epoll.add_edge(&doorbell, Token::Doorbell.into(), true, false)?;
        if let Some(pidfd) = &pidfd {
            epoll.add(pidfd, Token::Process.into())?;
        }
        let process = Process::new(limits, sys::entropy::secret(), shared.words().len());
        Ok(Serving {
            socket,
            doorbell,
            shared,
            process,
            memory: Remote::new(memory),
            epoll,
            outlets: Outlets::default(),
            manager: Manager::default(),
            terms,
            streams: BTreeMap::new(),
            carried: BTreeMap::new(),
            last_stream: 0,
            unfinished: VecDeque::new(),
            waiting: BTreeSet::new(),
            looked: 0,
            part_max: PART_MAX,
            unlooked: 0,
            awake: Awake::default(),
            due: None,
            may_be_sooner: false,
            ready: Vec::new(),
            posted: VecDeque::new(),
            buffer: vec![0; BUFFER],
            message: vec![0; rdma::session::MESSAGE_MAX],
            served,
            calls: Calls::default(),
            pidfd,
        })
    }

    /// Serves until the process is gone.
    pub(crate) fn run(mut self) {
        let ended = loop {
            if let Err(end) = self.turn() {
                break end;
            }
        };
        self.publish();
        if ended == End::Hostile {
            tracing::warn!(
                "process {}: its session is ended: {}",
                self.served.pid,
                rdma::session::Hostile
            );
        }
        self.linger();
    }

    fn turn(&mut self) -> Result<(), End> {
        let now = sys::clock::now();
        let mut has_worked = !self.unfinished.is_empty();
        // Whoever posts while posts are taken need not wait for what the streams have.
        for _ in 0..POSTS_MAX {
            if !self.take_posts(now)? {
                break;
            }
            has_worked = true;
            self.hear(now);
            if self.has_taken_long(now) {
                break;
            }
        }
        self.go_on(sys::clock::now())?;
        self.hear(now);
        if self.manager.has_places_again() {
            let (manager, mut around) = self.manager(now);
            manager.look_again(&mut around);
        }
        let goes_on = !self.unfinished.is_empty() || !self.posted.is_empty();
        let deadline = if goes_on { Some(now) } else { self.deadline() };
        self.wait(now, deadline, has_worked).map_err(|_| End::Gone)?;
        let now = sys::clock::now();
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend(self.epoll.ready().map(Token::from));
        if !ready.is_empty() {
            self.awake.worked(now);
        }
        for token in &ready {
            match *token {
                // It has its turn behind those that have more from before.
                Token::Stream(number) if self.has_taken_long(now) => self.puts_off(number),
                token => self.ready(now, token)?,
            }
            self.hear(now);
        }
        self.ready = ready;
        self.expire(now)
    }

    /// Returns true if the part of a turn that has begun at this time is over.
    fn has_taken_long(&self, since: Nanos) -> bool {
        sys::clock::now().saturating_sub(since) >= self.part_max
    }

    fn ready(&mut self, now: Nanos, token: Token) -> Result<(), End> {
        match token {
            Token::Socket => self.answer(now)?,
            Token::Doorbell => {}
            Token::Process => return Err(End::Gone),
            Token::Stream(number) => self.stream_turn(now, number)?,
            Token::Id(id) => {
                let (manager, mut around) = self.manager(now);
                if let Some(ready) = manager.turn(&mut around, id) {
                    self.start(now, ready)?;
                }
            }
            Token::Outlet(number) => self.outlets.flush(&self.epoll, number),
        }
        Ok(())
    }

    fn manager(&mut self, now: Nanos) -> (&mut Manager, Around<'_>) {
        self.may_be_sooner = true;
        let reads = self.process.limits().reads;
        let mpa = Config { ird: reads, ord: reads, ..self.terms.mpa };
        let peer_timeout = self.terms.peer_timeout;
        let around =
            Around { epoll: &self.epoll, outlets: &mut self.outlets, now, mpa, peer_timeout };
        (&mut self.manager, around)
    }

    /// Waits for something to happen, or for this time: awake for as long as that has paid lately, and then asleep. Whoever
    /// posts meanwhile rings.
    fn wait(&mut self, now: Nanos, due: Option<Nanos>, has_worked: bool) -> std::io::Result<()> {
        let left = due.map(|due| due.saturating_sub(now));
        if has_worked {
            self.awake.worked(now);
        }
        if left == Some(0) {
            return self.look();
        }
        if !self.awake.is_idle() {
            self.publish();
        }
        let control = Control::new(self.shared.words()).ok_or(std::io::ErrorKind::InvalidInput)?;
        if self.awake.goes_on(now) {
            // What is waited for may need this CPU.
            let from = sys::clock::now();
            std::thread::yield_now();
            self.awake.gave_way(from, sys::clock::now());
            return self.look_awake();
        }
        self.calls.sleeps += 1;
        if !control.sleep() {
            return self.look();
        }
        self.calls.waits += 1;
        let waited = match left {
            Some(left) => {
                let milliseconds = left.div_ceil(1_000_000);
                self.epoll.wait(u16::try_from(milliseconds).unwrap_or(u16::MAX))
            }
            None => self.epoll.wait_forever(),
        };
        control.wake();
        waited
    }

    /// Looks what is ready now, unless there are posts: the system call is made later then. A program that posts without pause does not
    /// keep the device from all else.
    fn look_awake(&mut self) -> std::io::Result<()> {
        let has_posts = Control::new(self.shared.words()).is_some_and(|of| of.has_posts());
        if has_posts && self.unlooked < UNLOOKED_MAX {
            self.unlooked += 1;
            self.epoll.forget();
            return Ok(());
        }
        self.look()
    }

    /// What is ready now.
    fn look(&mut self) -> std::io::Result<()> {
        self.unlooked = 0;
        self.calls.waits += 1;
        self.epoll.wait(0)
    }

    /// When something is due. A process may have thousands of streams, of which hardly any is: not all are asked each time.
    fn deadline(&mut self) -> Option<Nanos> {
        if std::mem::take(&mut self.may_be_sooner) {
            self.due = self.first_due();
        }
        #[cfg(debug_assertions)]
        {
            let first = self.first_due();
            let is_in_time = first.is_none_or(|first| self.due.is_some_and(|due| due <= first));
            debug_assert!(is_in_time, "something is due sooner than it is waited for");
        }
        [self.process.deadline(), self.due].into_iter().flatten().min()
    }

    fn first_due(&mut self) -> Option<Nanos> {
        let streams = self.streams.values().filter_map(Stream::deadline).min();
        [self.manager.deadline(), self.outlets.deadline(), streams].into_iter().flatten().min()
    }

    fn expire(&mut self, now: Nanos) -> Result<(), End> {
        if self.deadline().is_none_or(|due| due > now) {
            return Ok(());
        }
        self.may_be_sooner = true;
        self.process.expire(self.shared.words(), now);
        let (manager, mut around) = self.manager(now);
        manager.expire(&mut around);
        let is_late = |stream: &Stream| stream.deadline().is_some_and(|due| due <= now);
        let late: Vec<u64> =
            self.streams.iter().filter(|(_, of)| is_late(of)).map(|(number, _)| *number).collect();
        for number in late {
            let Some(stream) = self.streams.get_mut(&number) else { continue };
            if stream.due.is_some_and(|due| due <= now) {
                self.stream_is_over(now, number)?;
            } else if stream.is_silent(now) {
                let (pid, timeout, qp) = (self.served.pid, self.terms.peer_timeout, stream.qp);
                let qp = qp.map_or(0, |qp| qp.0);
                tracing::info!(
                    "process {pid}: the peer of queue pair {qp} has answered nothing for {timeout:?}"
                );
                self.stream_is_over(now, number)?;
            } else if stream.is_to_register(now) {
                self.stream_turn(now, number)?;
            } else {
                self.look_for_receive(now, number)?;
            }
        }
        self.outlets.expire(&self.epoll, now);
        self.hear(now);
        Ok(())
    }

    /// Does what the objects ask for.
    fn hear(&mut self, now: Nanos) {
        while let Some(told) = self.process.poll_told() {
            match told {
                Told::Completion { channel, cq } => {
                    self.say(now, channel, &completion(cq));
                }
                Told::Async { context, event, object } => {
                    self.say(now, context, &encode_async(event, object));
                }
                Told::Terminated(qp, cause) => {
                    let pid = self.served.pid;
                    tracing::info!(
                        "process {pid}: the peer of queue pair {} has ended: {cause:?}",
                        qp.0
                    );
                }
                Told::Disconnected(qp) => {
                    if let Some(of) = self.carried.get(&qp.0).copied() {
                        let (manager, mut around) = self.manager(now);
                        manager.disconnected(&mut around, of.id);
                    }
                }
                Told::Forgotten(qp) => self.forget(now, qp),
                Told::Released(handle) => self.memory.release(handle),
            }
        }
    }

    fn say(&mut self, now: Nanos, outlet: u32, event: &[u8]) {
        self.outlets.say(&self.epoll, now, outlet, event);
        self.may_be_sooner |= self.outlets.deadline().is_some();
    }

    /// The queue pair is gone, or begins anew: what it has sent still goes out.
    fn forget(&mut self, now: Nanos, qp: Qp) {
        let Some(of) = self.carried.remove(&qp.0) else { return };
        if let Some(stream) = self.streams.get_mut(&of.stream) {
            stream.qp = None;
            stream.end(now);
        }
        self.waits_no_more(of.stream);
        // This looks for what is due anew, too.
        let (manager, mut around) = self.manager(now);
        manager.disconnected(&mut around, of.id);
    }

    /// What others may see of it.
    fn publish(&self) {
        let mut snapshot = self.served.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        snapshot.counters = *self.process.counters();
        snapshot.objects = self.process.objects();
        let (memory_calls, file_calls) = self.memory.calls();
        let atomics_passed = self.memory.atomics_passed();
        snapshot.calls = Calls { memory_calls, file_calls, atomics_passed, ..self.calls };
        snapshot.file_regions = self.memory.file_regions();
        // Each stream has a number of its own: where there is none more and none less, they are the same.
        let current = (self.carried.len(), self.last_stream);
        if snapshot.of_streams != current {
            (snapshot.connections, snapshot.of_streams) = (self.connections(), current);
        }
    }

    fn connections(&self) -> Vec<Connection> {
        let address = |of: std::io::Result<std::net::SocketAddr>| {
            of.map_or_else(|_| "-".to_owned(), |address| address.to_string())
        };
        let all = self.carried.iter().filter_map(|(qp, of)| {
            let [local, remote] = self.streams.get(&of.stream)?.carrier.ends().map(address);
            Some(Connection { qp: *qp, local, remote })
        });
        all.collect()
    }
}
