//! The evaluations of the five papers: every figure that wharf can run, measured again, and of each
//! other one what is missing.
//!
//! [`registry()`] lists all figures. What is to be measured is measured point by point, all cases of
//! a point together and in turns, and kept in a [`Store`]; what is there is not measured again. A
//! [`verdict()`] compares it with what the paper claims.

mod header;
mod parameters;
mod plan;
mod registry;
mod run;
mod scenario;
mod store;
mod verdict;

pub use header::Header;
pub use parameters::Parameters;
pub use plan::Progress;
pub use registry::{Citation, Code, Entry, Paper, Published, registry};
pub use run::{Gaps, Here, Observer, Runner, run};
pub use scenario::{Headline, Judge, Run, Scale, Scenario, Series, XAxis, YAxis};
pub use store::{Row, Store, StoreError, raw_name};
pub use verdict::{Spread, Verdict, marks, number, verdict};
