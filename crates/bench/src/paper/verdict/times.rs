//! How many times as long one takes as another, where that is most.

use super::{Point, Spread, Verdict, number};

/// What is compared; see [`Judge::Times`](crate::paper::Judge::Times).
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) subject: &'static str,
    pub(super) baseline: &'static str,
    pub(super) peer: Option<&'static str>,
    pub(super) most: Option<u32>,
}

/// A point with its ratio.
type Found<'a, 'b> = (&'b Point<'a>, Spread);

impl Times {
    pub(super) fn verdict(self, points: &[Point<'_>]) -> Option<Verdict> {
        let ratio = |point| Some((point, Point::over(point, self.subject, self.baseline)?));
        let all: Vec<Found<'_, '_>> = points.iter().filter_map(ratio).collect();
        let by_ratio =
            |one: &&Found<'_, '_>, other: &&Found<'_, '_>| one.1.median.total_cmp(&other.1.median);
        let (worst, found) = *all.iter().max_by(by_ratio)?;
        let (best, least) = *all.iter().min_by(by_ratio)?;
        let (subject, baseline) = (worst.label(self.subject), worst.label(self.baseline));
        let mut meaning = format!(
            "At most {subject} takes {} times as long as {baseline}, with {}",
            number(found.median),
            worst.words()
        );
        if all.len() > 1 {
            let (least, at) = (number(least.median), best.words());
            meaning += &format!(", and at least {least} times, with {at}");
        }
        meaning += &self.beside_peer(&all).unwrap_or_default();
        meaning += &self.within(&all).unwrap_or_default();
        meaning.push('.');
        Some(Verdict {
            claimed: None,
            found: Some(found),
            measured: measured(&all),
            ratio: format!(
                "no number in the paper, {} here, with {}",
                found.words(),
                worst.words()
            ),
            meaning,
        })
    }

    /// How long the peer takes where it takes longest beside the baseline.
    fn beside_peer(self, all: &[Found<'_, '_>]) -> Option<String> {
        let peer = self.peer?;
        let times =
            |(at, _): &Found<'_, '_>| Some((at.over(peer, self.baseline)?.median, at.words()));
        let (most, at) =
            all.iter().filter_map(times).max_by(|one, other| one.0.total_cmp(&other.0))?;
        let label = all.first()?.0.label(peer);
        Some(format!("; {label}: up to {} times, with {at}", number(most)))
    }

    /// At how many points it takes as long as the baseline, or as the baseline may itself.
    fn within(self, all: &[Found<'_, '_>]) -> Option<String> {
        let most = 1.0 + f64::from(self.most?) / 100.0;
        let held = |(at, found): &&Found<'_, '_>| {
            let own = at.spread(self.baseline).map_or(1.0, |own| own.max / own.median);
            found.median <= most.max(own)
        };
        let (held, all) = (all.iter().filter(held).count(), all.len());
        let asked = format!("no more than {most:.2} times, or its own spread, is as long");
        Some(format!("; {asked}: so it is at {held} of {all} points"))
    }
}

/// Every series at every point.
pub(super) fn measured(all: &[Found<'_, '_>]) -> String {
    let at = |(at, _): &Found<'_, '_>| {
        let unit = at.scenario.y.unit;
        let values = at.scenario.series.iter().filter_map(|series| {
            Some(format!("{} {} {unit}", series.label, number(at.median(series.id)?)))
        });
        format!("{}: {}", at.words(), values.collect::<Vec<_>>().join(", "))
    };
    all.iter().map(at).collect::<Vec<_>>().join("; ") + "."
}
