//! Values on the command line of the benches of a core by itself.

use std::time::Duration;

/// What was given, or else the default.
pub(super) fn or<T: Clone>(given: &[T], default: &[T]) -> Vec<T> {
    if given.is_empty() { default.to_vec() } else { given.to_vec() }
}

/// The one of `all` with this name.
pub(super) fn named<T: Copy>(
    text: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<T, String> {
    all.iter().copied().find(|&one| name(one) == text).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|&one| name(one)).collect();
        format!("it is one of {}", names.join(", "))
    })
}

/// How long a system runs for one figure.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    crate::args::seconds_within(text, 0.01..=60.0)
}

/// A setting of degen's, tried at once: what degen does not know is told before anything is made ready, or root asked for.
pub(super) fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it is KEY=VALUE, such as loss=1%")?;
    nic::degen::Settings::default().set(key, value).map_err(|error| error.to_string())?;
    Ok((key.to_owned(), value.to_owned()))
}
