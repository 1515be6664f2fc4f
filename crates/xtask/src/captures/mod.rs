//! Whether two builds of wharf make the same of the same captures.
//!
//! Each capture follows from a seed and its number. Both programs run over it with every
//! command and profile that `wharf pcap` has; what they write and print must be the same.

mod capture;
mod compare;
mod connection;
mod damage;
mod file;
mod invocations;
mod other;
mod random;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::capture::Capture;
use self::compare::{Outcome, Unmatched, difference};
use self::invocations::{Invocation, invocations};
use self::random::Random;
use crate::cargo::cargo;
use crate::process::{number, run as run_program};
use crate::tree::Tree;
use crate::{Failure, Failure::Usage};

const CAPTURES: u64 = 1_000;
const SEED: u64 = 0x7768_6172_6620_7631;
/// Captures between two lines that tell how far it is.
const TELL_EVERY: u64 = 100;

/// The files of a run, in a directory of its own.
const INPUT: &str = "in.cap";
const OUTPUT: &str = "out.pcap";

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    before: PathBuf,
    /// Without it, what this tree builds.
    after: Option<PathBuf>,
    captures: u64,
    seed: u64,
    first: u64,
    /// Go on after the first that differs.
    all: bool,
}

impl Options {
    fn read(arguments: &[&str]) -> Result<Self, Failure> {
        let (mut before, mut after, mut all) = (None, None, false);
        let (mut captures, mut seed, mut first) = (CAPTURES, SEED, 0);
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if *argument == "--all" {
                all = true;
                continue;
            }
            let mut value =
                |what: &str| rest.next().ok_or_else(|| Usage(format!("{argument} takes {what}")));
            let path = "the path of a wharf";
            let to = match *argument {
                "--before" => {
                    before = Some(PathBuf::from(value(path)?));
                    continue;
                }
                "--after" => {
                    after = Some(PathBuf::from(value(path)?));
                    continue;
                }
                "--captures" => &mut captures,
                "--seed" => &mut seed,
                "--first" => &mut first,
                other => return Err(Usage(format!("captures has no option `{other}`"))),
            };
            let text = value("a number")?;
            *to = number(text).ok_or_else(|| Usage(format!("{argument} takes a number")))?;
        }
        let before = before.ok_or_else(|| {
            Usage("captures needs --before: the path of a wharf to compare with".to_owned())
        })?;
        Ok(Options { before, after, captures, seed, first, all })
    }
}

/// What came of it so far.
#[derive(Default)]
struct Tally {
    captures: u64,
    packets: u64,
    runs: u64,
    differences: u64,
    unmatched: Unmatched,
}

/// `cargo xtask captures --before PATH [--after PATH] [--captures N] [--seed S] [--first N] [--all]`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let options = Options::read(arguments)?;
    let tree = Tree::of_this_build();
    let after = match &options.after {
        Some(path) => absolute(path)?,
        None => built(&tree)?,
    };
    let before = absolute(&options.before)?;
    let directory = tree.path("target").join("captures").join(std::process::id().to_string());
    fs::create_dir_all(&directory).map_err(|error| failed(&directory, &error))?;
    let program = |which| if which == Which::Before { &before } else { &after };
    let tally = compare(&options, &directory, |which, invocation| {
        outcome(program(which), invocation, &directory)
    });
    let tally = tally.map_err(Failure::Failed)?;
    for (which, only) in [("before", &tally.unmatched.before), ("after", &tally.unmatched.after)] {
        for (name, value) in only {
            println!("only {which}: {name} ({value} in all)");
        }
    }
    let counts =
        format!("{} captures, {} packets, {} runs", tally.captures, tally.packets, tally.runs);
    if tally.differences > 0 {
        let words = format!("{counts}: {} runs differ", tally.differences);
        return Err(Failure::Failed(words));
    }
    println!("{counts}: no difference");
    fs::remove_dir_all(&directory).map_err(|error| failed(&directory, &error))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Before,
    After,
}

/// Has both programs run over every capture, which lies in `directory`. The error tells the first
/// that differs, unless all are asked for.
fn compare(
    options: &Options,
    directory: &Path,
    run: impl Fn(Which, &Invocation) -> Result<Outcome, String>,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let failed_at = |path: &Path, error| format!("{}: {error}", path.display());
    for number in options.first..options.first.saturating_add(options.captures) {
        let mut random = Random::of(options.seed, number);
        let capture = Capture::any(&mut random);
        let input = directory.join(INPUT);
        fs::write(&input, capture.file()).map_err(|error| failed_at(&input, error))?;
        tally.captures += 1;
        tally.packets += capture.packets.len() as u64;
        for invocation in invocations(&mut random) {
            let before = run(Which::Before, &invocation)?;
            let after = run(Which::After, &invocation)?;
            tally.runs += 1;
            let Some(words) = difference(&before, &after, &mut tally.unmatched) else { continue };
            tally.differences += 1;
            let kept = directory.join(format!("{number}.cap"));
            fs::copy(&input, &kept).map_err(|error| failed_at(&kept, error))?;
            let words = format!(
                "capture {number} of seed {:#x}, {invocation}: {words}\n  it is kept as {}\n  again: cargo \
                 xtask captures --before {} --seed {:#x} --first {number} --captures 1",
                options.seed,
                kept.display(),
                options.before.display(),
                options.seed,
            );
            if !options.all {
                return Err(words);
            }
            println!("{words}");
        }
        if tally.captures.is_multiple_of(TELL_EVERY) {
            let (done, all, differ) = (tally.captures, options.captures, tally.differences);
            eprintln!("{done} of {all} captures, {} packets, {differ} runs differ", tally.packets);
        }
    }
    Ok(tally)
}

