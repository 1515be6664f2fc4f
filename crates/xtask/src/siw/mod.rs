//! `cargo xtask siw`: wharf's RDMA device beside Linux siw, in a QEMU guest of Debian's packages.
//!
//! Both roles, both directions, revisions 1 and 2 of MPA, with CRCs and without; what is told of an access that is not
//! allowed; siw's refusal of markers; and how fast siw is beside itself. It needs no root (`network`).

mod build;
mod case;
mod device;
mod guest;
mod markers;
mod network;
mod pair;
mod plan;
mod program;
mod sockets;
mod speed;
mod stage;
mod stream;
mod symptoms;
mod table;
mod trace;
mod wait;

use std::time::{Duration, Instant};

use crate::Failure;
use crate::cargo::{cargo, may_lack};
use crate::process::run as run_program;
use crate::tree::Tree;
use plan::Step;
use stage::Stage;
use table::Table;

/// The word by which this command runs itself in namespaces of its own.
const INSIDE: &str = "inside";
/// Where all is that this builds and writes.
const DIRECTORY: &str = "target/siw";

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Options<'a> {
    /// What a line has that is tried.
    pattern: Option<&'a str>,
    /// What is not begun by then is left out.
    minutes: Option<u64>,
}

/// `cargo xtask siw [PATTERN] [--minutes N]`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    if let [INSIDE, rest @ ..] = arguments {
        return inside(options(rest)?).map_err(Failure::Failed);
    }
    let options = options(arguments)?;
    if !plan::all().iter().any(|step| options.has(step)) {
        return Err(Failure::Usage("no line of siw's table has this pattern".to_owned()));
    }
    if let Some(why) = build::lacks().or_else(network::lacks) {
        let why = format!("siw in a guest, which is optional, is left out: {why}");
        if may_lack() {
            println!("{why}");
            return Ok(());
        }
        let how = "with WHARF_MAY_LACK=1 in the environment this passes";
        return Err(Failure::Failed(format!("{why}; {how}")));
    }
    outside(arguments).map_err(Failure::Failed)
}

fn options<'a>(arguments: &[&'a str]) -> Result<Options<'a>, Failure> {
    let mut options = Options { pattern: None, minutes: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--minutes" => {
                let number = rest.next().and_then(|number| number.parse().ok());
                let number = number.filter(|minutes| (1..=10_000).contains(minutes));
                let wrong = || Failure::Usage("--minutes takes 1 to 10000".to_owned());
                options.minutes = Some(number.ok_or_else(wrong)?);
            }
            option if option.starts_with('-') => {
                return Err(Failure::Usage(format!("siw has no option `{option}`")));
            }
            pattern if options.pattern.is_none() => options.pattern = Some(pattern),
            other => return Err(Failure::Usage(format!("siw takes one pattern, not `{other}`"))),
        }
    }
    Ok(options)
}

impl Options<'_> {
    fn has(&self, step: &Step) -> bool {
        self.pattern.is_none_or(|pattern| step.what.contains(pattern))
    }
}

/// Whatever is to be fetched or built, before there is no network.
fn outside(arguments: &[&str]) -> Result<(), String> {
    let tree = Tree::of_this_build();
    run_program(cargo(&tree).args(["build", "--quiet", "-p", "wharf", "-p", "verbs"]))?;
    println!("building the guest");
    build::image(&tree.path(DIRECTORY))?;
    network::inside(&[&["siw", INSIDE], arguments].concat())
}

fn inside(options: Options<'_>) -> Result<(), String> {
    let begun = Instant::now();
    let tree = Tree::of_this_build();
    network::make()?;
    let (steps, others): (Vec<Step>, Vec<Step>) =
        plan::all().into_iter().partition(|step| options.has(step));
    let mut table = Table::create(&tree.path(DIRECTORY).join("results"))?;
    let mut stage = Stage::new(&tree)?;
    let time = options.minutes.map(|minutes| Duration::from_secs(60 * minutes));
    for step in &steps {
        let why_not = match time {
            Some(time) if begun.elapsed() > time => Some("the time is over"),
            _ => stage.is_over(),
        };
        match why_not {
            Some(why) => table.leave_out(&step.what, why),
            None => {
                let (what, outcome) = stage.attempt(step);
                table.judge(&what, outcome);
            }
        }
    }
    table.end(others.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let asked = |pattern, minutes| Options { pattern, minutes };
        assert_eq!(options(&[]).unwrap(), asked(None, None));
        let both = options(&["revision 1", "--minutes", "5"]).unwrap();
        assert_eq!(both, asked(Some("revision 1"), Some(5)));
        for wrong in [&["--minutes"][..], &["--minutes", "0"], &["a", "b"], &["--all"]] {
            assert!(matches!(options(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
        assert!(matches!(run(&["no such line"]), Err(Failure::Usage(_))));
    }
}
