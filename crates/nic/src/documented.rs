//! `docs/reference` names every counter and every setting, and none that is not there.

use std::collections::BTreeSet;

use crate::capture::{self, Packet, Resolution, Statistics, Writer};
use crate::config::{Config, KEYS};
use crate::counters::Entry;
use crate::degen::{Direction, Snapshot};
use crate::worker::{Lanes, zero};

const COUNTERS: &str = include_str!("../../../docs/reference/counters.md");
const CONFIGURATION: &str = include_str!("../../../docs/reference/configuration.md");

type Names = BTreeSet<(String, String)>;

/// Of a row of a table, its cells.
fn cells(line: &str) -> Option<Vec<&str>> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    Some(row.split(" | ").collect())
}

/// What is between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A heading names one group or several, and the rows below it the counters of each.
fn documented() -> Names {
    let mut groups = Vec::new();
    let mut names = Names::new();
    for line in COUNTERS.lines() {
        if line.starts_with('#') {
            groups = quoted(line).collect();
        } else if let Some(name) = cells(line).and_then(|cells| quoted(cells[0]).next()) {
            names.extend(groups.iter().map(|group| ((*group).to_owned(), name.to_owned())));
        }
    }
    names
}

fn of_captures() -> Vec<Entry> {
    let nothing = || std::iter::empty::<Result<Packet, _>>();
    let mut out = Writer::new(Vec::new(), Resolution::Nanoseconds).unwrap();
    let config = Config::default();
    let done: [Statistics; 3] = [
        capture::lro(nothing(), &config, &mut out).unwrap(),
        capture::roundtrip(nothing(), &config, &mut out).unwrap(),
        capture::gso(nothing(), 1500, &mut out).unwrap(),
    ];
    let of_links = capture::LinkCounts::default();
    done.into_iter().flat_map(|statistics| statistics.counters).chain(of_links.entries()).collect()
}

/// Those of [`Bridge::counters`](crate::degen::bridge::Bridge::counters) that are not degen's own.
fn of_the_bridges_ports() -> impl Iterator<Item = (String, String)> {
    let of = |group: &str| ["rx_dropped", "tx_lost"].map(|n| (group.to_owned(), n.to_owned()));
    ["first", "second"].into_iter().flat_map(of)
}

#[test]
fn every_counter_is_documented_and_no_other() {
    let of_degen = |groups| Snapshot::default().entries(groups);
    let entries = zero(Lanes::Host)
        .into_iter()
        .chain(of_degen(Direction::BOTH.map(Direction::name)))
        .chain(of_degen(["degen.forward", "degen.reverse"]))
        .chain(zero(Lanes::Engine))
        .chain(zero(Lanes::Both))
        .chain(of_captures());
    let named = entries.map(|Entry { group, name, .. }| (group.to_owned(), name.to_owned()));
    let known: Names = named.chain(of_the_bridges_ports()).collect();
    let documented = documented();
    let missing: Vec<_> = known.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&known).collect();
    assert!(missing.is_empty(), "docs/reference/counters.md lacks {missing:?}");
    assert!(gone.is_empty(), "docs/reference/counters.md has, and wharf has not, {gone:?}");
}

#[test]
fn every_key_is_documented_with_its_default_and_range_and_no_other() {
    let own = KEYS.iter().map(|key| {
        let changes = if key.run_time { "any time" } else { "at start" };
        format!("| `{}` | `{}` | {changes} | {} | ", key.name, key.default_text(), key.range())
    });
    let of_degen = degen::keys::KEYS
        .iter()
        .map(|key| format!("| `{}` | `{}` | {} | ", key.name, key.default_text(), key.takes()));
    let rows: Vec<String> = own.chain(of_degen).collect();
    for row in &rows {
        let found = CONFIGURATION.lines().any(|line| line.starts_with(row));
        assert!(found, "docs/reference/configuration.md lacks a line that begins with: {row}");
    }
    for line in CONFIGURATION.lines().filter(|line| line.starts_with("| `")) {
        let known = rows.iter().any(|row| line.starts_with(row));
        assert!(known, "docs/reference/configuration.md has, and wharf has not: {line}");
    }
}
