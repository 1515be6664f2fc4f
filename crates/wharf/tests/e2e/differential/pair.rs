//! Two connections that go through the same: one that moves between the kernel and the NIC, one that stays.

use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nic::control::{Client, ClientError};
use sys::calls::{self, Call, Event, Signals, Task};

use super::line::{Line, Outcome, never_linger, number};
use super::model::Model;
use super::step::{Sequence, Step, Then, Waits};

/// What a call gives that a signal has ended.
const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// What the pair is made with.
pub(super) struct Lab {
    /// The application's listener, whose connections are looked at.
    pub(super) listeners: [OwnedFd; 2],
    pub(super) addresses: [SocketAddr; 2],
    /// Makes sockets on the peer's host.
    pub(super) peers: Box<dyn Fn(i32) -> OwnedFd>,
    pub(super) wharf: Client,
    /// How long the lines may take to agree.
    pub(super) patience: Duration,
}

impl Lab {
    /// Asks wharf, which hangs up on those that say nothing for long.
    fn ask<T>(&mut self, request: impl Fn(&mut Client) -> Result<T, ClientError>) -> T {
        match request(&mut self.wharf) {
            Err(ClientError::Lost { .. }) => {
                self.wharf = Client::connect(None).unwrap();
                request(&mut self.wharf).unwrap()
            }
            answer => answer.unwrap(),
        }
    }

    fn hand_off(&mut self, to: &str) {
        self.ask(|wharf| wharf.hand_off(to, None, None));
    }
}

/// Signals that come while a call waits that they do not end.
const SIGNALS: u32 = 20;

/// What was found.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) step: usize,
    pub(super) words: String,
}

struct Pair<'a> {
    lab: &'a mut Lab,
    /// The one that moves.
    moving: Line,
    kernel: Line,
    model: Model,
    /// The peer's name of the one that moves, as `wharf connections` has it.
    remote: String,
    /// That of the other.
    stays: String,
    /// What the moving line's edges have told that the kernel's has not.
    told: [u32; 2],
}

/// Runs a sequence; `tell` hears of each step before it is done.
pub(super) fn run(
    lab: &mut Lab,
    sequence: &Sequence,
    seed: u64,
    mut tell: impl FnMut(usize),
) -> Result<(), Difference> {
    let mut pair = Pair::new(lab, sequence, seed);
    let mut result = Ok(());
    for (number, step) in sequence.steps.iter().enumerate() {
        tell(number);
        if let Err(words) = pair.step(step) {
            result = Err(Difference { step: number, words });
            break;
        }
        if pair.model.is_done() {
            break;
        }
    }
    tell(usize::MAX);
    pair.end();
    result
}

impl<'a> Pair<'a> {
    fn new(lab: &'a mut Lab, sequence: &Sequence, seed: u64) -> Self {
        let which = usize::from(sequence.is_v6);
        let line = |moves: bool| {
            let family = if sequence.is_v6 { libc::AF_INET6 } else { libc::AF_INET };
            let peer = (lab.peers)(family);
            calls::connect_past(&peer, lab.addresses[which]).unwrap();
            let listener = &lab.listeners[which];
            let app = if moves { calls::accept(listener) } else { calls::accept_past(listener) };
            let app = app.unwrap();
            if sequence.no_delay {
                let on = 1_i32.to_ne_bytes();
                for end in [&app, &peer] {
                    calls::set_option(end, libc::IPPROTO_TCP, libc::TCP_NODELAY, &on).unwrap();
                }
            }
            Line::new(app, peer, seed)
        };
        let (moving, kernel) = (line(true), line(false));
        let name = |line: &Line| calls::socket_name(line.peer()).unwrap().0.to_string();
        let (remote, stays) = (name(&moving), name(&kernel));
        Pair { lab, moving, kernel, model: Model::default(), remote, stays, told: [0; 2] }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        if !self.model.admits(step, &self.kernel) {
            return Ok(());
        }
        let unread = (self.kernel.back.unread(), self.kernel.out.unread());
        let outcomes = match step {
            Step::Move { to_nic, waits } => {
                self.hand_off(*to_nic, *waits);
                return self.settle();
            }
            Step::EpollWait { set, most } => return self.epoll_wait(*set, *most),
            Step::Blocked { call, then, moves } => {
                let (mut moving, kernel) = self.blocked(*call, *then, *moves);
                if self.tells_edges_anew(*call, *moves) && kernel[0] == INTERRUPTED {
                    moving[0] = INTERRUPTED;
                }
                (moving, kernel)
            }
            Step::Flood { by_peer, len, piece, moves } => {
                self.flood(*by_peer, *len, *piece, *moves)?;
                return self.settle();
            }
            Step::Fill { piece, moves } => {
                self.fill(*piece, *moves)?;
                return self.settle();
            }
            step => {
                let kernel = self.kernel.run(step);
                (self.run_moving(step, &kernel), kernel)
            }
        };
        let (moving, kernel) = outcomes;
        if moving != kernel {
            return Err(format!("the NIC's gave {moving:?}, the kernel's {kernel:?}"));
        }
        let result = match step {
            Step::Send { .. } => kernel.iter().rev().nth(1),
            _ => kernel.first(),
        };
        let result = result.copied().unwrap_or(0);
        self.model.took(step, unread, result);
        self.settle()
    }

