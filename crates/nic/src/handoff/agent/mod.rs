//! The agent: a thread that is the OS side of all handoffs. It hears processes by their sessions and the workers by
//! the link, takes connections out of the kernel, and puts them back.

mod admission;
mod arrivals;
mod at_kernel;
mod common;
pub(crate) mod crossing;
#[cfg(any(test, feature = "given"))]
pub(crate) mod given;
mod host;
mod kernel;
mod listed;
mod no_memory;
mod quotas;
mod rooms;
mod session;
pub(crate) mod ways;

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use handoff::machine::SideCounts;
use handoff::policy::Policy;
use handoff::session::Layout;
use handoff::{RefusalCounts, RestoreReason};
use lro::Nanos;
use sys::epoll::Epoll;
use sys::packets::PacketSocket;
use sys::poll::EventFd;

pub(crate) use self::host::Host;
pub(crate) use self::listed::{Inquiry, List, at_kernel, path_of};
pub use self::listed::{Listed, Selection, of_processes};
pub(crate) use self::quotas::PerUser;

use self::admission::Admission;
pub(crate) use self::at_kernel::Known;
use self::common::Common;
use self::crossing::Event;
use self::session::Session;
use self::ways::Ways;
use super::Listener;
use super::guard::Message;
use super::guard::store::ToStore;
use super::process::SharedProcess;
use crate::handle::Wake;
use crate::lane::handoff::AgentCounts;
use crate::lane::handoff::link::{ToAgent, Way};
use crate::lane::handoff::records::{Beginnings, Mirror};
use crate::lane::handoff::told::ToKernel;
use crate::threads;

/// How long it may take until the next of the NIC's connections is back when wharf stops.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same while the kernel has no memory for it.
const FOR_MEMORY: Duration = Duration::from_secs(60);
/// Connections that go back at a time: each stands still until those before it are back.
const BACK_AT_ONCE: usize = 16;
/// Numbers in the set of descriptors to wait for; sessions come behind.
const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const CHANGES: u64 = 2;
const FIRST: u64 = 3;
/// So long a worker's answer is waited for awake, in nanoseconds.
const ANSWER: Nanos = 50_000;
/// So long at most until it is looked again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same while somebody is to be told more who does not read.
const TELL_AGAIN: Duration = Duration::from_millis(10);

/// Wakes the agent.
#[derive(Debug)]
pub(crate) struct Bell(EventFd);

impl Wake for Bell {
    fn wake(&self) {
        // The one error is a counter about to overflow: then it is readable.
        let _ = self.0.signal();
    }
}

/// What the agent has counted: of connections, and of processes.
type Counted = (SideCounts, AgentCounts);

/// What is asked of the agent from outside.
#[derive(Debug)]
enum Request {
    /// All connections go back, and none follows.
    Stop,
    /// The thread ends, whatever there is.
    End,
    /// All connections go back.
    WantBack(RestoreReason),
    /// These go back; tells how many that are.
    Restore(Selection, mpsc::Sender<usize>),
    /// Processes are to offer these; tells how many are asked.
    Pick(Selection, mpsc::Sender<usize>),
    /// Processes go by this policy from now on.
    Policy(Box<Policy>),
    /// Tells which there are, and those that the kernel has.
    List(mpsc::Sender<List>),
    /// Of those that the kernel has, these are gone.
    Gone(Vec<u64>),
    /// There is a guard, which knows nothing yet.
    Guard(PacketSocket),
    /// A service manager is to keep what guards know.
    Keep(ToStore),
}

/// The agent, as its owner has it.
#[derive(Debug)]
pub(crate) struct Agent {
    bell: Arc<Bell>,
    requests: mpsc::Sender<Request>,
    thread: Option<JoinHandle<io::Result<()>>>,
    is_done: Arc<AtomicBool>,
    counts: Arc<Mutex<Counted>>,
    inquiry: Inquiry,
}

/// The agent's end of the link.
#[derive(Debug)]
pub(crate) struct Link {
    bell: Arc<Bell>,
    inbox: Receiver<ToAgent>,
}

impl Link {
    /// The agent's end, and the way to it.
    ///
    /// # Errors
    /// What eventfd says.
    pub(crate) fn new() -> io::Result<(Self, Way<ToAgent>)> {
        let bell = Arc::new(Bell(EventFd::new()?));
        let (sender, inbox) = mpsc::channel();
        let way = Way::new(sender, bell.clone());
        Ok((Link { bell, inbox }, way))
    }
}

