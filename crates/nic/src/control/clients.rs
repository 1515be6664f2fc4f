//! The clients that are served, each by a thread, and their end.

use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sys::foreign::Foreign;

/// Clients served at the same time.
const CLIENTS_MAX: usize = 64;
/// Places that are reserved for clients that may change settings, so that ordinary users cannot take all.
const KEPT: usize = 8;
/// How long, once wharf ends, a client may take to read the answer that it waits for.
const GRACE: Duration = Duration::from_millis(500);
/// Time between two looks whether all have ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The clients that are served.
#[derive(Debug, Default)]
pub(super) struct Clients {
    served: Vec<Served>,
    /// Whether no further request is answered.
    ending: Arc<AtomicBool>,
}

/// One client.
#[derive(Debug)]
struct Served {
    /// The client's stream, which its thread closes when it ends.
    stream: Weak<UnixStream>,
    entitled: bool,
    thread: JoinHandle<()>,
}

impl Clients {
    /// Whether one more client may be served; one that is `entitled` may take a reserved place.
    pub(super) fn have_room(&mut self, entitled: bool) -> bool {
        self.served.retain(|client| !client.thread.is_finished());
        let others = self.served.iter().filter(|client| !client.entitled).count();
        self.served.len() < CLIENTS_MAX && (entitled || others < CLIENTS_MAX - KEPT)
    }

    /// Serves a client by `conversation`, on a thread of its own. If no thread can be started its stream is
    /// dropped, which closes the connection. `last` is another descriptor of the stream.
    pub(super) fn serve<F>(
        &mut self,
        (stream, last): (UnixStream, Foreign<OwnedFd>),
        entitled: bool,
        conversation: F,
    ) where
        F: FnOnce(Arc<UnixStream>, &AtomicBool) + Send + 'static,
    {
        let (stream, ending) = (Arc::new(stream), Arc::clone(&self.ending));
        let weak = Arc::downgrade(&stream);
        let thread = thread::Builder::new().name("control client".to_owned()).spawn(move || {
            conversation(stream, &ending);
            drop(last);
        });
        match thread {
            Ok(thread) => self.served.push(Served { stream: weak, entitled, thread }),
            Err(error) => tracing::warn!("a control client is not served: no thread: {error}"),
        }
    }

    /// Ends all conversations: idle ones at once, others after the answer that the client waits for. Returns
    /// when every thread has ended, or waits for its client alone.
    pub(super) fn end(self) {
        self.ending.store(true, Ordering::Release);
        self.shut_down(Shutdown::Read);
        let since = Instant::now();
        let all_ended = || self.served.iter().all(|client| client.thread.is_finished());
        while !all_ended() && since.elapsed() < GRACE {
            thread::sleep(LOOK_EVERY);
        }
        self.shut_down(Shutdown::Both);
        let since = Instant::now();
        while !all_ended() && since.elapsed() < GRACE {
            thread::sleep(LOOK_EVERY);
        }
        // Of the others none is answered any more: they wait for a descriptor that came with a request to be closed, which
        // takes as long as its client likes.
        for client in self.served.into_iter().filter(|client| client.thread.is_finished()) {
            // It has no result, and a panic of it was printed when it happened.
            let _ = client.thread.join();
        }
    }

    fn shut_down(&self, how: Shutdown) {
        for stream in self.served.iter().filter_map(|client| client.stream.upgrade()) {
            // A client that has disconnected needs none.
            let _ = stream.shutdown(how);
        }
    }
}
