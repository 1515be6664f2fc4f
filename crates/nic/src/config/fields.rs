//! How entries of the table of keys are written.

use super::keys::{Kind, Unit};
use super::value::Choice;

/// A field that holds a number. What is set has been found in range, so the cast keeps it.
macro_rules! number {
    ($($field:ident).+) => {
        $crate::config::keys::Field::Number {
            get: |c| c.$($field).+ as u64,
            set: |c, value| c.$($field).+ = value as _,
        }
    };
}

/// A field that holds a boolean.
macro_rules! boolean {
    ($($field:ident).+) => {
        $crate::config::keys::Field::Number {
            get: |c| u64::from(c.$($field).+),
            set: |c, value| c.$($field).+ = value != 0,
        }
    };
}

/// A field that holds a [`Choice`].
macro_rules! choice {
    ($($field:ident).+) => {
        $crate::config::keys::Field::Number {
            get: |c| $crate::config::value::Choice::index(c.$($field).+) as u64,
            set: |c, value| c.$($field).+ = $crate::config::value::Choice::VALUES[value as usize],
        }
    };
}

/// A field that holds a policy.
macro_rules! policy {
    ($($field:ident).+) => {
        $crate::config::keys::Field::Policy {
            get: |c| &c.$($field).+,
            set: |c, policy| c.$($field).+ = policy,
        }
    };
}

pub(super) const fn number(default: u64, min: u64, max: u64, unit: Unit) -> Kind {
    Kind::Number { default, min, max, unit, power_of_two: false, zero: None }
}

pub(super) const fn zero_or_power_of_two(zero: &'static str, min: u64, max: u64) -> Kind {
    Kind::Number { default: 0, min, max, unit: Unit::Count, power_of_two: true, zero: Some(zero) }
}

pub(super) const fn zero_or(zero: &'static str, min: u64, max: u64, unit: Unit) -> Kind {
    Kind::Number { default: 0, min, max, unit, power_of_two: false, zero: Some(zero) }
}

/// A choice whose default is the first.
pub(super) const fn first_of<T: Choice>() -> Kind {
    Kind::Choice { default: 0, names: T::NAMES }
}

/// A choice whose default is the second.
pub(super) const fn second_of<T: Choice>() -> Kind {
    Kind::Choice { default: 1, names: T::NAMES }
}

pub(super) const US: u64 = 1_000;
pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000_000_000;