impl Agent {
    /// Starts it: processes connect to `listener`.
    ///
    /// # Errors
    /// What epoll and thread creation say.
    pub(crate) fn start(
        listener: Listener,
        layout: Layout,
        link: Link,
        (ways, beginnings): (Ways, Beginnings),
        (mirror, to_kernel): (Mirror, Option<ToKernel>),
        (host, per_user, policy): (Host, PerUser, &Policy),
    ) -> io::Result<Agent> {
        let Link { bell, inbox } = link;
        let (requests, asked) = mpsc::channel();
        if let Err(error) = sys::shared_event::prepare() {
            // It is tried again for each process.
            tracing::warn!(
                "programs cannot be woken, so none has a session now: {error} (fs.aio-max-nr)"
            );
        }
        let set = Epoll::new()?;
        set.add(bell.0.as_fd(), WAKE)?;
        set.add(listener.socket.as_fd(), LISTENER)?;
        host.descriptors().try_for_each(|changes| set.add(changes, CHANGES))?;
        let inquiry = Inquiry::new(ways.all());
        let work = Work {
            set,
            listener,
            layout,
            bell: Arc::clone(&bell),
            inbox,
            asked,
            sessions: HashMap::new(),
            common: Common::new((host, per_user.connections), (ways, beginnings), to_kernel),
            admission: Admission::new(per_user.sessions),
            mirror,
            policy: policy.to_string(),
            published: Arc::default(),
        };
        let counts = Arc::clone(&work.published);
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let thread = std::thread::Builder::new().name("handoff".to_owned()).spawn(move || {
            let result = threads::run_with_rights("the handoff agent", || work.run());
            done.store(true, Ordering::Release);
            result
        })?;
        Ok(Agent { bell, requests, thread: Some(thread), is_done, counts, inquiry })
    }

    fn ask(&self, request: Request) {
        // One that has ended has nothing any more.
        if self.requests.send(request).is_ok() {
            self.bell.wake();
        }
    }

    /// All connections go back to the kernel.
    pub(crate) fn want_back(&self, reason: RestoreReason) {
        self.ask(Request::WantBack(reason));
    }

    /// These connections go back, as somebody wants them there; how many that are.
    pub(crate) fn restore(&self, which: Selection) -> usize {
        let (tell, told) = mpsc::channel();
        self.ask(Request::Restore(which, tell));
        told.recv().unwrap_or(0)
    }

    /// Processes go by this policy from now on, but for those that have one of their own.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.ask(Request::Policy(Box::new(policy)));
    }

    /// There is another guard.
    pub(crate) fn guard(&self, socket: PacketSocket) {
        self.ask(Request::Guard(socket));
    }

    /// A service manager is to keep what guards know.
    pub(crate) fn keep(&self, store: ToStore) {
        self.ask(Request::Keep(store));
    }

    /// Asks processes to offer these connections; how many processes are asked.
    pub(crate) fn pick(&self, which: Selection) -> usize {
        let (tell, told) = mpsc::channel();
        self.ask(Request::Pick(which, tell));
        told.recv().unwrap_or(0)
    }

    /// What it knows of connections.
    pub(crate) fn list(&self) -> List {
        let (tell, told) = mpsc::channel();
        self.ask(Request::List(tell));
        told.recv().unwrap_or_default()
    }

    /// Of those that the kernel has, these are gone.
    pub(crate) fn forget(&self, gone: Vec<u64>) {
        self.ask(Request::Gone(gone));
    }

    /// How to ask for figures of connections.
    pub(crate) fn inquiry(&self) -> Inquiry {
        self.inquiry.clone()
    }

    /// All connections go back, which the workers must be there for, and the thread ends.
    ///
    /// # Errors
    /// Why it ended before.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.end(Request::Stop)
    }

    /// The thread ends, and connections are where they are: a worker that has ended gives none back, but wharf's guard puts
    /// them back when the process has ended.
    ///
    /// # Errors
    /// Why it ended before.
    pub(crate) fn abandon(mut self) -> io::Result<()> {
        self.end(Request::End)
    }

    fn end(&mut self, how: Request) -> io::Result<()> {
        self.ask(how);
        match self.thread.take() {
            Some(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the handoff agent panicked"))),
            None => Ok(()),
        }
    }

    /// Refusals by reason: all of them, whichever side refused.
    pub(crate) fn refused(&self) -> RefusalCounts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).0.refused
    }

    /// What it has counted of processes.
    pub(crate) fn sessions(&self) -> AgentCounts {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Whether it has ended by itself.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // `stop` reports why it ended.
        let _ = self.stop();
    }
}

