//! Clocks, in nanoseconds.

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Nanoseconds on `CLOCK_MONOTONIC`: never steps back, stands still while the machine is suspended.
#[inline]
pub fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds since boot, time in suspension included (`CLOCK_BOOTTIME`): the clock by which
/// leases and address lifetimes run out. All processes of a machine agree on it.
pub fn since_boot() -> u64 {
    read(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds by which `CLOCK_REALTIME`, which may be set, is ahead of [`now`]. A thread that is interrupted
/// between its two reads gets a wrong difference, so the closest of a few pairs counts.
pub fn real_ahead() -> u64 {
    /// Nanoseconds between the reads of a thread that was not interrupted.
    const CLOSE: u64 = 2_000;
    let (mut closest, mut ahead) = (u64::MAX, 0);
    for _ in 0..4 {
        let before = now();
        let real = read(libc::CLOCK_REALTIME);
        let took = now().saturating_sub(before);
        if took < closest {
            (closest, ahead) = (took, real.saturating_sub(before + took / 2));
        }
        if took < CLOSE {
            break;
        }
    }
    ahead
}

/// CPU time that the calling thread has used, in nanoseconds.
pub fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time that all threads of this process have used, in nanoseconds.
pub fn process_cpu() -> u64 {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that the call may write to. It cannot fail for the clocks
    // above, which every kernel that this crate supports has; if it did, time would read as zero.
    unsafe { libc::clock_gettime(clock, &mut time) };
    nanoseconds(&time)
}

/// Nanoseconds of the kernel's form of a time.
pub(crate) fn nanoseconds(time: &libc::timespec) -> u64 {
    time.tv_sec as u64 * NANOS_PER_SECOND + time.tv_nsec as u64
}

/// A duration in nanoseconds in the kernel's form.
pub(crate) fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / NANOS_PER_SECOND) as libc::time_t,
        tv_nsec: (ns % NANOS_PER_SECOND) as libc::c_long,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_do_not_step_back() {
        for clock in [now, since_boot, thread_cpu, process_cpu] {
            let first = clock();
            assert!(clock() >= first);
        }
        let monotonic = now();
        assert!(since_boot() >= monotonic);
    }

    #[test]
    fn a_duration_splits_into_seconds_and_nanoseconds() {
        let time = timespec(2_000_000_003);
        assert_eq!((time.tv_sec, time.tv_nsec), (2, 3));
    }
}
