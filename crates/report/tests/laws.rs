//! What holds of every drawing and page, whatever is drawn and told.

use proptest::collection::vec;
use proptest::prelude::*;
use report::{Axis, Figure, Plot, Point, Report, Scale, Series, Source};
use roxmltree::{Document, Node};

fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..1000.0,
        1 => any::<f64>(),
        1 => prop_oneof![Just(0.0), Just(-1.0), Just(f64::NAN), Just(f64::INFINITY), Just(f64::MAX)],
        1 => (0_u8..4).prop_map(f64::from),
    ]
}

fn point() -> impl Strategy<Value = Point> {
    (value(), value(), value(), value()).prop_map(|(x, median, min, max)| Point {
        x,
        median,
        min,
        max,
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![".*", any::<String>(), "[a-z ]{0,200}", Just("</svg><script>&\u{0}".to_owned())]
}

fn axis() -> impl Strategy<Value = Axis> {
    let scale = prop_oneof![
        Just(Scale::Linear),
        Just(Scale::Log2),
        Just(Scale::Log10),
        vec(text(), 0..40).prop_map(Scale::Category),
    ];
    (text(), text(), scale).prop_map(|(label, unit, scale)| Axis { label, unit, scale })
}

fn series() -> impl Strategy<Value = Series> {
    let source = prop_oneof![Just(Source::Measured), Just(Source::Published)];
    (text(), source, vec(point(), 0..8)).prop_map(|(name, source, points)| Series {
        name,
        source,
        points,
    })
}

fn plot() -> impl Strategy<Value = Plot> {
    (text(), axis(), axis(), vec(series(), 0..9)).prop_map(|(title, x, y, series)| Plot {
        title,
        x,
        y,
        series,
    })
}

fn of_class<'a>(root: Node<'a, 'a>, class: &'a str) -> impl Iterator<Item = Node<'a, 'a>> {
    root.descendants().filter(move |node| {
        node.attribute("class").is_some_and(|names| names.split(' ').any(|name| name == class))
    })
}

/// The places of the marks among the data.
fn marks(svg: &Document<'_>) -> Vec<(f64, f64)> {
    let mut marks = Vec::new();
    for class in ["mark", "hollow"] {
        let data = of_class(svg.root(), "data").next().unwrap();
        for mark in of_class(data, class) {
            let place = mark.attribute("transform").unwrap();
            let place = place.strip_prefix("translate(").unwrap().strip_suffix(')').unwrap();
            let (x, y) = place.split_once(',').unwrap();
            marks.push((x.parse().unwrap(), y.parse().unwrap()));
        }
    }
    marks
}

/// Left, right, top and bottom of the lines at the ticks.
fn area(svg: &Document<'_>) -> [f64; 4] {
    let mut lines = Vec::new();
    for line in of_class(svg.root(), "grid") {
        let path = line.attribute("d").unwrap().strip_prefix('M').unwrap();
        let (start, right) = path.split_once('H').unwrap();
        let (left, y) = start.split_once(',').unwrap();
        lines.push([left, right, y].map(|number| number.parse::<f64>().unwrap()));
    }
    let [left, right, _] = lines[0];
    let ys = || lines.iter().map(|line| line[2]);
    [left, right, ys().fold(f64::INFINITY, f64::min), ys().fold(f64::NEG_INFINITY, f64::max)]
}

proptest! {
    #[test]
    fn every_drawing_is_xml_with_all_its_marks_in_its_area(plot in plot()) {
        let text = report::svg(&plot);
        let svg = Document::parse(&text).unwrap();
        let [left, right, top, bottom] = area(&svg);
        prop_assert!(right - left > 100.0 && bottom - top > 100.0);
        for (x, y) in marks(&svg) {
            prop_assert!((left..=right).contains(&x), "{x} is not in {left}..{right}");
            prop_assert!((top..=bottom).contains(&y), "{y} is not in {top}..{bottom}");
        }
        // The legend is above.
        for words in of_class(svg.root(), "legend").flat_map(|legend| legend.descendants()) {
            if let Some(y) = words.attribute("y") {
                prop_assert!(y.parse::<f64>().unwrap() < top);
            }
        }
    }

    #[test]
    fn every_point_has_a_mark_or_is_said_to_be_left_out(plot in plot()) {
        let text = report::svg(&plot);
        let svg = Document::parse(&text).unwrap();
        let points = plot.series.iter().map(|series| series.points.len()).sum::<usize>();
        let notes = svg.descendants().filter_map(|node| node.text());
        let note: String = notes.collect::<Vec<_>>().join(" ");
        let said = ["not fully drawn", "no points"].iter().any(|words| note.contains(words));
        prop_assert!(marks(&svg).len() == points || said, "{points} points, {note}");
    }
}

#[test]
fn what_has_no_place_is_left_out_and_counted() {
    let points = [(1.0, 2.0), (0.0, 2.0), (f64::NAN, 2.0), (2.0, f64::INFINITY), (4.0, 3.0)];
    let plot = Plot {
        x: Axis::log2("Connections", ""),
        series: vec![Series::measured("a", points.map(|(x, y)| Point::single(x, y)).into())],
        ..Plot::default()
    };
    let text = report::svg(&plot);
    let svg = Document::parse(&text).unwrap();
    assert_eq!(marks(&svg).len(), 2);
    let words: Vec<&str> = svg.descendants().filter_map(|node| node.text()).collect();
    assert!(
        words.iter().any(|words| words.starts_with("3 points are not fully drawn")),
        "{words:?}"
    );
}

#[test]
fn a_whisker_to_zero_goes_to_the_end_of_a_logarithmic_axis() {
    let point = Point { x: 1.0, median: 10.0, min: 0.0, max: 100.0 };
    let plot = Plot {
        x: Axis::linear("Delay", "ms"),
        y: Axis::log10("Error", "µs"),
        series: vec![Series::measured("a", vec![point])],
        ..Plot::default()
    };
    let text = report::svg(&plot);
    let svg = Document::parse(&text).unwrap();
    let [_, _, _, bottom] = area(&svg);
    let data = of_class(svg.root(), "data").next().unwrap();
    let whisker = of_class(data, "stroke").next().unwrap().attribute("d").unwrap();
    assert!(whisker.ends_with(&format!("V{bottom}")), "{whisker}");
    assert!(!text.contains("not fully drawn"));
}

#[test]
fn a_series_of_the_paper_looks_like_the_measured_one_of_its_name() {
    let line = |y: f64| vec![Point::single(1.0, y), Point::single(2.0, y)];
    let plot = Plot {
        series: vec![
            Series::measured("other", line(1.0)),
            Series::measured("gso", line(2.0)),
            Series::published("gso", line(3.0)),
        ],
        ..Plot::default()
    };
    let text = report::svg(&plot);
    let svg = Document::parse(&text).unwrap();
    let data = of_class(svg.root(), "data").next().unwrap();
    let look = |class| {
        let mark = of_class(data, class).last().unwrap();
        (mark.parent().unwrap().attribute("class").unwrap(), mark.attribute("d").unwrap())
    };
    assert_eq!(look("hollow"), look("mark"));
    assert_eq!(of_class(data, "dashed").count(), 1);
}

#[test]
fn nothing_is_fetched_and_nothing_from_outside_is_markup() {
    let hostile = "</style></script><script>alert(1)</script><img src=x onerror=alert(1)>\"'";
    let text = || hostile.to_owned();
    let plot = Plot {
        title: text(),
        x: Axis { label: text(), unit: text(), scale: Scale::Category(vec![text()]) },
        y: Axis::linear(hostile, hostile),
        series: vec![Series::measured(hostile, vec![Point::single(0.0, 1.0)])],
    };
    let figure = Figure {
        name: text(),
        title: text(),
        paper: text(),
        section: text(),
        claim: text(),
        measured: text(),
        ratio: text(),
        meaning: text(),
        plots: vec![plot.clone()],
        notes: vec![text()],
        raw: "javascript:alert(1)".to_owned(),
    };
    let report = Report {
        title: text(),
        subtitle: text(),
        machine: vec![(text(), text())],
        figures: vec![figure.clone(), figure],
        missing: vec![report::Missing {
            name: text(),
            title: text(),
            ..report::Missing::default()
        }],
    };
    let page = report::page(&report);
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("<img").count(), 0);
    assert_eq!(page.matches("</style").count(), 1);
    assert!(!page.contains("href=\"javascript:"));
    assert!(!report::svg(&plot).contains("<script"));
    let plain = report::page(&crate::sample::report());
    for word in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!plain.contains(word), "{word}");
    }
}

#[test]
fn an_empty_report_is_a_page() {
    let page = report::page(&Report::default());
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>"));
}