struct Work {
    set: Epoll,
    listener: Listener,
    layout: Layout,
    bell: Arc<Bell>,
    inbox: Receiver<ToAgent>,
    asked: Receiver<Request>,
    sessions: HashMap<u32, Session>,
    common: Common,
    mirror: Mirror,
    /// By which processes offer connections that have none of their own.
    policy: String,
    /// What others see of the counts.
    published: Arc<Mutex<Counted>>,
    admission: Admission,
}

impl Work {
    fn run(mut self) -> io::Result<()> {
        // When wharf stops: how many connections are left, and since when.
        let mut ending = None::<(usize, Instant)>;
        loop {
            self.set.wait(self.patience())?;
            let ready: Vec<u64> = self.set.ready().collect();
            for number in ready {
                match number {
                    WAKE => drop(self.bell.0.drain()),
                    LISTENER => self.accept(),
                    CHANGES => self.common.host.hear(),
                    number => self.read((number - FIRST) as u32),
                }
            }
            self.hear();
            self.follow();
            self.have_back();
            self.thaw_again();
            self.drop_silent();
            self.sweep();
            self.give_rooms();
            self.common.give_places();
            self.common.guard.flush();
            let counted = (self.common.counts, self.admission.counts(self.common.unrepaired));
            *self.published.lock().unwrap_or_else(PoisonError::into_inner) = counted;
            while let Ok(request) = self.asked.try_recv() {
                match request {
                    Request::Stop => ending = Some((usize::MAX, Instant::now())),
                    Request::End => return Ok(()),
                    _ => {}
                }
                self.answer(request);
                self.have_back();
            }
            // All that was said in this round is before it.
            self.common.ways.send_fence();
            self.hear_answers();
            let Some((left, since)) = &mut ending else { continue };
            let now_left: usize = self.sessions.values().map(Session::len).sum();
            if now_left == 0 {
                return Ok(());
            }
            if now_left < *left {
                (*left, *since) = (now_left, Instant::now());
            }
            let patience = if self.common.no_memory.is_empty() { PATIENCE } else { FOR_MEMORY };
            if since.elapsed() > patience {
                tracing::error!("{left} connections did not go back to the kernel, and are lost");
                return Ok(());
            }
        }
    }

    /// Hears what workers answer, if they answer soon: connections stand still meanwhile, and to be woken takes longer.
    fn hear_answers(&mut self) {
        while self.common.ways.have_told() {
            let until = sys::clock::now() + ANSWER;
            let answer = loop {
                match self.inbox.try_recv() {
                    Ok(answer) => break answer,
                    Err(_) if sys::clock::now() >= until => return,
                    Err(_) => std::thread::yield_now(),
                }
            };
            self.take(answer);
            self.hear();
            self.common.ways.send_fence();
        }
    }

