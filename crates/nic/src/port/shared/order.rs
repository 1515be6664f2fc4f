//! The order in which the scheduler takes requests.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::Order;

/// A worker's end, where it puts its requests.
#[derive(Debug)]
pub(super) enum Inlet<R> {
    Queue(SyncSender<R>),
    Stack(Stack<R>),
}

/// The scheduler's end, where it takes them.
#[derive(Debug)]
pub(super) enum Outlet<R> {
    Queues {
        queues: Vec<Receiver<R>>,
        /// The worker whose turn it is.
        next: usize,
    },
    Stack(Stack<R>),
}

/// Both ends, for workers with at most these numbers of outstanding requests.
pub(super) fn channel<R>(order: Order, capacities: &[usize]) -> (Vec<Inlet<R>>, Outlet<R>) {
    match order {
        Order::RoundRobin => {
            let (inlets, queues) = capacities
                .iter()
                .map(|&capacity| sync_channel(capacity))
                .map(|(inlet, queue)| (Inlet::Queue(inlet), queue))
                .unzip();
            (inlets, Outlet::Queues { queues, next: 0 })
        }
        Order::Lifo => {
            let stack = Stack::new(capacities.iter().sum());
            let inlets = capacities.iter().map(|_| Inlet::Stack(stack.clone())).collect();
            (inlets, Outlet::Stack(stack))
        }
    }
}

impl<R> Inlet<R> {
    /// Puts a request; gives it back if the scheduler has ended.
    pub(super) fn put(&self, request: R) -> Result<(), R> {
        match self {
            Inlet::Queue(queue) => queue.try_send(request).map_err(|error| match error {
                TrySendError::Full(request) | TrySendError::Disconnected(request) => request,
            }),
            Inlet::Stack(stack) => {
                stack.lock().push(request);
                Ok(())
            }
        }
    }
}

impl<R> Outlet<R> {
    /// Takes the next request, if there is one. Round robin: between two requests of one worker, every other
    /// worker with a request has its turn.
    pub(super) fn take(&mut self) -> Option<R> {
        match self {
            Outlet::Queues { queues, next } => {
                let count = queues.len();
                let (at, request) = (0..count)
                    .map(|turn| (*next + turn) % count)
                    .find_map(|at| Some((at, queues[at].try_recv().ok()?)))?;
                *next = (at + 1) % count;
                Some(request)
            }
            Outlet::Stack(stack) => stack.lock().pop(),
        }
    }
}

/// The stack that all workers share.
#[derive(Debug)]
pub(super) struct Stack<R>(Arc<Mutex<Vec<R>>>);

impl<R> Stack<R> {
    fn new(capacity: usize) -> Self {
        Stack(Arc::new(Mutex::new(Vec::with_capacity(capacity))))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R> Clone for Stack<R> {
    fn clone(&self) -> Self {
        Stack(Arc::clone(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use proptest::prelude::*;

    /// A worker, and the number of its request.
    type Request = (usize, u32);

    const WORKERS: usize = 4;

    /// Requests of workers, and times at which the scheduler takes one.
    fn events() -> impl Strategy<Value = Vec<Option<usize>>> {
        proptest::collection::vec(proptest::option::of(0..WORKERS), 0..300)
    }

    /// Plays the events and then takes what is left. `taken` gets each request that is taken, and all that
    /// waited then, including it.
    fn play(
        order: Order,
        events: &[Option<usize>],
        mut taken: impl FnMut(Request, &[Request]),
    ) -> usize {
        let (inlets, mut outlet) = channel(order, &[events.len().max(1); WORKERS]);
        let (mut waiting, mut asked, mut count) = (Vec::new(), [0; WORKERS], 0);
        let mut take = |waiting: &mut Vec<Request>| {
            let request: Option<Request> = outlet.take();
            assert_eq!(request.is_none(), waiting.is_empty(), "asks, and is not seen");
            if let Some(request) = request {
                taken(request, waiting);
                let at = waiting.iter().position(|one| *one == request).unwrap();
                waiting.remove(at);
                count += 1;
            }
            request.is_some()
        };
        for event in events {
            match *event {
                None => drop(take(&mut waiting)),
                Some(worker) => {
                    let request = (worker, asked[worker]);
                    asked[worker] += 1;
                    inlets[worker].put(request).unwrap();
                    waiting.push(request);
                }
            }
        }
        while take(&mut waiting) {}
        count
    }

    proptest! {
        #[test]
        fn every_request_is_taken_once(events in events()) {
            for order in [Order::RoundRobin, Order::Lifo] {
                // `play` asserts that what is taken waited.
                let count = play(order, &events, |_, _| {});
                prop_assert_eq!(count, events.iter().flatten().count());
            }
        }

        #[test]
        fn round_robin_keeps_each_workers_order(events in events()) {
            let mut next = [0; WORKERS];
            play(Order::RoundRobin, &events, |(worker, number), _| {
                assert_eq!(number, next[worker]);
                next[worker] += 1;
            });
        }

        /// The paper, section V.B: no worker waits for more than one request of each other worker.
        #[test]
        fn round_robin_serves_every_worker_in_turn(events in events()) {
            let mut passed = [[0u32; WORKERS]; WORKERS];
            play(Order::RoundRobin, &events, |(worker, _), waiting| {
                passed[worker] = [0; WORKERS];
                for other in (0..WORKERS).filter(|other| *other != worker) {
                    let waits = waiting.iter().any(|(of, _)| *of == other);
                    let passed = &mut passed[other][worker];
                    *passed = if waits { *passed + 1 } else { 0 };
                    assert!(*passed <= 1, "{worker} twice while {other} waits");
                }
            });
        }

        #[test]
        fn lifo_takes_the_latest(events in events()) {
            play(Order::Lifo, &events, |request, waiting| {
                assert_eq!(Some(&request), waiting.last());
            });
        }
    }

    #[test]
    fn a_heavy_worker_delays_another_by_one_request_only_in_a_queue_of_its_own() {
        let position = |order| {
            let (inlets, mut outlet) = channel(order, &[100, 100]);
            inlets[1].put("syn").unwrap();
            // The heavy worker always has ten requests waiting, as with back-pressure.
            let mut heavy: VecDeque<&str> = std::iter::repeat_n("data", 10).collect();
            (0..1000).position(|_| {
                heavy.drain(..).for_each(|data| inlets[0].put(data).unwrap());
                let taken = outlet.take().unwrap();
                heavy.extend((taken == "data").then_some(taken));
                taken == "syn"
            })
        };
        assert_eq!(position(Order::RoundRobin), Some(1));
        assert_eq!(position(Order::Lifo), None);
    }

    #[test]
    fn a_queue_without_a_scheduler_gives_requests_back() {
        let (inlets, outlet) = channel(Order::RoundRobin, &[1]);
        drop(outlet);
        assert_eq!(inlets[0].put("syn"), Err("syn"));
    }
}
