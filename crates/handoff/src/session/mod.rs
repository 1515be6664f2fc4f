//! What a process of an application's has with wharf: a Unix socket for [messages](Message), and memory that both
//! map, laid out by a [`Layout`].
//!
//! ```text
//!   application                                      wharf
//!   Hello              ──── SOCK_SEQPACKET ────>
//!                      <─────────────────────────    Welcome, with the memory and the eventfds
//!   Offer(cid), with the socket     ──────────>      validates, freezes, hands off: status(cid) changes
//!   calls              <──── rings of cid ─────>     engine
//!   Restore(cid)       ───────────────────────>      status(cid): at the OS
//! ```
//!
//! The application chooses a [`Cid`](crate::Cid) that is free, and sends the socket with the offer. It is not answered: what
//! becomes of the connection is seen in its [status], which wharf writes, until the application withdraws the offer there.
//! wharf keeps a duplicate of the descriptor while it has the connection. What finds no room in the Unix socket's queue, as
//! wharf does not read, the application notes in the memory ([`Requests`]); it never waits for room.
//! The end of the Unix socket is the end of the process: wharf ends its connections as the kernel would have.
//!
//! Who waits. A thread that waits for one connection does so on its [wake word](Area::wake) by futex(2), and says so in
//! [`Area::waiters`]. A thread that waits for several, or for other descriptors as well, waits for the process's
//! eventfd edge-triggered, and is counted in [`Shared::app_sleepers`]. wharf's worker sleeps behind
//! [`Shared::nic_doorbell`], and is woken by an eventfd of the process's own, so that no process can swallow what
//! another has rung.

pub mod info;
mod layout;
mod message;
mod requests;
mod said;
pub mod status;

pub use layout::{Area, BadLayout, Layout, Offsets, Shared};
pub use message::{
    BUILD, BUILD_NOTE, MESSAGE_LEN, Message, MessageError, NICS_MAX, PAST_SUPERVISOR, VERSION,
    Welcome,
};
pub use requests::{Request, Requests};
pub use said::{ASKS, Ends, POLICY_MAX, PolicyText, Said};
