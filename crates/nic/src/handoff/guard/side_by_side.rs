//! Work on many connections, by as many threads as there are CPUs.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// For fewer connections a thread costs more than it saves.
const LEAST: usize = 64;

/// What `work` makes of each of these, in the same order. Where no thread can be had, this one does all.
pub(super) fn side_by_side<T: Send, R: Send>(all: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let others = (all.len() / LEAST).min(cpus).saturating_sub(1);
    let rest = Mutex::new(all.into_iter().enumerate());
    let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
    let share = || {
        let mut done = Vec::new();
        while let Some((number, one)) = next() {
            done.push((number, work(one)));
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, share).ok();
        let threads: Vec<_> = (0..others).map_while(start).collect();
        let mut done = share();
        for thread in threads {
            match thread.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_in_order() {
        for count in [0, 1, LEAST, LEAST + 1, 10 * LEAST + 3] {
            let doubled: Vec<usize> = (0..count).map(|number| 2 * number).collect();
            assert_eq!(side_by_side((0..count).collect(), |number: usize| 2 * number), doubled);
        }
    }
}
