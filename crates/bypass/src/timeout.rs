//! How long the library waits for wharf, in nanoseconds. wharf may be dead, stopped or slow.
//!
//! - **Dead**: its end of the session's socket is closed, which each wait looks at when its time is over. The guard puts
//!   its connections back, or the next wharf does; [`Session::is_lost`](crate::session::Session::is_lost) says when nobody
//!   does.
//! - **Stopped** (SIGSTOP, a debugger) and **slow** cannot be told apart in the moment, so both get the same times: no wait
//!   below depends on what wharf does. A session in which a time has run out is slow
//!   ([`Patience`](crate::session::Patience)): until wharf has answered all offers, calls that may say "not yet" do so at once.
//!   One of which an offer was withdrawn is silent: no call waits, and nothing more is offered.
//!
//! Every wait, its bound, and what comes of it then:
//!
//! | wait | bound | then |
//! |---|---|---|
//! | `session::hello`: for Welcome, once a wharf | [`WELCOME`] | the kernel has the connections; Welcome is looked for by later calls |
//! | `os::message`: room in the queue of messages | none | the request is noted in shared memory, an offer is not made |
//! | `Session::command`: room in a worker's ring | [`CONTROL`] | the connection is asked back |
//! | `Connection::settled`: an offer without an answer | [`CALL`], and [`OFFER`] since it was made | `EAGAIN`, not ready; then the offer is withdrawn, and the kernel serves the call |
//! | `Connection::settled`: a connection that moves | [`CALL`] | `EAGAIN`, not ready; a call that blocks waits on, as at the NIC |
//! | `Connection::receive`, `send`: bytes or room at the NIC | as the program asks | as at the kernel: a signal or the program's time-out ends it |
//! | `Connection::wait_until_tried`: `TCP_NOTSENT_LOWAT` | [`CALL`] | not writable |
//! | `Connection::take_back`: a lent ring that the NIC is moving | [`CALL`] | as one that moves |
//! | `Connection::info`: `TCP_INFO` | [`CONTROL`] | the figures that the NIC has told last |
//! | `Connection::restore`, of a descriptor that does not block | [`CONTROL`] | it is asked back; `EAGAIN` where the call is the kernel's alone |
//! | `Connection::restore`, of one that blocks | none | the call blocks |
//! | setsockopt(2), for an offer without an answer | none | the connection is taken out of the kernel with what was set |
//! | setsockopt(2), for a connection that moves | [`CONTROL`] | what was set is the connection's when it is back at the kernel, for which it is asked |
//! | shutdown(2) | [`CONTROL`] | an offer is withdrawn; the kernel shuts the others down when they are back, for which they are asked |
//! | close(2) | [`CONTROL`] | an offer is withdrawn; at the NIC, wharf ends the connection when it goes on |
//! | fork(2) | [`RETURN`] since the last connection came back | the child waits for what it uses: see `connection::inherited` |
//! | execve(2), a program that is started, a child of vfork(2), a descriptor that is sent away | [`OFFER`], for all connections together | wharf puts the connections back when it goes on |
//! | an epoll set that is polled or watched itself, or is not known | [`CONTROL`], for all connections together | the same |
//! | a thread that offers a connection, or takes one back | none | it does so with signals held back, and waits for nobody |
//! | `Lock` | a second | as its documentation says |

/// Time for the answer to Hello. It is waited for once; a call that comes later looks whether it is there.
pub(crate) const WELCOME: u64 = 50 * MILLISECOND;
/// Time for a call that may say that there is nothing yet.
pub(crate) const CALL: u64 = 5 * MILLISECOND;
/// Time for a call that has nothing to say in place of its result.
pub(crate) const CONTROL: u64 = 300 * MILLISECOND;
/// Time for the answer to an offer.
pub(crate) const OFFER: u64 = 2000 * MILLISECOND;
/// Time for connections to come back before a fork, since the last one did.
pub(crate) const RETURN: u64 = 200 * MILLISECOND;

const MILLISECOND: u64 = 1_000_000;
