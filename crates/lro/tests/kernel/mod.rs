//! What Linux merges, the lossless profile merges: the local kernel's GRO and wharf take the same
//! frames, and every difference in what comes out is one that is listed, with its reason.
//!
//! Three parties are asked. The kernel ([`testkit::gro`]), wharf ([`wharf`]), and a naive
//! [`model`] in which each listed [`reason`](reasons) for a difference is a switch. With all
//! switches off the model must say what the kernel does, byte for byte and in order; with all on,
//! what wharf does. So a difference is allowed only where the model, by a reason with a name,
//! foretells both sides of it.
//!
//! `cargo xtask gro` runs [`random`] for longer.

mod check;
mod datagrams;
mod flow;
mod model;
mod packet;
mod random;
mod reasons;
mod selftests;
mod sequence;
mod wharf;
