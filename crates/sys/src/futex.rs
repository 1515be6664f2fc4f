//! Waiting at a word that processes share (futex(2)).

use std::io;
use std::sync::atomic::AtomicU64;

/// The futex of a word: its low half. (Only little-endian machines have it at the word's own address.)
fn low_half(word: &AtomicU64) -> *mut u32 {
    const { assert!(cfg!(target_endian = "little")) };
    word.as_ptr().cast()
}

/// Wakes all that wait at the low half of this word, in whatever process.
pub fn wake_all(word: &AtomicU64) {
    // SAFETY: the address is that of a live, aligned word; FUTEX_WAKE does not look at what is there. It fails for
    // addresses that are none alone.
    unsafe { libc::syscall(libc::SYS_futex, low_half(word), libc::FUTEX_WAKE, libc::c_int::MAX) };
}

/// Waits until woken, unless the low half of this word is not `expected`.
///
/// # Errors
/// `WouldBlock` if it is not, `Interrupted` by a signal.
pub fn wait(word: &AtomicU64, expected: u32) -> io::Result<()> {
    let forever = std::ptr::null::<libc::timespec>();
    // SAFETY: the address is that of a live, aligned word, which the kernel reads; the timeout is none.
    let result = unsafe {
        libc::syscall(libc::SYS_futex, low_half(word), libc::FUTEX_WAIT, expected, forever)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn who_waits_is_woken() {
        let word = AtomicU64::new(7 << 32);
        assert_eq!(wait(&word, 1).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Ordering::Acquire) == 7 << 32 {
                    // Woken, or the word has changed.
                    let _ = wait(&word, 0);
                }
            });
            word.fetch_add(1, Ordering::Release);
            wake_all(&word);
        });
    }
}
