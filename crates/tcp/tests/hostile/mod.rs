//! A stack against any input: segments, snapshots, times and calls.

mod drive;
mod input;
mod kept;
mod survival;
