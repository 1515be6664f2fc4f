//! What of the work is timed, or counted by callgrind.

use std::time::Duration;

/// [`timed`] or [`warming`].
pub(super) type Clock<R> = fn(&mut dyn FnMut() -> R) -> (Duration, R);

/// Work that counts. callgrind collects while it is here.
#[inline(never)]
pub(super) fn timed<R>(work: &mut dyn FnMut() -> R) -> (Duration, R) {
    let began = sys::clock::now();
    let result = work();
    (Duration::from_nanos(sys::clock::now() - began), result)
}

/// Work that only brings everything to where measuring begins.
pub(super) fn warming<R>(work: &mut dyn FnMut() -> R) -> (Duration, R) {
    (Duration::ZERO, work())
}
