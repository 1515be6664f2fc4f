//! Every figure and table of the five papers that has results, and what is known of each: where it
//! stands, what is varied and measured, what the paper claims, the values that its text gives (the
//! drawings themselves are not to be had), and the code that measures it or what is missing.
//!
//! A figure becomes measurable by giving its entry a [`Scenario`] for what it lacked.

mod gso;
mod handoff;
mod instructions;
mod lro;
mod rdma;

use super::scenario::Scenario;

/// One of the five papers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paper {
    /// "Implementation of TCP Large Receive Offload on Multi-core NPU Platform", the long version.
    LroLong,
    /// The short version of the same.
    LroShort,
    /// "Software segmentation offloading for FreeBSD", slides.
    Gso,
    /// "TCP Offload through Connection Handoff".
    Handoff,
    /// "Performance Evaluation of RDMA over IP".
    Rdma,
}

impl Paper {
    /// All five.
    pub const ALL: [Paper; 5] =
        [Paper::LroLong, Paper::LroShort, Paper::Gso, Paper::Handoff, Paper::Rdma];

    /// A short name for tables and pages.
    pub const fn name(self) -> &'static str {
        match self {
            Paper::LroLong => "LRO on an NPU (long)",
            Paper::LroShort => "LRO on an NPU (short)",
            Paper::Gso => "Software GSO for FreeBSD",
            Paper::Handoff => "Connection handoff",
            Paper::Rdma => "RDMA over IP",
        }
    }

    /// Figures and tables that show no results, each with what it shows instead.
    pub const fn without_results(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Paper::LroLong => &lro::LONG_WITHOUT_RESULTS,
            Paper::LroShort => &lro::SHORT_WITHOUT_RESULTS,
            Paper::Gso => &[],
            Paper::Handoff => &handoff::WITHOUT_RESULTS,
            Paper::Rdma => &rdma::WITHOUT_RESULTS,
        }
    }
}

/// Where in a paper a figure stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Citation {
    /// The paper.
    pub paper: Paper,
    /// The section, by its number; of the slides the slide, by its title.
    pub section: &'static str,
    /// The number of its caption, such as `Figure 13`; `None` for a result that only the text has.
    pub caption: Option<&'static str>,
}

impl Citation {
    /// Section and caption in one line.
    pub fn text(&self) -> String {
        match self.caption {
            Some(caption) => format!("{}, {caption}", self.section),
            None => self.section.to_owned(),
        }
    }
}

/// A value that a paper's text gives.
#[derive(Clone, PartialEq, Debug)]
pub struct Published {
    /// What it is a value of: for a figure that is measured here, the id of one of its series.
    pub series: &'static str,
    /// Where on the figure's x axis; `None` for a level that holds for all of it, or where there is
    /// no such axis.
    pub x: Option<f64>,
    /// The value.
    pub value: f64,
    /// Its unit: for a figure that is measured here, that of its y axis.
    pub unit: &'static str,
    /// Where in the text.
    pub place: String,
}

/// A figure or table of the papers.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name on the command line, in file names and on the page.
    pub name: &'static str,
    /// Where it stands; first the paper that it is shown under.
    pub places: Vec<Citation>,
    /// What is measured against what.
    pub title: &'static str,
    /// What is varied.
    pub varied: &'static str,
    /// What is measured.
    pub measured: &'static str,
    /// What the paper says that it shows.
    pub claim: &'static str,
    /// The paper's own values, where the text gives them.
    pub published: Vec<Published>,
    /// How it is measured here.
    pub code: Code,
}

/// How a figure is measured.
#[derive(Clone, Debug)]
pub enum Code {
    /// By this.
    Runs(Box<Scenario>),
    /// Not at all yet, for want of something: "needs ...".
    Lacks(&'static str),
}

impl Entry {
    /// What measures it, if anything does.
    pub fn scenario(&self) -> Option<&Scenario> {
        match &self.code {
            Code::Runs(scenario) => Some(scenario),
            Code::Lacks(_) => None,
        }
    }

    /// What it needs that wharf does not have, if anything.
    pub fn lacks(&self) -> Option<&'static str> {
        match self.code {
            Code::Runs(_) => None,
            Code::Lacks(what) => Some(what),
        }
    }
}

/// All entries, in the order of the papers and of the figures in them.
pub fn registry() -> Vec<Entry> {
    let mut entries = lro::entries();
    entries.extend(gso::entries());
    entries.extend(handoff::entries());
    entries.extend(rdma::entries());
    entries
}

#[cfg(test)]
mod tests;
