//! What becomes of connections that are asked to move to the NIC.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::connections::{self, MOVING, NIC, Names, ends, names};
use crate::error::Error;
use crate::table::{Align, Table};

/// How long connections are given.
const PATIENCE: Duration = Duration::from_secs(1);
/// The least time between two looks, and the least multiple of the duration of the last one: there may be many connections.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const REST_FACTOR: u32 = 4;

/// Connections that are asked to move, as they were before.
#[derive(Debug)]
pub(crate) struct Asked(Vec<Value>);

/// What has become of one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Moved,
    Moving,
    Refused(String),
    CameBack(String),
    /// Its program has made no call since that would have offered it.
    NotYet,
    Closed,
}

impl Outcome {
    fn words(&self) -> String {
        match self {
            Outcome::Moved => "on the NIC".to_owned(),
            Outcome::Moving => "on its way".to_owned(),
            Outcome::Refused(why) => format!("refused: {why}"),
            Outcome::CameBack(why) => format!("came back: {why}"),
            Outcome::NotYet => "not yet offered by its program".to_owned(),
            Outcome::Closed => "closed".to_owned(),
        }
    }
}

impl Asked {
    /// Connections of this process, or between these ends, that are not at a NIC yet; of all that can be seen, if neither is
    /// named.
    pub(crate) fn look(pid: Option<u32>, path: Option<Names>) -> Result<Asked, Error> {
        let (mut all, _) = connections::of_each(None)?;
        all.retain(|one| {
            one["where"] != NIC
                && pid.is_none_or(|pid| one["pid"] == pid)
                && path.as_ref().is_none_or(|path| names(one) == *path)
        });
        all.sort_by_cached_key(ends);
        // Several wharfs may have refused it.
        all.dedup_by_key(|one| names(one));
        Ok(Asked(all))
    }

    /// Waits for a second, or until all have moved, and says what has become of each.
    pub(crate) fn outcome(&self) -> Result<String, Error> {
        let until = Instant::now() + PATIENCE;
        loop {
            let since = Instant::now();
            let (all, _) = connections::of_each(None)?;
            let now: HashMap<Names, &Value> = all.iter().map(|one| (names(one), one)).collect();
            let outcomes = self.0.iter().map(|one| outcome(one, now.get(&names(one)).copied()));
            let (outcomes, is_over): (Vec<_>, Vec<_>) = outcomes.unzip();
            let rest = LOOK_EVERY.max(since.elapsed() * REST_FACTOR);
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over.into_iter().all(|is_over| is_over) {
                return Ok(self.words(&outcomes));
            }
            thread::sleep(rest.min(left));
        }
    }

    /// A line with the sums, and one for each connection.
    fn words(&self, outcomes: &[Outcome]) -> String {
        let mut sums: BTreeMap<&Outcome, usize> = BTreeMap::new();
        outcomes.iter().for_each(|one| *sums.entry(one).or_default() += 1);
        let sums: Vec<String> =
            sums.into_iter().map(|(one, count)| format!("{count} {}", one.words())).collect();
        let count = self.0.len();
        let s = if count == 1 { "" } else { "s" };
        if count == 0 {
            return "no connection was seen at the kernel\n".to_owned();
        }
        use Align::{Left, Right};
        let mut table = Table::new(&[Left, Left, Right, Left]);
        table.row(["LOCAL", "REMOTE", "PID", "NOW"]);
        for (one, outcome) in self.0.iter().zip(outcomes) {
            let text = |name: &str| one[name].as_str().unwrap_or("-").to_owned();
            table.row([text("local"), text("remote"), one["pid"].to_string(), outcome.words()]);
        }
        format!("{count} connection{s}: {}\n{table}", sums.join(", "))
    }
}

/// What has become of a connection, and whether that is the last word: a reason that it had before may be an old one.
fn outcome(before: &Value, now: Option<&Value>) -> (Outcome, bool) {
    let Some(now) = now else { return (Outcome::Closed, true) };
    let is_new = |name: &str| before[name] != now[name];
    match (&now["where"], now["refused"].as_str(), now["restored"].as_str()) {
        (place, ..) if place == NIC => (Outcome::Moved, true),
        (place, ..) if place == MOVING => (Outcome::Moving, false),
        (_, Some(why), _) => (Outcome::Refused(why.to_owned()), is_new("refused")),
        (_, _, Some(why)) if is_new("restored") => (Outcome::CameBack(why.to_owned()), true),
        _ => (Outcome::NotYet, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(place: &str, refused: Option<&str>, restored: Option<&str>) -> Value {
        json!({
            "local": "10.0.0.1:80", "remote": "10.0.0.2:4000", "where": place, "pid": 7, "refused": refused,
            "restored": restored,
        })
    }

    #[test]
    fn what_became_of_a_connection_is_its_place_or_a_reason() {
        let kernel = one("os", None, None);
        let of = |now: &Value| outcome(&kernel, Some(now));
        assert_eq!(outcome(&kernel, None), (Outcome::Closed, true));
        assert_eq!(of(&one("nic", None, None)), (Outcome::Moved, true));
        assert_eq!(of(&one("moving", None, None)), (Outcome::Moving, false));
        assert_eq!(of(&kernel), (Outcome::NotYet, false));
        let refused = one("os", Some("quota"), None);
        assert_eq!(of(&refused), (Outcome::Refused("quota".to_owned()), true));
        let back = one("os", None, Some("epoll"));
        assert_eq!(of(&back), (Outcome::CameBack("epoll".to_owned()), true));
        // Reasons of before: the program may yet offer it.
        let (old, is_over) = outcome(&refused, Some(&refused));
        assert_eq!((old, is_over), (Outcome::Refused("quota".to_owned()), false));
        assert_eq!(outcome(&back, Some(&back)), (Outcome::NotYet, false));
    }

    #[test]
    fn the_sums_come_before_the_connections() {
        let asked = Asked(vec![one("os", None, None), one("os", None, None)]);
        let text = asked.words(&[Outcome::Refused("quota".to_owned()), Outcome::Moved]);
        assert_eq!(
            text,
            "2 connections: 1 on the NIC, 1 refused: quota\n\
             LOCAL        REMOTE         PID  NOW\n\
             10.0.0.1:80  10.0.0.2:4000    7  refused: quota\n\
             10.0.0.1:80  10.0.0.2:4000    7  on the NIC\n"
        );
        assert_eq!(Asked(Vec::new()).words(&[]), "no connection was seen at the kernel\n");
    }
}