    /// Runs a step on the line that moves, and again while that says "not yet" and the kernel's does not: a call that may say
    /// so does while its connection moves for longer than a call waits (`timeout` of the library).
    fn run_moving(&mut self, step: &Step, kernel: &Outcome) -> Outcome {
        let since = Instant::now();
        loop {
            let outcome = self.moving.run(step);
            let is_over = since.elapsed() > self.lab.patience;
            if outcome == *kernel || is_over || !says_not_yet(step, &outcome) {
                return outcome;
            }
            rest(since);
        }
    }

    /// Whether a call tells of what is ready though that is no edge, as the connection moves meanwhile: more of them are no
    /// error.
    fn tells_edges_anew(&self, call: Waits, moves: Option<bool>) -> bool {
        moves.is_some() && matches!(call, Waits::Epoll { set } if self.model.is_edge(set))
    }

    fn hand_off(&mut self, to_nic: bool, waits: bool) {
        let to = if to_nic { "nic" } else { "os" };
        self.lab.hand_off(to);
        let mut is_there = || {
            let all = self.lab.ask(Client::connections);
            assert!(all.iter().all(|one| one["remote"] != self.stays), "both move");
            all.iter().any(|one| one["remote"] == self.remote && one["where"] != "os")
        };
        // One that is over stays for a while.
        let since = Instant::now();
        while is_there() && waits && !to_nic && since.elapsed() < Duration::from_millis(50) {
            thread::yield_now();
        }
    }

    /// Waits until both lines are at rest, and show the same.
    fn settle(&mut self) -> Result<(), String> {
        let since = Instant::now();
        loop {
            let waits = self.model.awaits(&self.kernel);
            let both = (self.moving.seen(), self.kernel.seen());
            if waits.is_none() && both.0 == both.1 {
                return Ok(());
            }
            if since.elapsed() > self.lab.patience {
                let waits = waits.map_or(String::new(), |what| format!("of the kernel's {what}; "));
                let lacks = self.model.awaits(&self.moving).unwrap_or("nothing more");
                return Err(format!(
                    "{waits}of the NIC's {lacks}\n  the NIC's shows {:?}\n  the kernel's    {:?}",
                    both.0, both.1
                ));
            }
            rest(since);
        }
    }

    fn epoll_wait(&mut self, set: usize, most: usize) -> Result<(), String> {
        // Which of them comes first is for the kernel to say, which adds anew what was away.
        let in_order = |mut events: Vec<Event>| {
            events.sort_by_key(|event| (event.data, event.events));
            events
        };
        let kernel = self.kernel.sets[set].wait(most, 0).map(in_order);
        let since = Instant::now();
        let mut found = Vec::new();
        loop {
            let mut moving = self.moving.sets[set].wait(most - found.len(), 0);
            let mut may_follow = true;
            if self.model.is_edge(set) {
                // More edges than the kernel has are no error, but none may be missing.
                self.told[set] |= events(&moving);
                if events(&kernel) & !self.told[set] == 0 {
                    self.told[set] = 0;
                    return Ok(());
                }
            } else {
                // What wakes the process takes a place in a call that has few: the next one tells of the rest.
                moving = moving.map(|more| {
                    found.extend(more);
                    found = in_order(mem::take(&mut found));
                    found.clone()
                });
                if moving == kernel {
                    return Ok(());
                }
                may_follow = kernel.as_ref().is_ok_and(|all| are_among(&found, all));
            }
            if !may_follow || since.elapsed() > self.lab.patience {
                return Err(format!("the NIC's gave {moving:?}, the kernel's {kernel:?}"));
            }
            rest(since);
        }
    }

