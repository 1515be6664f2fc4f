//! Changes of settings at given times.

use alloc::vec::Vec;

use crate::keys::Key;
use crate::{Config, Nanos};

/// One setting and its value.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The setting.
    pub key: &'static Key,
    /// Its value, as the key [reads](Key::parse) it.
    pub value: u64,
}

impl Change {
    /// Applies the change.
    pub fn apply(&self, config: &mut Config) {
        self.key.set(config, self.value);
    }
}

impl PartialEq for Change {
    fn eq(&self, other: &Self) -> bool {
        self.key.name == other.key.name && self.value == other.value
    }
}

/// Changes at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Time since the schedule began, in nanoseconds.
    pub at: Nanos,
    /// The changes.
    pub changes: Vec<Change>,
}

/// Steps in order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    steps: Vec<Step>,
    /// The schedule begins again after so long; `None`: it does not.
    repeat: Option<Nanos>,
}

/// Why steps are no schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleError {
    /// A step comes before the one in front of it.
    GoesBack {
        /// Its number, counted from 0.
        step: usize,
    },
    /// The schedule is to begin again before its last step.
    RepeatTooShort,
}

impl Schedule {
    /// A schedule of these steps, which begins again every `repeat` nanoseconds if that is given.
    ///
    /// Times that go back, and a `repeat` that is not after the last step.
    pub fn new(steps: Vec<Step>, repeat: Option<Nanos>) -> Result<Self, ScheduleError> {
        if let Some(before) = steps.windows(2).position(|pair| pair[1].at < pair[0].at) {
            return Err(ScheduleError::GoesBack { step: before + 1 });
        }
        let too_short = |last: &Step| repeat.is_some_and(|repeat| last.at >= repeat);
        if steps.last().is_some_and(too_short) {
            return Err(ScheduleError::RepeatTooShort);
        }
        Ok(Schedule { steps, repeat })
    }

    /// The steps, in order of time.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

/// A schedule that has begun.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    schedule: Schedule,
    /// When this round of it began.
    began: Nanos,
    next: usize,
}

impl Running {
    pub(crate) fn begin(schedule: Schedule, at: Nanos) -> Self {
        Running { schedule, began: at, next: 0 }
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let step = self.schedule.steps.get(self.next)?;
        Some(self.began.saturating_add(step.at))
    }

    /// Makes the changes of the next step.
    pub(crate) fn step(&mut self, config: &mut Config) {
        let Some(step) = self.schedule.steps.get(self.next) else { return };
        step.changes.iter().for_each(|change| change.apply(config));
        self.next += 1;
        if self.next < self.schedule.steps.len() {
            return;
        }
        let Some(repeat) = self.schedule.repeat else { return };
        // A round beyond the end of time does not begin.
        if let Some(again) = self.began.checked_add(repeat) {
            self.began = again;
            self.next = 0;
        }
    }

    /// Skips rounds that end by `now`, if one has just ended: they change nothing more. Nothing else may
    /// happen before `now`.
    pub(crate) fn skip(&mut self, now: Nanos) {
        if let (0, Some(repeat)) = (self.next, self.schedule.repeat) {
            let time = now.saturating_sub(self.began);
            self.began += time.checked_div(repeat).unwrap_or(0) * repeat;
        }
    }
}
