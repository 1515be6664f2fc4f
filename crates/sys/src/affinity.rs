//! Which CPUs this process may run on, and pinning a thread to one of them.

use std::io;
use std::mem;

use crate::error::check;

/// The CPUs in the calling thread's affinity mask, ascending. A container's cpuset and `taskset`
/// are respected; this is what the number of workers is chosen from.
pub fn cpus() -> io::Result<Vec<usize>> {
    // SAFETY: cpu_set_t is an array of integers, for which all zeroes is a valid value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is writable and its true size is passed.
    check(unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) })?;
    let limit = 8 * mem::size_of_val(&set);
    // SAFETY: CPU_ISSET reads bit `cpu` of the set, and `cpu` is below its number of bits.
    Ok((0..limit).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Number of CPUs of [`cpus`]; 1 if they cannot be read.
pub fn count() -> usize {
    cpus().map_or(1, |cpus| cpus.len().max(1))
}

/// Pins the calling thread to one CPU, numbered as in [`cpus`].
///
/// `EINVAL` when that CPU does not exist or is outside the process's cpuset.
pub fn pin(cpu: usize) -> io::Result<()> {
    pin_thread(0, cpu)
}

/// Pins the thread with this id, of whatever process or of the kernel's own, to one CPU; 0 is the
/// calling thread.
///
/// As [`pin`], and `ESRCH` when there is no such thread, `EPERM` when it is another user's and
/// `CAP_SYS_NICE` is missing.
pub fn pin_thread(id: u32, cpu: usize) -> io::Result<()> {
    let id = libc::pid_t::try_from(id).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: cpu_set_t is an array of integers, for which all zeroes is a valid value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    if cpu >= 8 * mem::size_of_val(&set) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `cpu` is below the number of bits of the set, checked above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is readable and its true size is passed.
    check(unsafe { libc::sched_setaffinity(id, mem::size_of_val(&set), &set) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_has_one_cpu() {
        let all = cpus().unwrap();
        assert_eq!(all.len(), count());
        std::thread::spawn(move || {
            let last = *all.last().unwrap();
            pin(last).unwrap();
            assert_eq!(cpus().unwrap(), [last]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        assert_eq!(pin(usize::MAX).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
