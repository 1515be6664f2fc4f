//! Changes that are due at their own times.

use alloc::vec::Vec;

use crate::keys::Key;
use crate::{Config, Nanos};

/// One setting and its value.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Which.
    pub key: &'static Key,
    /// As the key [reads](Key::parse) it.
    pub value: u64,
}

impl Change {
    /// Makes it.
    pub fn apply(&self, config: &mut Config) {
        self.key.set(config, self.value);
    }
}

impl PartialEq for Change {
    fn eq(&self, other: &Self) -> bool {
        self.key.name == other.key.name && self.value == other.value
    }
}

/// What changes at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Since the schedule began, in nanoseconds.
    pub at: Nanos,
    /// What changes.
    pub changes: Vec<Change>,
}

/// Steps in the order of their times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    steps: Vec<Step>,
    /// Begins again after so long; 0 for never.
    repeat: Nanos,
}

/// Why steps make no schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduleError {
    /// The step of this number, counted from 0, comes before the one in front of it.
    GoesBack {
        /// Which.
        step: usize,
    },
    /// It is to begin again before it has ended.
    RepeatTooShort,
}

impl Schedule {
    /// Steps, which begin again each `repeat` nanoseconds if that is not 0.
    ///
    /// # Errors
    /// Where time would go back.
    pub fn new(steps: Vec<Step>, repeat: Nanos) -> Result<Self, ScheduleError> {
        if let Some(before) = steps.windows(2).position(|pair| pair[1].at < pair[0].at) {
            return Err(ScheduleError::GoesBack { step: before + 1 });
        }
        if repeat > 0 && steps.last().is_some_and(|last| last.at >= repeat) {
            return Err(ScheduleError::RepeatTooShort);
        }
        Ok(Schedule { steps, repeat })
    }

    /// Its steps.
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
        if self.next < self.schedule.steps.len() || self.schedule.repeat == 0 {
            return;
        }
        // What would begin again after the end of time does not.
        if let Some(again) = self.began.checked_add(self.schedule.repeat) {
            self.began = again;
            self.next = 0;
        }
    }

    /// Leaves out the rounds that end by `now`, if one has ended just now: what they change is as it is.
    /// Nothing else may happen before `now`.
    pub(crate) fn skip(&mut self, now: Nanos) {
        if self.next == 0 {
            let time = now.saturating_sub(self.began);
            let rounds = time.checked_div(self.schedule.repeat).unwrap_or(0);
            self.began += rounds * self.schedule.repeat;
        }
    }
}