    fn blocked(&mut self, call: Waits, then: Then, moves: Option<bool>) -> (Outcome, Outcome) {
        let Pair { lab, moving, kernel, .. } = self;
        if let Then::Signals { restarts } = then {
            calls::count(Signals::User, restarts).unwrap();
        }
        let outcomes = thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let waiting = [&*moving, &*kernel].map(|line| {
                let tell = tell.clone();
                scope.spawn(move || {
                    tell.send(Task::own()).unwrap();
                    wait(line, call)
                })
            });
            let tasks = [(); 2].map(|()| told.recv().unwrap());
            // Some have begun to wait by then, others have not.
            thread::yield_now();
            if let Some(to_nic) = moves {
                let to = if to_nic { "nic" } else { "os" };
                lab.hand_off(to);
            }
            if let Then::Signals { .. } = then {
                let ends = then.sends(call).is_none();
                let are_over = || waiting.iter().all(|thread| thread.is_finished());
                let mut rounds = 0;
                while if ends { !are_over() } else { rounds < SIGNALS } {
                    for task in tasks {
                        // A thread that is over is gone.
                        let _ = task.interrupt(Signals::User);
                    }
                    thread::yield_now();
                    rounds += 1;
                }
            }
            for line in [&*moving, &*kernel] {
                if let Some(len) = then.sends(call) {
                    let bytes = line.back.next(len);
                    calls::send(line.peer(), &bytes, libc::MSG_NOSIGNAL).unwrap();
                }
                match then {
                    Then::PeerSends(_) | Then::Signals { .. } => {}
                    Then::PeerShuts => drop(calls::shutdown(line.peer(), libc::SHUT_WR).unwrap()),
                    Then::PeerResets => reset(line),
                    Then::AppShuts(how) => drop(calls::shutdown(line.app(), how)),
                }
            }
            waiting.map(|thread| thread.join().unwrap())
        });
        let [first, second] = outcomes;
        let take = |line: &mut Line, (result, bytes): (i64, Vec<u8>)| {
            line.back.sent += then.sends(call).unwrap_or(0);
            if let Then::PeerResets = then {
                drop(line.peer.take());
            }
            vec![result, line.back.take(&bytes).into()]
        };
        (take(moving, first), take(kernel, second))
    }

    fn flood(
        &mut self,
        by_peer: bool,
        len: usize,
        piece: usize,
        moves: Option<bool>,
    ) -> Result<(), String> {
        for is_moving in [true, false] {
            let line = if is_moving { &mut self.moving } else { &mut self.kernel };
            let (app, peer) = (line.app.as_ref().unwrap(), line.peer.as_ref().unwrap());
            let (from, to, flow) =
                if by_peer { (peer, app, &mut line.back) } else { (app, peer, &mut line.out) };
            let end = flow.sent + len;
            let mut into = vec![0; piece];
            let mut moves = moves.filter(|_| is_moving);
            let since = Instant::now();
            while flow.got < end {
                let next = flow.next(piece.min(end - flow.sent));
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                let sent = if next.is_empty() { Ok(0) } else { calls::send(from, &next, flags) };
                flow.sent += or_later(sent)?;
                let got = or_later(calls::receive(to, &mut into, libc::MSG_DONTWAIT))?;
                if !flow.take(&into[..got]) {
                    return Err(format!("other bytes came than were sent, before {}", flow.got));
                }
                if flow.sent > end - len / 2
                    && let Some(to_nic) = moves.take()
                {
                    let to = if to_nic { "nic" } else { "os" };
                    self.lab.hand_off(to);
                }
                if since.elapsed() > self.lab.patience {
                    return Err(format!("a flood stands still: {flow:?} of {end}"));
                }
            }
        }
        Ok(())
    }

    /// Neither has room, and both have it again when all was read.
    fn fill(&mut self, piece: usize, moves: Option<bool>) -> Result<(), String> {
        for is_moving in [true, false] {
            let line = if is_moving { &mut self.moving } else { &mut self.kernel };
            // The peer's buffer does not grow.
            let few = 65_536_i32.to_ne_bytes();
            calls::set_option(line.peer(), libc::SOL_SOCKET, libc::SO_RCVBUF, &few).unwrap();
            let since = Instant::now();
            let has_room = |line: &Line| {
                let found = calls::poll(&[(line.app(), libc::POLLOUT)], 0, Call::Poll);
                found.unwrap().1[0] != 0
            };
            // What has no room for a call shows that it has none, unless it has gone to the peer by then.
            let mut sent = 1;
            while sent > 0 || has_room(line) {
                let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                sent = or_later(calls::send(line.app(), &line.out.next(piece), flags))?;
                line.out.sent += sent;
                if since.elapsed() > self.lab.patience {
                    return Err("there is always room".to_owned());
                }
            }
            if let Some(to_nic) = moves.filter(|_| is_moving) {
                self.lab.hand_off(if to_nic { "nic" } else { "os" });
            }
            let mut into = vec![0; 100_000];
            while line.out.unread() > 0 {
                let got = or_later(calls::receive(line.peer(), &mut into, libc::MSG_DONTWAIT))?;
                if !line.out.take(&into[..got]) {
                    return Err(format!(
                        "other bytes came than were sent, before {}",
                        line.out.got
                    ));
                }
                if since.elapsed() > self.lab.patience {
                    return Err(format!("what was full stands still: {:?}", line.out));
                }
            }
        }
        Ok(())
    }

    /// No end is left, and nothing of them in TIME-WAIT.
    fn end(self) {
        for mut line in [self.moving, self.kernel] {
            if let Some(peer) = line.peer.take() {
                never_linger(peer.as_fd());
                drop(peer);
            }
        }
    }
}

