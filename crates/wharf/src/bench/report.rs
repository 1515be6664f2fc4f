//! How figures are shown: JSON lines as they come, or one table at the end.

use std::io::{IsTerminal, Write};

use bench::{Figure, Report};

use crate::error::Error;
use crate::print;
use crate::table::{Align, Table};

/// Prints what a scenario reports.
pub(crate) struct Printer {
    json: bool,
    figures: Vec<Figure>,
    /// Whether there is a terminal to show progress on.
    terminal: bool,
    /// The first thing that went wrong with standard output.
    failed: Option<Error>,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Printer {
        let terminal = std::io::stderr().is_terminal();
        Printer { json, figures: Vec::new(), terminal, failed: None }
    }

    /// What was reported so far.
    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// The table, if that is what was asked for.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.clear();
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.json || self.figures.is_empty() { Ok(()) } else { print(self.table()) }
    }

    /// Rows of what was varied, with a column for each metric.
    fn table(&self) -> String {
        // Cases of one run may vary different things.
        let mut varied: Vec<&str> = Vec::new();
        for (name, _) in self.figures.iter().flat_map(|figure| &figure.varied) {
            if !varied.contains(name) {
                varied.push(name);
            }
        }
        let mut metrics: Vec<(&str, &str)> = Vec::new();
        for figure in &self.figures {
            if !metrics.contains(&(figure.metric, figure.unit)) {
                metrics.push((figure.metric, figure.unit));
            }
        }
        let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for figure in &self.figures {
            let mut of = vec![figure.case.clone(), figure.system.clone()];
            of.extend(varied.iter().map(|name| {
                let value = figure.varied.iter().find(|(n, _)| n == name).map(|(_, value)| value);
                match value {
                    Some(serde_json::Value::String(text)) => text.clone(),
                    Some(value) => value.to_string(),
                    None => String::new(),
                }
            }));
            let at = match rows.iter().position(|(row, _)| *row == of) {
                Some(at) => at,
                None => {
                    rows.push((of, vec![String::new(); metrics.len()]));
                    rows.len() - 1
                }
            };
            let column = metrics.iter().position(|m| *m == (figure.metric, figure.unit));
            if let Some(cell) = column.and_then(|column| rows[at].1.get_mut(column)) {
                *cell = short(figure.value);
            }
        }
        let mut align = vec![Align::Left, Align::Left];
        align.resize(2 + varied.len() + metrics.len(), Align::Right);
        let mut table = Table::new(&align);
        let titles = ["case", "system"].into_iter().chain(varied).map(str::to_owned);
        table.row(titles.chain(metrics.iter().map(|(metric, unit)| format!("{metric} ({unit})"))));
        for (of, values) in rows {
            table.row(of.into_iter().chain(values));
        }
        table.to_string()
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// Four digits at least, as many decimals as that takes.
fn short(value: f64) -> String {
    let size = value.abs();
    let decimals = if size >= 1000.0 || size == 0.0 {
        0
    } else if size >= 100.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

impl Report for Printer {
    fn figure(&mut self, figure: Figure) {
        if self.json && self.failed.is_none() {
            self.failed = print(format!("{}\n", figure.json())).err();
        }
        self.figures.push(figure);
    }

    fn progress(&mut self, done: usize, total: usize, what: &str) {
        if self.terminal {
            eprint!("\r\x1b[K[{done}/{total}] {what}");
            let _ = std::io::stderr().flush();
        }
    }

    fn notice(&mut self, text: &str) {
        self.clear();
        let _ = writeln!(std::io::stderr(), "wharf: {text}");
    }
}
