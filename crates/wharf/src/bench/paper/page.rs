//! The page and the drawings of a run, from what its directory has.

use bench::paper::{
    Entry, Gaps, Header, Parameters, Row, Scale, Scenario, Spread, Store, StoreError, marks,
    raw_name, verdict,
};
use report::{Axis, Figure, Missing, Plot, Point, Report, Series};

use super::ended::absent;
use super::{ENOUGH, PAGE};

/// Writes the page, and a drawing for each figure.
pub(super) fn write(
    all: &[Entry],
    parameters: &Parameters,
    store: &Store,
    gaps: &Gaps,
) -> Result<(), StoreError> {
    let report = report(all, parameters, store, gaps);
    for figure in &report.figures {
        for plot in &figure.plots {
            store.write(&format!("{}.svg", figure.name), &report::svg(plot))?;
        }
    }
    store.write(PAGE, &report::page(&report))
}

fn report(all: &[Entry], parameters: &Parameters, store: &Store, gaps: &Gaps) -> Report {
    let figures = all.iter().filter_map(|entry| figure(entry, parameters, store, gaps));
    let figures: Vec<Figure> = figures.collect();
    let shown = |entry: &&Entry| figures.iter().any(|figure| figure.name == entry.name);
    let missing = all.iter().filter(|entry| !shown(entry)).map(|entry| Missing {
        name: entry.name.to_owned(),
        title: entry.title.to_owned(),
        paper: paper(entry),
        section: section(entry),
        lacks: absent(entry, gaps),
    });
    Report {
        title: "The papers, measured again".to_owned(),
        subtitle: subtitle(parameters, store.header()),
        machine: machine(store.header()),
        missing: missing.collect(),
        figures,
    }
}

fn subtitle(parameters: &Parameters, header: &Header) -> String {
    let date = header.get("date").unwrap_or_default();
    let day = date.split('T').next().unwrap_or_default();
    let quick = if parameters.quick { ", a quick run with fewer points" } else { "" };
    let wharf = header.get("wharf").unwrap_or_default();
    format!("wharf {wharf}, {day}: medians of {} repetitions{quick}", parameters.repetitions)
}

/// What the figures were measured on, in an order to be read in.
fn machine(header: &Header) -> Vec<(String, String)> {
    let memory = header.get("memory_kib").and_then(|kib| kib.parse::<u64>().ok());
    let memory = memory.map(|kib| format!("{:.1} GiB", kib as f64 / (1 << 20) as f64));
    let commit = header.get("commit").map_or(String::new(), |commit| format!(", commit {commit}"));
    let wharf = header.get("wharf").map(|version| format!("{version}{commit}"));
    let seconds = header.get("seconds").map(|seconds| format!("{seconds} s"));
    let settings = header.get("settings").map(|settings| match settings.as_str() {
        "{}" => "defaults".to_owned(),
        _ => settings,
    });
    let known = [
        ("CPU", header.get("cpu")),
        ("CPUs", header.get("cpus")),
        ("Memory", memory),
        ("Kernel", header.get("kernel")),
        ("wharf", wharf),
        ("Compiler", header.get("rustc")),
        ("Repetitions", header.get("repetitions")),
        ("Each run", seconds),
        ("Seed", header.get("seed")),
        ("Settings", settings),
        ("Path of the figures on RDMA", header.get("path")),
        ("Carrier of the figures on RDMA", header.get("carrier")),
        ("Begun", header.get("date")),
    ];
    known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn paper(entry: &Entry) -> String {
    entry.places.first().map_or(String::new(), |place| place.paper.name().to_owned())
}

/// Where it stands in its paper; and in another that has it as well.
fn section(entry: &Entry) -> String {
    let mut places = entry.places.iter();
    let first = places.next().map(|place| place.text());
    let others = places.map(|place| format!("{}, {}", place.paper.name(), place.text()));
    first.into_iter().chain(others).collect::<Vec<_>>().join("; ")
}

/// What there is of a figure, if there is something to judge.
fn figure(entry: &Entry, parameters: &Parameters, store: &Store, gaps: &Gaps) -> Option<Figure> {
    let (scenario, rows) = (entry.scenario()?, store.rows(entry.name));
    let verdict = verdict(entry, rows)?;
    Some(Figure {
        name: entry.name.to_owned(),
        title: entry.title.to_owned(),
        paper: paper(entry),
        section: section(entry),
        claim: entry.claim.to_owned(),
        measured: verdict.measured,
        ratio: verdict.ratio,
        meaning: verdict.meaning,
        plots: vec![plot(entry, scenario, rows)],
        notes: notes(entry, scenario, parameters, rows, gaps.get(entry.name)),
        raw: raw_name(entry.name),
    })
}

fn notes(
    entry: &Entry,
    scenario: &Scenario,
    parameters: &Parameters,
    rows: &[Row],
    gaps: Option<&Vec<String>>,
) -> Vec<String> {
    let mut notes = vec![
        format!("Varied: {}. Measured: {}.", entry.varied, entry.measured),
        scenario.differs.to_owned(),
    ];
    let points = scenario.points(parameters);
    if rows.len() < points.len() {
        notes.push(format!("Incomplete: {} of {} points so far.", rows.len(), points.len()));
    }
    if points.len() < scenario.points.len() {
        let all = scenario.points.len();
        notes.push(format!("A quick run: {} of {all} points.", points.len()));
    }
    if parameters.repetitions < ENOUGH as usize {
        let few = parameters.repetitions;
        notes.push(format!("{few} repetitions are too few to believe in; {ENOUGH} are usual."));
    }
    notes.extend(gaps.into_iter().flatten().map(|why| format!("Not measured: {why}")));
    for row in rows {
        notes.extend(
            row.notices.iter().map(|told| format!("{}: {told}", scenario.words(row.point))),
        );
    }
    notes
}

fn plot(entry: &Entry, scenario: &Scenario, rows: &[Row]) -> Plot {
    let measured = scenario.series.iter().map(|series| {
        let point = |row: &Row| Point::of(f64::from(row.point), &scenario.samples(row, series.id)?);
        Series::measured(series.label, rows.iter().filter_map(point).collect())
    });
    let published = scenario.series.iter().map(|series| {
        let of_it = entry.published.iter().filter(|value| value.series == series.id);
        let points = of_it.map(|value| match value.x {
            Some(x) => Point::single(x, value.value),
            None => Point::level(value.value),
        });
        Series::published(series.label, points.collect())
    });
    let mark = |(point, Spread { median, min, max }): (u32, Spread)| Point {
        x: f64::from(point),
        median,
        min,
        max,
    };
    let marks = marks(entry, rows).into_iter().map(mark).collect();
    let marks = [Series::measured("crossover", marks)];
    let drawn = |series: &Series| !series.points.is_empty();
    Plot {
        title: entry.title.to_owned(),
        x: axis(scenario.x.label, scenario.x.unit, scenario.x.scale),
        y: axis(scenario.y.label, scenario.y.unit, scenario.y.scale),
        series: measured.chain(published).chain(marks).filter(drawn).collect(),
    }
}

fn axis(label: &str, unit: &str, scale: Scale) -> Axis {
    match scale {
        Scale::Linear => Axis::linear(label, unit),
        Scale::Log10 => Axis::log10(label, unit),
        Scale::Log2 => Axis::log2(label, unit),
        Scale::Names(names) => Axis::category(label, names),
    }
}