    /// Hears what workers say.
    fn hear(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            self.take(message);
        }
        let Work { sessions, common, .. } = self;
        while let Some(key) = common.ways.next_passed() {
            if let Some(session) = sessions.get_mut(&key.session) {
                session.handle(key.cid, Event::Passed, common);
            }
        }
    }

    fn take(&mut self, message: ToAgent) {
        let Work { sessions, common, .. } = self;
        match message {
            ToAgent::Told { key, tag, told } => {
                if let Some(session) = sessions.get_mut(&key.session) {
                    session.told(key.cid, tag, told, common);
                }
            }
            ToAgent::Seen { worker, key, last } => {
                if let Some(session) = sessions.get_mut(&key.session) {
                    session.handle(key.cid, Event::Seen { worker, last }, common);
                }
            }
            ToAgent::Fenced { worker, fence } => common.ways.fenced(worker, fence),
        }
    }

    /// Has those back that are wanted, a few at a time.
    fn have_back(&mut self) {
        let Work { sessions, common, .. } = self;
        while common.going_back < BACK_AT_ONCE
            && let Some((key, reason)) = common.wanted.pop_front()
        {
            if let Some(session) = sessions.get_mut(&key.session) {
                session.go_back(key.cid, reason, common);
            }
        }
    }

    /// Puts those back that the kernel had no memory for, as long as it has some.
    fn thaw_again(&mut self) {
        let Work { sessions, common, .. } = self;
        let mut due = common.no_memory.due();
        while common.no_memory.is_empty()
            && let Some(key) = due.pop_front()
        {
            if let Some(session) = sessions.get_mut(&key.session) {
                session.thaw_again(key.cid, common);
            }
        }
        common.no_memory.give_back(due);
    }

    /// Gives the room of rings back that no connection has used again.
    fn give_rooms(&mut self) {
        while let Some(key) = self.common.rooms.next_due(Instant::now()) {
            // The memory of a session that has ended is gone.
            if let Some(session) = self.sessions.get(&key.session) {
                session.give_back(key.cid);
            }
        }
    }

    /// How long to wait for something to do, in milliseconds.
    fn patience(&self) -> u16 {
        let common = &self.common;
        let due = if common.quotas.is_empty() { LOOK_AGAIN } else { common.host.due() };
        let due = if common.guard.is_owing() { due.min(TELL_AGAIN) } else { due };
        let due = if common.no_memory.is_empty() { due } else { due.min(no_memory::AGAIN) };
        let due = self.admission.due(Instant::now()).map_or(due, |silent| due.min(silent));
        // What is due within a millisecond is not waited for by looking again and again.
        due.min(LOOK_AGAIN).as_micros().div_ceil(1000) as u16
    }

    /// Looks at connections that what has changed concerns.
    fn follow(&mut self) {
        let Work { common, sessions, .. } = self;
        let Some(news) = common.host.news(!common.quotas.is_empty()) else { return };
        let begun = Instant::now();
        sessions.values_mut().for_each(|session| session.follow(&news, common));
        common.host.looked(begun.elapsed());
    }

    fn answer(&mut self, request: Request) {
        let request = match request {
            Request::Guard(socket) => {
                self.common.guard.begin(socket);
                return self.tell_guard();
            }
            Request::Keep(store) => {
                self.common.guard.keep(store);
                return self.tell_guard();
            }
            request => request,
        };
        let Work { sessions, common, policy, .. } = self;
        let all = sessions.values_mut();
        // Those who asked and did not wait are not told.
        let _ = match request {
            Request::End => Ok(()),
            Request::Stop => {
                common.is_stopping = true;
                all.for_each(|session| session.want_back(RestoreReason::Stopping, common));
                Ok(())
            }
            Request::WantBack(reason) => {
                all.for_each(|session| session.want_back(reason, common));
                Ok(())
            }
            Request::Restore(Selection { path, pid }, tell) => {
                let all = all.filter(|session| session.is_of(pid));
                let count = all.map(|session| match path {
                    Some(path) => usize::from(session.want_back_one(&path, common)),
                    None => {
                        session.want_back(RestoreReason::Command, common);
                        session.len()
                    }
                });
                tell.send(count.sum()).map_err(drop)
            }
            Request::Pick(Selection { path, pid }, tell) => {
                let all = all.filter(|session| session.is_of(pid));
                let count = all.map(|session| session.ask(path)).count();
                tell.send(count).map_err(drop)
            }
            Request::Policy(new) => {
                *policy = new.to_string();
                all.for_each(|session| session.say_policy(policy));
                Ok(())
            }
            Request::Guard(_) | Request::Keep(_) => Ok(()),
            Request::List(tell) => {
                let mut list = List { known: common.at_kernel.all().collect(), ..List::default() };
                for session in all {
                    list.owners.push(session.owner());
                    list.listed.extend(session.list());
                }
                tell.send(list).map_err(drop)
            }
            Request::Gone(gone) => {
                common.at_kernel.forget(&gone);
                Ok(())
            }
        };
    }

    /// Tells a guard all that it is to know.
    fn tell_guard(&mut self) {
        let Work { common, mirror, sessions, .. } = self;
        let places = mirror.memory().places();
        common.guard.tell(Message::Mirror { places }, &[mirror.as_fd()]);
        if let Some((tap, mac)) = common.to_kernel.as_ref().map(ToKernel::parts) {
            common.guard.tell(Message::Host { mac }, &[tap]);
        }
        sessions.values().for_each(|session| session.tell_guard(&mut common.guard));
    }

    /// Forgets sessions that have ended, when they have no connection any more.
    fn sweep(&mut self) {
        let Work { common, sessions, admission, .. } = self;
        sessions.retain(|number, session| {
            let stays = !(session.has_ended() && session.len() == 0);
            if !stays {
                common.guard.tell(Message::SessionEnd { number: *number }, &[]);
                admission.leave(session.owner().uid);
            }
            stays
        });
    }
}
