//! Aligned tables of text.

use std::fmt;

use crate::text::escaped;

/// Which side a column's cells stand on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of cells, each column as wide as its widest cell. Empty cells at a row's end leave
/// nothing behind.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
enum Row {
    Cells(Vec<String>),
    /// A line of its own that widens no column.
    Line(String),
}

impl Table {
    /// An empty table with a column for each of `align`.
    pub(crate) fn new(align: &[Align]) -> Table {
        Table { align: align.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing are empty. What would act on a terminal is escaped.
    pub(crate) fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let escaped = |cell: S| escaped(cell.as_ref()).into_owned();
        self.rows.push(Row::Cells(cells.into_iter().map(escaped).collect()));
    }

    /// Adds a line that is not part of the columns.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) {
        self.rows.push(Row::Line(escaped(text.as_ref()).into_owned()));
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| match row {
            Row::Cells(cells) => cells.get(column),
            Row::Line(_) => None,
        });
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.align.len()).map(|column| self.width(column)).collect();
        for row in &self.rows {
            let line = match row {
                Row::Line(text) => text.clone(),
                Row::Cells(cells) => {
                    let columns = cells.iter().zip(&widths).zip(&self.align);
                    let padded = columns.map(|((cell, &width), align)| match align {
                        Align::Left => format!("{cell:<width$}"),
                        Align::Right => format!("{cell:>width$}"),
                    });
                    padded.collect::<Vec<_>>().join("  ")
                }
            };
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A whole number with its thousands set apart: 1,234,567.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[Align::Left, Align::Right]);
        table.row(["a", "1,000"]);
        table.line("a line that is long");
        table.row(["\u{e9}\u{e9}\u{e9}", "7"]);
        table.row(["end"]);
        assert_eq!(
            table.to_string(),
            "a    1,000\na line that is long\n\u{e9}\u{e9}\u{e9}      7\nend\n"
        );
    }

    #[test]
    fn what_would_act_on_a_terminal_is_shown() {
        let mut table = Table::new(&[Align::Left, Align::Left]);
        table.row(["\u{1b}[2J", "a"]);
        table.row(["b\nc", "\u{202e}"]);
        assert_eq!(table.to_string(), "\\u{1b}[2J  a\nb\\nc       \\u{202e}\n");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000), "1,000");
        assert_eq!(thousands(u64::MAX), "18,446,744,073,709,551,615");
    }
}
