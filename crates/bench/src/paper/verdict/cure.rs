//! Whether all get through with what the paper does, where not all do without.

use super::{Point, Verdict, number};

/// From so many per cent on all get through.
const ALL: f64 = 99.99;

/// A point with the shares that get through with and without, in per cent.
type Shares<'a, 'b> = (&'b Point<'a>, f64, f64);

pub(super) fn verdict(subject: &str, baseline: &str, points: &[Point<'_>]) -> Option<Verdict> {
    let share = |at| Some((at, Point::median(at, subject)?, Point::median(at, baseline)?));
    let all: Vec<Shares<'_, '_>> = points.iter().filter_map(share).collect();
    let (worst, cured, ill) = all.iter().copied().min_by(|one, other| one.2.total_cmp(&other.2))?;
    let (with, without) = (worst.label(subject), worst.label(baseline));
    let meaning = meaning(with, without, &all, (worst, ill));
    let measured: Vec<String> = all
        .iter()
        .map(|(at, cured, ill)| {
            let (cured, ill, unit) = (number(*cured), number(*ill), at.scenario.y.unit);
            format!("{}: {with} {cured} {unit}, {without} {ill} {unit}", at.words())
        })
        .collect();
    Some(Verdict {
        claimed: None,
        found: worst.over(subject, baseline),
        measured: measured.join("; ") + ".",
        ratio: format!("no number in the paper, {} % to {} % here", number(cured), number(ill)),
        meaning,
    })
}

fn meaning(with: &str, without: &str, all: &[Shares<'_, '_>], worst: (&Point<'_>, f64)) -> String {
    let starves = |share: f64| share < ALL;
    let uncured: Vec<String> = all
        .iter()
        .filter(|(_, cured, _)| starves(*cured))
        .map(|(at, cured, _)| format!("{} % with {}", number(*cured), at.words()))
        .collect();
    let ill = number(worst.1);
    if !uncured.is_empty() {
        return format!(
            "With {with} not all connections open ({}), with {without} {ill} %: the cure is not as \
             complete as in the paper.",
            uncured.join(", ")
        );
    }
    if !starves(worst.1) {
        return format!(
            "Every connection opens with {with} and with {without}: the starvation that the paper \
             tells of does not show here."
        );
    }
    let spared = all.iter().filter(|(.., ill)| !starves(*ill)).map(|(at, ..)| at.words());
    let spared: Vec<String> = spared.collect();
    let but = match spared.is_empty() {
        true => String::new(),
        false => format!(", and all with {}", spared.join(", ")),
    };
    format!(
        "With {with} every connection opens, with {without} {ill} % at worst, with {}{but}: the \
         paper's starvation shows, and its cure works.",
        worst.0.words()
    )
}
