//! How far a time is off, where it is off most.

use super::{Point, Verdict, number};

/// `enough` microseconds are exact enough, for the reason `why`.
pub(super) fn verdict(
    subject: &str,
    enough: u32,
    why: &str,
    points: &[Point<'_>],
) -> Option<Verdict> {
    let off: Vec<(&Point<'_>, f64)> =
        points.iter().filter_map(|at| Some((at, at.median(subject)?))).collect();
    let (worst, most) = off.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1))?;
    let (unit, label) = (worst.scenario.y.unit, worst.label(subject));
    let measured: Vec<String> = off
        .iter()
        .map(|(at, off)| format!("{} {unit} with {}", number(*off), at.words()))
        .collect();
    let (at, most_words) = (worst.words(), number(most));
    let verdict = if most <= f64::from(enough) { "exact enough" } else { "not exact enough here" };
    let within = off.iter().filter(|(_, off)| *off <= f64::from(enough)).count();
    Some(Verdict {
        claimed: None,
        found: None,
        measured: format!("The {label} is off by {}.", measured.join(", ")),
        ratio: format!(
            "no number in the paper, off by {most_words} {unit} at most here, with {at}"
        ),
        meaning: format!(
            "The {label} is off by {most_words} {unit} where it is off most, with {at}, and by no more \
             than {enough} {unit} ({why}) at {within} of {} points: {verdict}.",
            off.len()
        ),
    })
}
