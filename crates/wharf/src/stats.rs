//! `wharf stats`: the counters of a wharf that runs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, stdout};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use nic::control::Client;
use serde_json::Value;

use crate::error::Error;
use crate::print;
use crate::table::{Align, Table, thousands};
use crate::text::{escaped, escaped_json};

/// Show the counters of a wharf that runs here
#[derive(Debug, Args)]
#[command(after_help = "Example: watch the rates, once a second:\n  wharf stats --watch")]
pub(crate) struct StatsArgs {
    /// Which wharf, if several run here: its host interface, or the two interfaces of a degen (eth1:eth2)
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Print once a second until stopped, with rates (per_second in JSON, from the second line on)
    #[arg(long)]
    pub(crate) watch: bool,
    /// Show counters that are zero, too
    #[arg(long)]
    pub(crate) all: bool,
}

const EVERY: Duration = Duration::from_secs(1);
/// Cursor to the top left, and everything from there on erased (ECMA-48 CUP and ED).
const CLEAR: &str = "\x1b[H\x1b[J";

pub(crate) fn run(args: &StatsArgs) -> Result<(), Error> {
    let mut client = Client::connect(args.host.as_deref())?;
    let mut before: Option<(Instant, Value)> = None;
    loop {
        let now = Instant::now();
        let stats = client.stats()?;
        let rates = before.as_ref().map(|(then, stats)| Rates {
            seconds: now.duration_since(*then).as_secs_f64(),
            before: counters(stats).map(|c| ((c.group, c.name), c.value)).collect(),
        });
        let text = match (args.json, &rates) {
            (true, Some(rates)) => json_line(&with_rates(&stats, rates)),
            (true, None) => json_line(&stats),
            (false, rates) => render(&stats, rates.as_ref(), args.all),
        };
        if !args.watch {
            return print(text);
        }
        let redraw = !args.json && stdout().is_terminal();
        print(if redraw { format!("{CLEAR}{text}") } else { text })?;
        before = Some((now, stats));
        thread::sleep((now + EVERY).saturating_duration_since(Instant::now()));
    }
}

/// One counter of the answer.
struct Counter<'a> {
    group: &'a str,
    name: &'a str,
    value: u64,
}

/// What rates are computed from.
struct Rates<'a> {
    seconds: f64,
    before: BTreeMap<(&'a str, &'a str), u64>,
}

impl Rates<'_> {
    fn of(&self, counter: &Counter<'_>) -> u64 {
        let before = self.before.get(&(counter.group, counter.name)).copied().unwrap_or_default();
        (counter.value.saturating_sub(before) as f64 / self.seconds.max(1e-3)).round() as u64
    }
}

/// The counters in the order in which wharf gives them; what is not understood is left out.
fn counters(stats: &Value) -> impl Iterator<Item = Counter<'_>> {
    let entries = stats["counters"].as_array().into_iter().flatten();
    entries.filter_map(counter)
}

fn counter(entry: &Value) -> Option<Counter<'_>> {
    Some(Counter {
        group: entry["group"].as_str()?,
        name: entry["name"].as_str()?,
        value: entry["value"].as_u64()?,
    })
}

fn json_line(stats: &Value) -> String {
    format!("{}\n", escaped_json(&stats.to_string()))
}

/// The answer, with `per_second` in each counter.
fn with_rates(stats: &Value, rates: &Rates<'_>) -> Value {
    let mut stats = stats.clone();
    let counters = stats.get_mut("counters").and_then(Value::as_array_mut);
    for entry in counters.into_iter().flatten() {
        let rate = counter(entry).map(|counter| rates.of(&counter));
        if let (Some(rate), Some(object)) = (rate, entry.as_object_mut()) {
            object.insert("per_second".to_owned(), rate.into());
        }
    }
    stats
}