/// The call, and the bytes that it gave.
fn wait(line: &Line, call: Waits) -> (i64, Vec<u8>) {
    match call {
        Waits::Receive { len, flags } => {
            let mut into = vec![0; len];
            let got = calls::receive(line.app(), &mut into, flags);
            into.truncate(got.unwrap_or(0));
            (number(got), into)
        }
        Waits::Poll(by) => {
            let found = calls::poll(&[(line.app(), libc::POLLIN)], -1, by);
            (number(found.map(|(count, _)| count)), Vec::new())
        }
        Waits::Epoll { set } => {
            let found = line.sets[set].wait(4, -1);
            (number(found.map(|all| all.len())), Vec::new())
        }
    }
}

fn reset(line: &Line) {
    never_linger(line.peer());
    // Closing is for the owner; to disconnect resets as well.
    calls::disconnect(line.peer()).unwrap();
}

fn or_later(answer: calls::Answer) -> Result<usize, String> {
    match answer {
        Err(libc::EAGAIN) => {
            thread::yield_now();
            Ok(0)
        }
        other => other.map_err(|error| format!("a call in a flood failed with {error}")),
    }
}

fn events(found: &calls::Answer<Vec<Event>>) -> u32 {
    found.iter().flatten().fold(0, |all, event| all | event.events)
}

/// Whether all of some are among these, as often; both are in the same order.
fn are_among(some: &[Event], all: &[Event]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|event| rest.any(|other| other == event))
}

/// Lets others run, for longer if it takes long: several such programs share a CPU with what they wait for.
fn rest(since: Instant) {
    let waited = since.elapsed();
    if waited < Duration::from_micros(200) {
        thread::yield_now();
    } else {
        thread::sleep((waited / 4).min(Duration::from_millis(1)));
    }
}

/// A sequence that still differs with as few of the steps as are found.
pub(super) fn shrink(lab: &mut Lab, sequence: &Sequence, seed: u64, tell: fn(usize)) -> Sequence {
    let mut least = sequence.clone();
    let mut part = least.steps.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < least.steps.len() {
            let mut fewer = least.clone();
            let end = (at + part).min(fewer.steps.len());
            fewer.steps.drain(at..end);
            // What depends on a race does not differ each time.
            if (0..3).any(|_| run(lab, &fewer, seed, tell).is_err()) {
                least = fewer;
            } else {
                at += part;
            }
        }
        part /= 2;
    }
    least
}

/// Returns true if a call that does not wait had nothing to do, and so has changed nothing.
fn says_not_yet(step: &Step, outcome: &Outcome) -> bool {
    const NOT_YET: i64 = -(libc::EAGAIN as i64);
    match step {
        Step::Poll { .. } => outcome.first() == Some(&0),
        Step::Send { .. } => outcome.iter().rev().nth(1) == Some(&NOT_YET),
        Step::Receive { .. } => outcome.first() == Some(&NOT_YET),
        _ => false,
    }
}
