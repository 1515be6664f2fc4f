//! The loop of a thread that moves packets. It makes a turn while there is work, spins for a while when
//! there is none, and then sleeps.

use std::io;

use lro::Nanos;
use sys::spin::Spin;

/// Counters are published at least this often while there is work, and before every sleep.
const PUBLISH_EVERY: Nanos = 10_000_000;

/// When counters were last published because it was time to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publication {
    last: Nanos,
}

impl Publication {
    /// The last time was at `now`.
    pub(crate) fn since(now: Nanos) -> Self {
        Publication { last: now }
    }

    /// Whether it is time to publish again, which is then taken as done.
    #[inline]
    pub(crate) fn is_due(&mut self, now: Nanos) -> bool {
        let due = now.saturating_sub(self.last) > PUBLISH_EVERY;
        if due {
            self.last = now;
        }
        due
    }
}

/// What a thread does over and over.
pub(crate) trait EventLoop {
    /// Takes up what the thread was told, and returns whether it goes on.
    fn goes_on(&mut self) -> bool;

    /// One batch each way; returns whether there was anything to do.
    ///
    /// # Errors
    /// A port that has become useless.
    fn turn(&mut self, now: Nanos) -> io::Result<bool>;

    /// How long to look for work before sleeping at most, in nanoseconds (`poll.spin`).
    fn spin(&self) -> Nanos;

    /// Whether another thread is about to say something for which a connection stands still: it is waited for awake.
    fn expects_soon(&self, now: Nanos) -> bool;

    /// Publishes, and sleeps in the kernel until there may be something to do.
    ///
    /// # Errors
    /// A port that has become useless.
    fn sleep(&mut self, now: Nanos) -> io::Result<()>;

    /// Copies the counters to where others read them.
    fn publish(&mut self, now: Nanos);
}

/// Runs until the thread was told to end, or has nothing more to do.
///
/// # Errors
/// A port that has become useless.
pub(crate) fn run(thread: &mut impl EventLoop) -> io::Result<()> {
    let mut spin = Spin::default();
    let mut publication = Publication::since(0);
    while thread.goes_on() {
        let now = sys::clock::now();
        if thread.turn(now)? {
            spin.worked(now, thread.spin());
        } else if spin.goes_on(now) || thread.expects_soon(now) {
            std::thread::yield_now();
        } else {
            thread.sleep(now)?;
        }
        if publication.is_due(now) {
            thread.publish(now);
        }
    }
    Ok(())
}
