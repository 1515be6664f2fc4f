//! What there is to measure.

use bench::paper::{Code, Entry, Paper};
use serde_json::{Value, json};

use crate::table::{Align, Table};

/// All figures of these, as a table or as JSON lines.
pub(super) fn list(entries: &[&Entry], json: bool) -> String {
    if json {
        return entries.iter().map(|entry| format!("{}\n", object(entry))).collect();
    }
    let mut table = Table::new(&[Align::Left; 4]);
    table.row(["FIGURE", "PAPER", "WHERE", "RUNS"]);
    for entry in entries {
        let runs = entry.lacks().map_or("yes".to_owned(), |what| format!("no: {what}"));
        let places = entry.places.iter().enumerate();
        for (number, place) in places {
            let (name, runs) = if number == 0 { (entry.name, runs.as_str()) } else { ("", "") };
            table.row([name, place.paper.name(), &place.text(), runs]);
        }
        table.line(format!("    {}", entry.title));
    }
    for paper in Paper::ALL {
        let drawings = paper.without_results();
        let here = |entry: &&Entry| entry.places.iter().any(|place| place.paper == paper);
        if !drawings.is_empty() && entries.iter().any(here) {
            let captions: Vec<&str> = drawings.iter().map(|(caption, _)| *caption).collect();
            table.line(format!("Without results in {}: {}", paper.name(), captions.join(", ")));
        }
    }
    table.to_string()
}

fn object(entry: &Entry) -> Value {
    let places = entry.places.iter().map(|place| {
        json!({
            "paper": place.paper.name(),
            "section": place.section,
            "caption": place.caption,
        })
    });
    let published = entry.published.iter().map(|value| {
        json!({
            "series": value.series,
            "x": value.x,
            "value": value.value,
            "unit": value.unit,
            "place": value.place,
        })
    });
    json!({
        "figure": entry.name,
        "places": places.collect::<Vec<_>>(),
        "title": entry.title,
        "varied": entry.varied,
        "measured": entry.measured,
        "claim": entry.claim,
        "published": published.collect::<Vec<_>>(),
        "runs": matches!(entry.code, Code::Runs(_)),
        "lacks": entry.lacks(),
    })
}
