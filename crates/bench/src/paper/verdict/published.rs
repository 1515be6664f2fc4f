//! How much there is of something, beside what the paper has of it.

use super::{Point, Verdict, number};

/// What is found of a subject at the last point, in words and as a part of what the paper has.
struct Beside {
    label: &'static str,
    found: f64,
    claimed: f64,
}

pub(super) fn verdict(subjects: &[&str], points: &[Point<'_>]) -> Option<Verdict> {
    let last = points.last()?;
    let beside = |id: &&str| {
        let published = last.entry.published.iter().find(|one| one.series == *id)?;
        let (label, found) = (last.label(id), last.median(id)?);
        Some(Beside { label, found, claimed: published.value })
    };
    let all: Vec<Beside> = subjects.iter().filter_map(beside).collect();
    let first = all.first()?;
    let (unit, at) = (last.scenario.y.unit, last.words());
    let of = |id: &&str| {
        let each = points.iter().filter_map(|at| {
            Some(format!("{} {unit} with {}", number(at.median(id)?), at.words()))
        });
        format!("{}: {}", last.label(id), each.collect::<Vec<_>>().join(", "))
    };
    let told = all.iter().map(|one| {
        let part = number(one.found / one.claimed * 100.0);
        let (label, found, claimed) = (one.label, number(one.found), number(one.claimed));
        format!("{label}: {found} {unit} with {at}, {part} % of the paper's {claimed}")
    });
    Some(Verdict {
        claimed: None,
        found: None,
        measured: subjects.iter().map(of).collect::<Vec<_>>().join("; ") + ".",
        ratio: format!(
            "{} {unit} in the paper, {} here, of {} with {at}",
            number(first.claimed),
            number(first.found),
            first.label
        ),
        meaning: told.collect::<Vec<_>>().join("; ") + ".",
    })
}
