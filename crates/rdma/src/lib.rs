//! iWARP without IO: RDMA over any ordered byte stream, and the verbs objects that use it.
//!
//! Bytes of a stream and work requests go in; bytes for the stream, accesses to registered memory, completions and
//! events come out. There is no socket, clock, thread or random number here: the stream may be a kernel's TCP, the
//! NIC's own, or a pipe.
//!
//! | module | what | of |
//! |---|---|---|
//! | [`mpa`] | records in a stream, and connection set-up | RFC 5044, RFC 6581 |
//! | [`ddp`] | where the bytes of a message belong | RFC 5041 |
//! | [`rdmap`] | writes, reads, sends, atomics, Terminate | RFC 5040, RFC 7306 |
//! | [`verbs`] | queue pairs, regions, windows, completions | RDMA Protocol Verbs Specification 1.0 |
//! | [`memory`] | what the device must be able to do with an application's memory | |
//! | [`status`] | how work ends | |
//! | [`session`] | what a process that uses verbs has with its device | |
//!
//! `docs/rdma-musts.md` says which test shows what the RFCs ask for.
//!
//! # Who calls what, when
//! The *device* owns one [`Rnic`] for each process that uses it, and calls it from one thread at a time. Objects of
//! one `Rnic` cannot name those of another, and its [`Limits`](verbs::Limits) are the process's.
//!
//! 1. **Verbs.** What the application asks for is validated by the `Rnic`: any number is a name that exists or an
//!    error. Regions come with a [`Handle`], the device's own name for their memory.
//! 2. **A connection.** [`mpa::Initiator`] or [`mpa::Responder`] turns the first bytes of a stream into
//!    [`mpa::Negotiated`]; the device keeps the time-out (Linux has ten seconds) and the bytes until a frame is
//!    whole. Then [`Rnic::start`] gives the stream to a queue pair.
//! 3. **The turn of a queue pair**, whenever something was posted, its stream has bytes, or room:
//!    - [`Rnic::post_send`] and [`Rnic::post_recv`], for what the application has put into its queues;
//!    - [`Rnic::receive`] with the bytes that are there, as slices where they lie. It returns how many are done
//!      with: what is left is an FPDU that is not all there, which the device keeps and gives again in front of what
//!      follows. Nothing is copied but to its place in memory;
//!    - [`Rnic::transmit`], with room for [`Rnic::fpdu_len`] bytes at least, as long as [`Rnic::wants_transmit`]
//!      says so and the stream has room. What it wrote goes into the stream, all of it and in order. When it
//!      says [`Close`](verbs::Close), the device closes the stream.
//! 4. **What comes of it.** [`Rnic::poll_event`] until it is empty; [`Rnic::take_cq`] to hand completions on, and
//!    [`Rnic::release_cq`] when the application has read them: a queue that is full between the two overruns.
//! 5. **The end.** [`Rnic::stream_ended`] when the stream is over, for whatever reason: the peer has closed it, it
//!    was reset, a deadline of the device's has passed (for a stream that is to be closed, five seconds will do). When
//!    the process is gone, so is its `Rnic`: there is nothing to undo.
//!
//! [`Memory`] is called by `receive` and `transmit` only, and no call outlives them: while neither runs, no access is
//! under way. So a region that [`Rnic::deregister`] has returned is not touched any more.
//!
//! A device with several threads gives each its own `Rnic`s. What it shares between them is the lock around
//! [`Memory::atomic`], which does atomic operations one after the other.
//!
//! # What the device promises
//! - Bytes of a stream come in order, each once, until `stream_ended`.
//! - [`Memory::place`] has stored the pieces when it returns. `receive` tells of completions after that.
//! - What `transmit` wrote is not dropped: the stream takes it, or ends.
//!
//! # Copies
//! Payload that is received is read once for the CRC and copied once, by [`Memory::place`], from where it lies in
//! the stream. Payload that is sent is copied once, by [`Memory::gather`], into the buffer that `transmit` was
//! given, and read there for the CRC while it is in the cache. Inline payload is copied once more, when it is posted.
//!
//! # Example
//! Two devices, and two pipes between them:
//! ```
//! use rdma::memory::Pieces;
//! use rdma::mpa::{Config, Initiator, Responder};
//! use rdma::rdmap::atomic::Operation;
//! use rdma::verbs::{Access, Flags, Limits, Payload, QpConfig, Registration, SendRequest, State, Work};
//! use rdma::{Completion, Extent, Fault, Handle, Memory, Rnic, Status};
//!
//! /// The memory of one application: one region.
//! struct Buffer(Vec<u8>);
//! impl Memory for Buffer {
//!     fn place(&mut self, pieces: Pieces<'_>) -> Result<(), Fault> {
//!         for piece in pieces.iter() {
//!             self.0[piece.offset as usize..][..piece.bytes.len()].copy_from_slice(piece.bytes);
//!         }
//!         Ok(())
//!     }
//!     fn gather(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<(), Fault> {
//!         for extent in extents {
//!             let from = &self.0[extent.offset as usize..][..extent.len];
//!             buffer[extent.at..][..extent.len].copy_from_slice(from);
//!         }
//!         Ok(())
//!     }
//!     fn atomic(&mut self, _: Handle, offset: u64, operation: Operation) -> Result<u64, Fault> {
//!         let place = self.0[offset as usize..].first_chunk_mut().ok_or(Fault { done: 0 })?;
//!         let value = u64::from_ne_bytes(*place);
//!         *place = operation.apply(value).to_ne_bytes();
//!         Ok(value)
//!     }
//! }
//!
//! // Each side: a region of 64 bytes at the address 0x1000, a completion queue, a queue pair.
//! let side = |secret| -> Result<_, rdma::verbs::Error> {
//!     let mut rnic = Rnic::new(Limits::default(), [secret; 16]);
//!     let pd = rnic.alloc_pd()?;
//!     let access = Access::LOCAL_WRITE.and(Access::REMOTE_WRITE);
//!     let (iova, len, memory) = (0x1000, 64, Handle(1));
//!     let stag = rnic.register(Registration { pd, iova, len, access, memory })?;
//!     let cq = rnic.create_cq(16)?;
//!     let qp = rnic.create_qp(QpConfig {
//!         pd, send_cq: cq, receive_cq: cq, srq: None,
//!         sends: 16, receives: 16, send_sges: 1, receive_sges: 1, inline: 64, signal_all: false,
//!     })?;
//!     rnic.modify(qp, State::Init)?;
//!     Ok((rnic, qp, cq, stag))
//! };
//! let (mut here, qp, cq, _) = side(1)?;
//! let (mut there, peer_qp, _, stag) = side(2)?;
//! let (mut our_memory, mut their_memory) = (Buffer(vec![0; 64]), Buffer(vec![0; 64]));
//!
//! // Connection set-up: a request one way, a reply the other.
//! let (initiator, responder) = (Initiator::new(Config::default()), Responder::new(Config::default()));
//! let request = responder.receive(&initiator.request(b"hello")?)?.ok_or("not whole")?;
//! assert_eq!(request.private_data, b"hello");
//! let (reply, negotiated) = request.accept(16, 16, b"")?;
//! there.start(peer_qp, &negotiated, 1448)?;
//! let accepted = initiator.receive(&reply)?.ok_or("not whole")?;
//! here.start(qp, &accepted.negotiated, 1448)?;
//!
//! // A write, from the application to the stream.
//! here.post_send(qp, &SendRequest {
//!     wr_id: 7,
//!     work: Work::Write { stag, offset: 0x1008 },
//!     payload: Payload::Inline(b"written"),
//!     flags: Flags { signaled: true, ..Flags::default() },
//! })?;
//! let mut pipe = vec![0; 4096];
//! let sent = here.transmit(qp, &mut pipe, &mut our_memory)?;
//! let mut completions = [Completion::default()];
//! assert_eq!(here.poll_cq(cq, &mut completions)?, 1);
//! assert_eq!((completions[0].wr_id, completions[0].status), (7, Status::Success));
//!
//! // And from the stream to the peer's memory, in two slices.
//! let (first, second) = pipe[..sent.len].split_at(10);
//! assert_eq!(there.receive(peer_qp, &[first, second], &mut their_memory)?, sent.len);
//! assert_eq!(&their_memory.0[8..15], b"written");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is not there
//! - Out-of-order placement (RFC 5041 allows it): the stream is in order.
//! - Sends with immediate data: RFC 7306 has them after writes only. Zero-based and on-demand regions.
//! - Reads into more than one element: a Read Request names one sink (RFC 5040 section 4.4).
//! - Several streams over one connection: MPA has one (RFC 5044 section 2).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod counters;
pub mod ddp;
pub mod memory;
pub mod mpa;
pub mod rdmap;
pub mod session;
pub mod status;
pub mod verbs;

pub use counters::Counters;
pub use memory::{Extent, Fault, Handle, Location, Memory, Piece, Pieces};
pub use status::Status;
pub use verbs::{Completion, Event, Rnic};