/// One run in `directory`, with the same names of files for both programs, as errors have them.
fn outcome(program: &Path, invocation: &Invocation, directory: &Path) -> Result<Outcome, String> {
    let output = directory.join(OUTPUT);
    let mut command = Command::new(program);
    command.current_dir(directory).stdin(Stdio::null());
    command.args(["pcap", invocation.command, INPUT, OUTPUT, "--json"]).args(&invocation.options);
    let ran = command.output().map_err(|error| format!("{}: {error}", program.display()))?;
    let capture = fs::read(&output).ok();
    if capture.is_some() {
        fs::remove_file(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    } else if ran.status.success() {
        return Err(format!("{} has written no capture: is it wharf?", program.display()));
    }
    Ok(Outcome {
        status: ran.status.to_string(),
        printed: String::from_utf8_lossy(&ran.stdout).into_owned(),
        errors: String::from_utf8_lossy(&ran.stderr).into_owned(),
        capture,
    })
}

/// The runs have a directory of their own.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    fs::canonicalize(path).map_err(|error| failed(path, &error))
}

/// What this tree builds, with what it checks in debug builds.
fn built(tree: &Tree) -> Result<PathBuf, Failure> {
    run_program(cargo(tree).args(["build", "--workspace", "--bin", "wharf"]))
        .map_err(Failure::Failed)?;
    absolute(&tree.path("target/debug/wharf"))
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_is_told_before_anything_is_built() {
        for arguments in [
            &[][..],
            &["--before"],
            &["--before", "w", "--captures"],
            &["--before", "w", "--captures", "x"],
            &["--before", "w", "--seed", "-1"],
            &["w"],
        ] {
            assert!(matches!(Options::read(arguments), Err(Usage(_))), "{arguments:?}");
        }
        let read = Options::read(&["--before", "w", "--seed", "0x10", "--first", "3", "--all"]);
        let options = Options {
            before: "w".into(),
            after: None,
            captures: CAPTURES,
            seed: 16,
            first: 3,
            all: true,
        };
        assert_eq!(read.unwrap(), options);
    }

    /// A directory for captures.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("captures-test-{name}-{}", std::process::id());
            let directory = Tree::of_this_build().path("target").join(name);
            fs::create_dir_all(&directory).unwrap();
            Self(directory)
        }

        /// Compares five captures, of which `after` makes what it makes of what was before: a copy.
        fn compare(
            &self,
            after: impl Fn(&Invocation, Outcome) -> Outcome,
            all: bool,
        ) -> Result<Tally, String> {
            let options = Options {
                before: "before".into(),
                after: None,
                captures: 5,
                seed: 3,
                first: 0,
                all,
            };
            compare(&options, &self.0, |which, invocation| {
                let copy = Outcome {
                    printed: "{\"packets_in\": 7}".to_owned(),
                    capture: Some(fs::read(self.0.join(INPUT)).unwrap()),
                    ..Outcome::default()
                };
                Ok(if which == Which::Before { copy } else { after(invocation, copy) })
            })
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn two_programs_that_do_the_same_do_not_differ() {
        let tally = Directory::new("same").compare(|_, copy| copy, false).unwrap();
        assert_eq!((tally.captures, tally.runs, tally.differences), (5, 35, 0));
    }

    /// One byte more that only `gso` writes, and only of a capture of some size.
    #[test]
    fn the_first_capture_that_differs_is_named() {
        let len = |number| Capture::any(&mut Random::of(3, number)).file().len();
        let size = (len(0) + 1).max(len(1));
        let directory = Directory::new("first");
        let after = |invocation: &Invocation, mut copy: Outcome| {
            let capture = copy.capture.as_mut().unwrap();
            if invocation.command == "gso" && capture.len() >= size {
                capture.push(0);
            }
            copy
        };
        let large: Vec<u64> = (0..5).filter(|number| len(*number) >= size).collect();
        let first = large.first().expect("one is large");
        let words = directory.compare(after, false).err().unwrap();
        let name = format!("capture {first} of seed 0x3, wharf pcap gso --mtu 1500: ");
        assert!(words.starts_with(&name), "{words}");
        assert!(words.contains(&format!("--seed 0x3 --first {first} --captures 1")), "{words}");
        assert!(directory.0.join(format!("{first}.cap")).exists());
        let tally = directory.compare(after, true).unwrap();
        assert_eq!(tally.differences, 2 * large.len() as u64, "gso runs twice");
    }

    #[test]
    fn a_program_is_run_for_what_it_gives() {
        let directory = Directory::new("run");
        let invocation = &invocations(&mut Random::of(1, 1))[0];
        let ran = |program: &str| outcome(Path::new(program), invocation, &directory.0);
        assert!(ran("/bin/true").unwrap_err().contains("is it wharf"));
        assert_eq!(ran("/bin/false").unwrap().status, "exit status: 1");
        assert!(ran("/bin/none").unwrap_err().starts_with("/bin/none: "));
    }
}
