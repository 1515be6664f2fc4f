//! What a run ends with: each figure's claim and what was found, in a line.

use bench::paper::{Entry, Gaps, Store, Verdict, number, verdict};
use serde_json::{Value, json};

use super::PAGE;
use crate::table::{Align, Table};

/// A line for each of `entries` and the path of the page, or JSON lines of the same.
pub(super) fn table(entries: &[&Entry], store: &Store, gaps: &Gaps, json: bool) -> String {
    let page = store.directory().join(PAGE).display().to_string();
    let of = |entry: &Entry| verdict(entry, store.rows(entry.name));
    if json {
        let lines = entries.iter().map(|entry| object(entry, of(entry), gaps, &page));
        return lines.map(|line| format!("{line}\n")).collect();
    }
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Right, Align::Left]);
    table.row(["figure", "the paper's ratio", "here", ""]);
    for entry in entries {
        let Some(verdict) = of(entry) else {
            table.row([entry.name, "", "", &absent(entry, gaps)]);
            continue;
        };
        let times =
            |ratio: Option<f64>| ratio.map_or("-".to_owned(), |it| format!("{} x", number(it)));
        let found = verdict.found.map(|found| found.median);
        let partly = if gaps.contains_key(entry.name) { "(incomplete) " } else { "" };
        let meaning = format!("{partly}{}", verdict.meaning);
        table.row([entry.name.to_owned(), times(verdict.claimed), times(found), meaning]);
    }
    table.line(page);
    table.to_string()
}

/// Why there is nothing of a figure.
pub(super) fn absent(entry: &Entry, gaps: &Gaps) -> String {
    match (entry.lacks(), gaps.get(entry.name)) {
        (Some(what), _) => what.to_owned(),
        (None, Some(why)) => why.join("; "),
        (None, None) => {
            format!("not measured in this directory: `wharf bench paper --figure {}`", entry.name)
        }
    }
}

fn object(entry: &Entry, verdict: Option<Verdict>, gaps: &Gaps, page: &str) -> Value {
    let verdict = verdict.as_ref();
    let found = verdict.and_then(|verdict| verdict.found);
    json!({
        "figure": entry.name,
        "claim": entry.claim,
        "claimed_ratio": verdict.and_then(|verdict| verdict.claimed),
        "ratio": found.map(|found| found.median),
        "ratio_min": found.map(|found| found.min),
        "ratio_max": found.map(|found| found.max),
        "measured": verdict.map(|verdict| &verdict.measured),
        "meaning": verdict.map(|verdict| &verdict.meaning),
        "lacks": entry.lacks(),
        "incomplete": gaps.get(entry.name),
        "page": page,
    })
}
