//! The page: everything in one file, with nothing to be fetched.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::model::{Figure, Missing, Report};
use crate::text::Text;
use crate::theme::{DARK, LIGHT, SHAPES};
use crate::{plot, table};

/// Shown where there is nothing to say.
const NOTHING: &str = "–";

/// A report as one self-contained HTML file.
#[must_use]
pub fn page(report: &Report) -> String {
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="description" content=(Text(&report.subtitle));
                title { (Text(&report.title)) }
                // A page without an icon makes browsers ask for one.
                link rel="icon" href="data:,";
                style { (PreEscaped(style())) }
            }
            body {
                header.top {
                    h1 { (Text(&report.title)) }
                    // Only a script can do what it says, so the script shows it.
                    button #theme type="button" hidden {}
                    p { (Text(&report.subtitle)) }
                }
                main.cards {
                    (contents(report))
                    @for (index, figure) in report.figures.iter().enumerate() {
                        (article(figure, index, &anchor(report, index)))
                    }
                    @if !report.missing.is_empty() { (missing(&report.missing)) }
                    @if !report.machine.is_empty() { (machine(&report.machine)) }
                }
                script { (PreEscaped(include_str!("page.js"))) }
            }
        }
    };
    markup.into_string()
}

/// Light, and dark by the reader's system or by the button; printed always light.
fn style() -> String {
    let dark = |root: &str| {
        let colours = DARK.variables(root) + &DARK.drawing(&format!("{root} "));
        format!("{colours}{root}{{color-scheme:dark}}\n")
    };
    format!(
        "{}{}{SHAPES}{}@media screen and (prefers-color-scheme:dark){{\n{}}}\n@media screen{{\n{}}}\n",
        LIGHT.variables(":root"),
        include_str!("page.css"),
        LIGHT.drawing(""),
        dark(":root:not([data-theme=light])"),
        dark(":root[data-theme=dark]"),
    )
}

/// The anchor of a figure: its name, or its number where an earlier figure has the same name.
fn anchor(report: &Report, index: usize) -> String {
    let slug = |figure: &Figure| -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        figure.name.chars().map(plain).collect()
    };
    let name = slug(&report.figures[index]);
    let taken = report.figures[..index].iter().any(|earlier| slug(earlier) == name);
    if taken || name.is_empty() {
        format!("figure-{}-{name}", index + 1)
    } else {
        format!("figure-{name}")
    }
}

fn contents(report: &Report) -> Markup {
    html! {
        nav.card.contents aria-labelledby="contents" {
            h2 #contents { "At a glance" }
            ol {
                @for (index, figure) in report.figures.iter().enumerate() {
                    li {
                        a href={ "#" (anchor(report, index)) } { (Text(&figure.title)) }
                        span { (Text(&figure.ratio)) }
                    }
                }
                @if !report.missing.is_empty() {
                    li {
                        a href="#missing" { "Not measured yet" }
                        span { (report.missing.len()) " of the papers’ figures" }
                    }
                }
                @if !report.machine.is_empty() {
                    li {
                        a href="#machine" { "The machine" }
                        span { "what all of this was measured on" }
                    }
                }
            }
        }
    }
}

fn article(figure: &Figure, index: usize, anchor: &str) -> Markup {
    html! {
        article.card #(anchor) aria-labelledby={ (anchor) "-heading" } {
            h2 #{ (anchor) "-heading" } { (Text(&figure.title)) }
            p.source { (Text(&source(&figure.paper, &figure.section))) }
            dl.compare {
                (compared("The paper", "claim", &figure.claim))
                (compared("wharf", "measured", &figure.measured))
                (compared("Ratio", "ratio", &figure.ratio))
                (compared("What it means", "meaning", &figure.meaning))
            }
            // A single drawing leaves room for the notes beside it.
            div.shown.one[figure.plots.len() == 1] {
                div.plots {
                    @for (number, plot) in figure.plots.iter().enumerate() {
                        @let id = format!("plot-{index}-{number}");
                        figure { (plot::drawing(plot, &id, plot.title != figure.title)) }
                    }
                }
                @if !figure.notes.is_empty() {
                    ul.notes { @for note in &figure.notes { li { (Text(note)) } } }
                }
            }
            @if !figure.plots.is_empty() {
                details {
                    summary { "The numbers" }
                    @for plot in &figure.plots { (table::draw(plot)) }
                }
            }
            @if !figure.raw.is_empty() { p.raw { "Every repetition: " (raw(&figure.raw)) } }
        }
    }
}

fn source(paper: &str, section: &str) -> String {
    [paper, section].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
}

fn compared(label: &str, class: &str, words: &str) -> Markup {
    let words = if words.trim().is_empty() { NOTHING } else { words };
    html! { div { dt.label { (label) } dd class=(class) { (Text(words)) } } }
}

/// A link, if the name is that of a file beside the page or below it and not an address.
fn raw(file: &str) -> Markup {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let beside = file.chars().all(plain) && !file.starts_with('/') && !file.contains("..");
    html! {
        @if beside { a href=(file) { code { (file) } } }
        @else { code { (Text(file)) } }
    }
}

fn missing(missing: &[Missing]) -> Markup {
    html! {
        section.card.missing #missing aria-labelledby="missing-heading" {
            h2 #missing-heading { "Not measured yet" }
            p { "Figures and tables of the papers, and what wharf lacks for each." }
            div.scroll tabindex="0" role="region" aria-labelledby="missing-heading" {
                table {
                    thead {
                        tr {
                            @for heading in ["Figure", "Paper", "What it lacks"] {
                                th scope="col" { (heading) }
                            }
                        }
                    }
                    tbody {
                        @for figure in missing {
                            tr {
                                th scope="row" {
                                    (Text(&figure.title)) br; code { (Text(&figure.name)) }
                                }
                                td { (Text(&source(&figure.paper, &figure.section))) }
                                td { (Text(&figure.lacks)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn machine(machine: &[(String, String)]) -> Markup {
    html! {
        section.card.machine #machine aria-labelledby="machine-heading" {
            h2 #machine-heading { "The machine" }
            dl {
                @for (name, value) in machine {
                    div { dt.label { (Text(name)) } dd { (Text(value)) } }
                }
            }
        }
    }
}
