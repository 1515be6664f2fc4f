//! The engine against models that are simple because they are slow: what was received as a set of bytes,
//! the window as the peer sees it, the round-trip time as RFC 6298 writes it.

mod duplicates;
mod fin;
mod mtu;
mod peer;
mod receive;
mod sending;
mod time;
mod unacceptable;
mod window;