/// A heading from the plain values, then the counters by group.
fn render(stats: &Value, rates: Option<&Rates<'_>>, all: bool) -> String {
    let mut text = heading(stats);
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Right, Align::Right]);
    let unit = if rates.is_some() { "PER SECOND" } else { "" };
    table.row(["GROUP", "COUNTER", "TOTAL", unit]);
    let mut last_group = "";
    let mut hidden = 0;
    for counter in counters(stats) {
        if counter.value == 0 && !all {
            hidden += 1;
            continue;
        }
        let group = if counter.group == last_group { "" } else { counter.group };
        last_group = counter.group;
        let rate = rates.map(|rates| thousands(rates.of(&counter))).unwrap_or_default();
        table.row([group.to_owned(), counter.name.to_owned(), thousands(counter.value), rate]);
    }
    text.push_str(&table.to_string());
    if hidden > 0 {
        // Writing to a string does not fail.
        let counters = if hidden == 1 { "counter is" } else { "counters are" };
        let _ = writeln!(text, "{hidden} {counters} zero; --all shows them");
    }
    text
}

/// `host nic0; wire eth0; ...`, the host first.
fn heading(stats: &Value) -> String {
    let plain = |(name, value): (&String, &Value)| {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        let words = format!("{} {value}", name.replace('_', " "));
        Some((name != "host", escaped(&words).into_owned()))
    };
    let values = stats.as_object().into_iter().flatten();
    let mut parts: Vec<(bool, String)> = values.filter_map(plain).collect();
    parts.sort_by_key(|(later, _)| *later);
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    if parts.is_empty() { String::new() } else { format!("{}\n", parts.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stats(packets: u64) -> Value {
        json!({
            "wire": "eth0",
            "host": "nic0",
            "workers": 2,
            "counters": [
                {"group": "wire", "name": "rx_packets", "value": packets},
                {"group": "wire", "name": "rx_dropped", "value": 0},
                {"group": "wire", "name": "tx_packets", "value": 5},
                {"group": "lro", "name": "merged", "value": 1_000},
                "odd",
                {"group": "lro", "name": "odd", "value": -1},
            ],
        })
    }

    #[test]
    fn counters_are_grouped_and_zeros_left_out() {
        assert_eq!(
            render(&stats(12_345), None, false),
            "host nic0; wire eth0; workers 2\n\
             GROUP  COUNTER      TOTAL\n\
             wire   rx_packets  12,345\n\
             \u{20}      tx_packets       5\n\
             lro    merged       1,000\n\
             1 counter is zero; --all shows them\n"
        );
        assert!(render(&stats(0), None, true).contains("rx_dropped"));
    }

    #[test]
    fn rates_are_by_the_second() {
        let before = stats(100);
        let rates = Rates {
            seconds: 2.0,
            before: counters(&before).map(|c| ((c.group, c.name), c.value)).collect(),
        };
        let text = render(&stats(5_100), Some(&rates), false);
        assert!(text.contains("5,100       2,500\n"), "{text}");
    }

    #[test]
    fn rates_are_in_the_json_as_well() {
        let before = stats(100);
        let rates = Rates {
            seconds: 2.0,
            before: counters(&before).map(|c| ((c.group, c.name), c.value)).collect(),
        };
        let after = with_rates(&stats(5_100), &rates);
        let [first, second] = [0, 1].map(|at| &after["counters"][at]);
        assert_eq!((&first["value"], &first["per_second"]), (&json!(5_100), &json!(2_500)));
        assert_eq!(second["per_second"], 0);
        assert_eq!((&after["wire"], &after["counters"][4]), (&json!("eth0"), &json!("odd")));
        assert_eq!(with_rates(&json!(3), &rates), json!(3));
    }

    #[test]
    fn an_answer_of_another_shape_shows_nothing() {
        for odd in [json!(null), json!([]), json!({"counters": 3}), json!({"counters": [[]]})] {
            assert!(render(&odd, None, true).contains("GROUP"), "{odd}");
        }
    }
}
