//! What a process that uses verbs has with its device: a Unix socket for [messages](message), and memory that both
//! map.
//!
//! ```text
//!   application                                      device
//!   Hello, with its memory     ── SOCK_SEQPACKET ──>
//!                              <───────────────────  the shared memory, and what wakes the device
//!   a verb                     ───────────────────>
//!                              <───────────────────  its answer: an error, or names and places
//!   posts work                 ──── work queues ──>  takes it, when it sees the bit of the queue pair
//!   polls                      <─ completion queues  writes completions
//! ```
//!
//! Verbs that make and end objects are messages, each answered before the next. Work and completions go by the shared
//! memory, without a system call while the device is awake: whoever is about to sleep says so, and only then is woken.
//!
//! The device trusts nothing there: an index that is not possible ends the session, and an entry is copied before it
//! is judged.
//!
//! # The shared memory
//! ```text
//!   the first page    whether the device sleeps | which words of the next have bits | a bit for each queue pair
//!   a work queue      the application's line: posted | the device's line: retired, state | its entries
//!   a completion      the application's line: read, armed | the device's line | its entries
//!   queue
//! ```
//! A line is 64 bytes, so that no word that one side writes shares one with a word of the other. Queues lie where the
//! device says when they are made.
//!
//! | module | what |
//! |---|---|
//! | [`message`] | requests and answers |
//! | [`control`] | the first page |
//! | [`work`] | entries of work queues |
//! | [`posts`] | work queues, by both sides |
//! | [`completions`] | completion queues, by both sides |
//! | [`area`] | where queues lie |
//! | [`device`], [`cm`] | what the device is, and what its connection manager tells |
//! | [`process`] | the device's side: verbs and queues of one process, over an [`Rnic`](crate::Rnic) |

pub mod area;
pub mod cm;
pub mod completions;
pub mod control;
pub mod device;
pub mod message;
pub mod posts;
pub mod process;
pub mod work;

pub use area::Area;
pub use message::{MESSAGE_MAX, MessageError, Reply, Request, VERSION};
pub use process::Process;

/// Words of a line of the cache.
const LINE: usize = 8;

/// The application wrote what is not possible: its session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hostile;

impl core::fmt::Display for Hostile {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("an index of a shared queue that is not possible")
    }
}

impl core::error::Error for Hostile {}
