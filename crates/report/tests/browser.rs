//! The page of a sample report in a real browser.

use report::{Axis, Figure, Plot, Point, Report, Series};
use serde_json::Value;
use testkit::browser::{Browser, Fault, Medium, look_at};
use testkit::missing::lacks;

/// Phones, and a window on a desk.
const WIDTHS: [u32; 3] = [360, 390, 1280];

const EXPECTED: [&str; 10] = [
    "#figure-lro-throughput svg",
    "#figure-gso-tables figure:nth-child(4) svg",
    "#figure-dma-starvation svg",
    "#figure-degen-accuracy svg",
    "#figure-degen-accuracy .numbers",
    "#figure-gso-tables .claim",
    "#figure-gso-tables .measured",
    "#figure-gso-tables .ratio",
    "#missing table",
    "#machine dl",
];

fn listed(faults: &[Fault]) -> String {
    faults.iter().map(|fault| format!("\n  {fault}")).collect()
}

#[test]
fn nothing_is_wrong_with_the_page_at_any_width_light_or_dark() {
    let page = report::page(&crate::sample::report());
    let Some(faults) = look_at("report", &page, &WIDTHS, &EXPECTED).unwrap() else {
        return lacks("chromium");
    };
    assert!(faults.is_empty(), "{}", listed(&faults));
}

#[test]
fn it_is_printed_light_with_its_numbers() {
    let Some(mut browser) = Browser::start().unwrap() else {
        return lacks("chromium");
    };
    browser.open(&report::page(&crate::sample::report()), 720, Medium::Print).unwrap();
    browser.evaluate("document.documentElement.dataset.theme = 'dark'").unwrap();
    assert_eq!(ground(&mut browser), "rgb(255, 255, 255)");
    browser.evaluate("dispatchEvent(new Event('beforeprint'))").unwrap();
    assert_eq!(
        browser.evaluate("document.querySelectorAll('details:not([open])').length").unwrap(),
        0
    );
    let faults = browser.faults(&["#figure-lro-throughput .numbers"]).unwrap();
    assert!(faults.is_empty(), "{}", listed(&faults));
}

#[test]
fn the_button_turns_the_page_dark_and_light_again() {
    let Some(mut browser) = Browser::start().unwrap() else {
        return lacks("chromium");
    };
    let page = report::page(&crate::sample::report());
    browser.open(&page, 390, Medium::Dark).unwrap();
    let by_system = ground(&mut browser);
    browser.open(&page, 390, Medium::Light).unwrap();
    let light = ground(&mut browser);
    assert_ne!(light, by_system);
    for expected in [by_system, light] {
        browser.evaluate("document.getElementById('theme').click()").unwrap();
        assert_eq!(ground(&mut browser), expected);
        let faults = browser.faults(&["#theme"]).unwrap();
        assert!(faults.is_empty(), "{}", listed(&faults));
    }
}

/// What drawings are drawn on.
fn ground(browser: &mut Browser) -> Value {
    browser.evaluate("getComputedStyle(document.querySelector('.ground')).fill").unwrap()
}

/// Plots that would not be drawn on purpose.
fn odd_plots() -> Vec<Plot> {
    let long = "a series with a name that says far more than any name of a series ever should say";
    let names: Vec<String> = (0..40).map(|at| format!("the category of number {at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let plot = |title: &str, x, y, series| Plot { title: title.to_owned(), x, y, series };
    let number = |unit| Axis::linear("A number", unit);
    let unbroken = "w".repeat(200);
    let many = (0..14).map(|at| {
        let points = vec![Point::single(0.0, f64::from(at)), Point::single(1e6, 1e9)];
        Series::measured(&format!("series {at}"), points)
    });
    let each = (0..40).map(|at| Point::single(f64::from(at), f64::from(at))).collect();
    vec![
        plot("No series", number("m"), number("s"), vec![]),
        plot("No points", number("m"), number("s"), vec![Series::measured("a", vec![])]),
        plot("No names", Axis::category("c", &[]), number(""), vec![Series::measured("a", vec![])]),
        plot(
            "Nothing finite",
            Axis::log2("x", ""),
            Axis::log10("y", ""),
            vec![Series::measured(
                long,
                vec![Point::single(f64::NAN, 1.0), Point::single(1.0, f64::INFINITY)],
            )],
        ),
        plot(
            "One point",
            number("m"),
            number("s"),
            vec![Series::measured(&unbroken, vec![Point::single(1_234_567.0, -0.000_123_456_7)])],
        ),
        plot("Many series", number(long), number(&unbroken), many.collect()),
        plot(
            "Many names",
            Axis::category(&unbroken, &names),
            number("%"),
            vec![Series::measured("a", each), Series::published("b", vec![Point::level(17.5)])],
        ),
        plot(
            "Close together",
            number(""),
            number(""),
            vec![Series::measured(
                "a",
                vec![Point::single(1e9, 1e9), Point::single(1e9 + 2e4, 1e9 + 1.0)],
            )],
        ),
    ]
}

#[test]
fn odd_plots_and_long_words_are_still_legible() {
    let unbroken = "x".repeat(300);
    let figure = Figure {
        name: "odd".to_owned(),
        title: unbroken.clone(),
        claim: unbroken.clone(),
        ratio: unbroken.clone(),
        plots: odd_plots(),
        notes: vec![unbroken.clone()],
        raw: unbroken.clone(),
        ..Figure::default()
    };
    let report = Report {
        title: format!("Odd {unbroken}"),
        machine: vec![(unbroken.clone(), unbroken)],
        figures: vec![figure.clone(), figure],
        ..Report::default()
    };
    let expected = ["#figure-odd svg", "#figure-2-odd svg"];
    let Some(faults) = look_at("odd", &report::page(&report), &[360, 1280], &expected).unwrap()
    else {
        return lacks("chromium");
    };
    assert!(faults.is_empty(), "{}", listed(&faults));
}

#[test]
fn drawings_alone_are_legible_on_light_and_dark_ground() {
    for figure in crate::sample::report().figures {
        let page = format!(
            "<!doctype html><html lang=en><title>A drawing</title><link rel=icon href='data:,'>\
             <meta name=viewport content='width=device-width'>\
             <style>:root{{color-scheme:light dark}}body{{margin:8px}}</style>{}</html>",
            report::svg(&figure.plots[0])
        );
        let name = format!("alone-{}", figure.name);
        let Some(faults) = look_at(&name, &page, &[360], &["svg"]).unwrap() else {
            return lacks("chromium");
        };
        assert!(faults.is_empty(), "{}", listed(&faults));
    }
}
