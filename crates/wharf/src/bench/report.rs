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

    /// A table for all cases that vary and measure the same.
    fn table(&self) -> String {
        let mut kinds: Vec<(Columns, Vec<&Figure>)> = Vec::new();
        let mut cases: Vec<&str> = Vec::new();
        for case in self.figures.iter().map(|figure| &*figure.case) {
            if cases.contains(&case) {
                continue;
            }
            cases.push(case);
            let figures: Vec<&Figure> = self.figures.iter().filter(|f| f.case == case).collect();
            let columns = Columns::of(&figures);
            match kinds.iter_mut().find(|(others, _)| *others == columns) {
                Some((_, others)) => others.extend(figures),
                None => kinds.push((columns, figures)),
            }
        }
        let tables = kinds.iter().map(|(columns, figures)| columns.table(figures));
        tables.collect::<Vec<_>>().join("\n")
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// What was varied and measured.
#[derive(PartialEq, Eq)]
struct Columns {
    varied: Vec<&'static str>,
    metrics: Vec<(&'static str, &'static str)>,
}

impl Columns {
    fn of(figures: &[&Figure]) -> Columns {
        let (mut varied, mut metrics) = (Vec::new(), Vec::new());
        for figure in figures {
            for (name, _) in &figure.varied {
                if !varied.contains(name) {
                    varied.push(name);
                }
            }
            if !metrics.contains(&(figure.metric, figure.unit)) {
                metrics.push((figure.metric, figure.unit));
            }
        }
        Columns { varied, metrics }
    }

    /// Rows of what was varied, with a column for each metric.
    fn table(&self, figures: &[&Figure]) -> String {
        let Columns { varied, metrics } = self;
        let mut rows: Vec<(Vec<String>, Vec<String>)> = Vec::new();
        for figure in figures {
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
        let titles =
            ["case", "system"].into_iter().chain(varied.iter().copied()).map(str::to_owned);
        table.row(titles.chain(metrics.iter().map(|(metric, unit)| format!("{metric} ({unit})"))));
        for (of, values) in rows {
            table.row(of.into_iter().chain(values));
        }
        table.to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(case: &str, varied: &'static str, metric: &'static str) -> Figure {
        Figure {
            bench: "b",
            case: case.to_owned(),
            system: "wharf".to_owned(),
            varied: vec![(varied, 3.into())],
            metric,
            unit: "s",
            value: 2.5,
            samples: Vec::new(),
        }
    }

    #[test]
    fn cases_that_measure_other_things_have_tables_of_their_own() {
        let mut printer = Printer::new(false);
        for (case, varied, metric) in
            [("one", "flows", "m"), ("two", "flows", "m"), ("three", "bytes", "n")]
        {
            printer.figure(figure(case, varied, metric));
        }
        let table = printer.table();
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected: [&[&str]; 6] = [
            &["case", "system", "flows", "m", "(s)"],
            &["one", "wharf", "3", "2.50"],
            &["two", "wharf", "3", "2.50"],
            &[],
            &["case", "system", "bytes", "n", "(s)"],
            &["three", "wharf", "3", "2.50"],
        ];
        assert_eq!(lines, expected, "{table}");
    }
}
