//! How long a thread that has nothing to do looks for more before it sleeps: as long as that has paid lately, as KVM's
//! halt polling does (`grow_halt_poll_ns` and `shrink_halt_poll_ns`).
//!
//! To be woken takes longer than to look, most of all where a processor must be woken as well. Work that comes soon
//! makes the thread look for longer, up to a bound; work that looking for so long would not have found makes it sleep
//! at once, so that little traffic costs no more than its wake-ups.

/// Nanoseconds.
type Nanos = u64;

/// The least that is worth a look.
const FIRST: Nanos = 10_000;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spin {
    window: Nanos,
    /// Since when there has been nothing to do.
    idle_since: Option<Nanos>,
}

impl Spin {
    /// Work was found at `now`. Looking for `most` is allowed.
    #[inline]
    pub fn worked(&mut self, now: Nanos, most: Nanos) {
        let Some(since) = self.idle_since.take() else { return };
        let idle = now.saturating_sub(since);
        if idle > most {
            self.window = 0;
        } else if idle >= self.window {
            self.window = (2 * self.window).max(FIRST);
        }
        self.window = self.window.min(most);
    }

    /// Whether nothing was found lately.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.idle_since.is_some()
    }

    /// Nothing was found at `now`; returns whether to look once more, rather than to sleep.
    #[inline]
    pub fn goes_on(&mut self, now: Nanos) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        now.saturating_sub(since) < self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Nanos = 100_000;

    /// How long a thread with work at these intervals has looked in vain, and how often it slept.
    fn run(gaps: impl IntoIterator<Item = Nanos>) -> (Nanos, usize) {
        let (mut spin, mut now, mut vain, mut sleeps) = (Spin::default(), 0, 0, 0);
        for gap in gaps {
            spin.goes_on(now);
            if !spin.goes_on(now + gap) {
                vain += spin.window;
                sleeps += 1;
            }
            now += gap;
            spin.worked(now, MOST);
        }
        (vain, sleeps)
    }

    #[test]
    fn work_that_comes_soon_is_waited_for_awake() {
        let (vain, sleeps) = run([40_000; 100]);
        assert!(sleeps <= 4 && vain <= 70_000, "{sleeps} sleeps, {vain} ns in vain");
    }

    #[test]
    fn work_that_comes_late_is_slept_for_at_once() {
        assert_eq!(run([MOST + 1; 100]), (0, 100));
    }

    /// A request, its answer soon after, and then nothing for long.
    #[test]
    fn now_soon_and_now_late_costs_the_least_that_is_worth_a_look() {
        let gaps = (0..100).flat_map(|_| [30_000, 1_000_000]);
        let (vain, _) = run(gaps);
        assert!(vain <= 100 * 2 * FIRST, "{vain} ns in vain");
    }

    #[test]
    fn a_bound_of_zero_never_looks_and_a_lower_one_holds_at_once() {
        let (mut spin, mut now) = (Spin::default(), 0);
        let mut wait = |most, spin: &mut Spin| {
            let looks = spin.goes_on(now);
            now += 50_000;
            spin.worked(now, most);
            looks
        };
        assert!((0..10).all(|_| !wait(0, &mut spin)));
        (0..10).for_each(|_| _ = wait(MOST, &mut spin));
        assert!(wait(20_000, &mut spin), "by what was learnt");
        assert!(!wait(20_000, &mut spin));
    }

    /// Or a busy thread would sleep as soon as it has caught up.
    #[test]
    fn the_time_that_work_takes_is_not_idle() {
        let mut spin = Spin::default();
        for turn in 0..100 {
            spin.worked(turn * 10 * MOST, MOST);
        }
        spin.goes_on(0);
        spin.worked(1, MOST);
        spin.goes_on(2);
        assert!(spin.goes_on(3));
    }
}
