//! The atomic words that rings are made of: those of the language, and those of loom where it tries all
//! orders in which two threads can see each other's.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};
