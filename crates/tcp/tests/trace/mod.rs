//! The trace of one connection: all that the wire saw of it, in order, nothing of another, and no more
//! than there is room for.

mod bounds;
mod lab;
mod laws;
