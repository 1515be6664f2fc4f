//! The numbers behind a plot, as a table.

use maud::{Markup, html};

use crate::axes::is_level;
use crate::model::{Plot, Point, Scale, Series, Source};
use crate::number;
use crate::text::{Text, with_unit};

/// A row for each x, a column for each series: the median, and the range of the repetitions.
pub(crate) fn draw(plot: &Plot) -> Markup {
    let caption = format!("{}: {}", plot.title, with_unit(&plot.y.label, &plot.y.unit));
    html! {
        div.scroll tabindex="0" role="region" aria-label={ "Table: " (Text(&plot.title)) } {
            table.numbers {
                caption { (Text(&caption)) }
                thead {
                    tr {
                        th scope="col" { (Text(&with_unit(&plot.x.label, &plot.x.unit))) }
                        @for series in &plot.series { th scope="col" { (Text(&heading(series))) } }
                    }
                }
                tbody {
                    @for row in rows(plot) {
                        tr {
                            th scope="row" { (Text(&row_name(plot, row))) }
                            @for series in &plot.series { td { (cell(series, row)) } }
                        }
                    }
                }
            }
        }
    }
}

fn heading(series: &Series) -> String {
    match series.source {
        Source::Measured => series.name.clone(),
        Source::Published => format!("{}, in the paper", series.name),
    }
}

/// The x of a row; `None` is the row of levels, which comes last.
type Row = Option<f64>;

fn row(series: &Series, point: &Point) -> Row {
    (!is_level(series.source, point)).then_some(point.x)
}

fn rows(plot: &Plot) -> Vec<Row> {
    let all = plot.series.iter().flat_map(|series| series.points.iter().map(|p| row(series, p)));
    let mut rows: Vec<Row> = all.collect();
    rows.sort_by(|one, other| match (one, other) {
        (Some(one), Some(other)) => one.total_cmp(other),
        (one, other) => one.is_none().cmp(&other.is_none()),
    });
    rows.dedup_by(|one, other| same(*one, *other));
    rows
}

fn same(one: Row, other: Row) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one == other || one.is_nan() && other.is_nan(),
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn row_name(plot: &Plot, row: Row) -> String {
    let Some(x) = row else { return "any".to_owned() };
    if let Scale::Category(names) = &plot.x.scale
        && let Some((_, name)) = names.iter().enumerate().find(|(index, _)| *index as f64 == x)
    {
        return name.clone();
    }
    number::value(x)
}

fn cell(series: &Series, at: Row) -> Markup {
    let here = series.points.iter().filter(|point| same(row(series, point), at));
    html! {
        @for (index, point) in here.enumerate() {
            @if index > 0 { br; }
            (number::value(point.median))
            @if series.source == Source::Measured && point.min < point.max {
                " " small { (number::value(point.min)) " to " (number::value(point.max)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Axis;

    /// The table's cells, row by row.
    fn cells(plot: &Plot) -> Vec<Vec<String>> {
        let table = draw(plot).into_string();
        let text = |html: &str| {
            let tags = html.split('<').map(|part| part.split_once('>').map_or(part, |p| p.1));
            tags.collect::<String>()
        };
        let row = |row: &str| {
            row.split("</th>").flat_map(|part| part.split("</td>")).map(text).collect::<Vec<_>>()
        };
        table.split("<tr>").skip(1).map(row).map(|row| row[..row.len() - 1].to_vec()).collect()
    }

    #[test]
    fn every_number_of_every_series_stands_in_its_row() {
        let spread = Point { x: 2.0, median: 4.0, min: 3.5, max: 4.25 };
        let plot = Plot {
            title: "Received".to_owned(),
            x: Axis::log2("Connections", ""),
            y: Axis::linear("Throughput", "Gb/s"),
            series: vec![
                Series::measured("on", vec![spread, Point::single(1.0, 3.0)]),
                Series::published("on", vec![Point::level(4.75), Point::single(1.0, 2.0)]),
            ],
        };
        let expected = [
            vec!["Connections", "on", "on, in the paper"],
            vec!["1", "3", "2"],
            vec!["2", "4 3.5 to 4.25", ""],
            vec!["any", "", "4.75"],
        ];
        let mut cells = cells(&plot);
        cells[0][0] = "Connections".to_owned();
        assert_eq!(cells, expected);
    }

    #[test]
    fn categories_have_names_and_what_is_no_number_is_said() {
        let plot = Plot {
            x: Axis::category("Order", &["round_robin", "lifo"]),
            series: vec![Series::measured(
                "opened",
                vec![
                    Point::single(0.0, 100.0),
                    Point::single(7.0, f64::NAN),
                    Point::single(f64::NAN, f64::INFINITY),
                ],
            )],
            ..Plot::default()
        };
        let names: Vec<Vec<String>> = cells(&plot)[1..].to_vec();
        assert_eq!(names, [["round_robin", "100"], ["7", "not a number"], ["not a number", "∞"]]);
    }
}
