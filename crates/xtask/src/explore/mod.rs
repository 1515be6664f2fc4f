//! `cargo xtask explore`: what the check runs from fixed seeds, run from new ones.
//!
//! The subjects take turns until the time is over. What fails is kept as a case, which the check runs
//! from then on, and said in one line; what its program wrote is in `target/explore`.

mod build;
mod kept;
mod progress;
mod said;
mod subject;
mod turn;

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

pub(crate) use kept::check;

use crate::Failure;
use crate::tree::Tree;
use build::{Programs, prepare};
use progress::Progress;
use subject::Subject;

const DEFAULT_MINUTES: u64 = 10;

/// `cargo xtask explore [--minutes N] [--only NAME] [--list]`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let tree = Tree::of_this_build();
    let subjects = subject::all(&tree).map_err(Failure::Failed)?;
    let Some((subjects, time)) = chosen(arguments, subjects)? else { return Ok(()) };
    eprintln!("building");
    let programs = Programs::build(&tree).map_err(Failure::Failed)?;
    let mut found = Vec::new();
    // What cannot be built or is missing fails by its name; the others are explored all the same.
    let (ready, lacking): (Vec<_>, Vec<_>) = subjects
        .into_iter()
        .map(|subject| (prepare(&tree, &subject), subject))
        .partition(|(prepared, _)| prepared.is_ok());
    for (why, subject) in &lacking {
        let why = why.as_ref().err().map_or("", String::as_str);
        found.push(format!("{}: {why}", subject.name()));
    }
    let mut progress = Progress::new(time);
    let begun = Instant::now();
    let mut turns = 0_u64;
    for (_, subject) in ready.iter().cycle() {
        let left = time.saturating_sub(begun.elapsed());
        if left.is_zero() {
            break;
        }
        progress.show(begun.elapsed(), &subject.name(), found.len());
        let seed = RandomState::new().hash_one(turns);
        for line in turn::take(&tree, &programs, subject, seed, left).map_err(Failure::Failed)? {
            let line = format!("{}: {line}", subject.name());
            progress.say(&line);
            found.push(line);
        }
        turns += 1;
    }
    progress.end();
    println!("{turns} turns of {} subjects in {} s", ready.len(), begun.elapsed().as_secs());
    if found.is_empty() {
        return Ok(());
    }
    found.iter().for_each(|line| println!("{line}"));
    Err(Failure::Failed(format!("{} found", found.len())))
}

type Chosen = (Vec<Subject>, Duration);

/// The subjects that the command line asks for, and for how long; `None` if it asks for the list.
fn chosen(arguments: &[&str], subjects: Vec<Subject>) -> Result<Option<Chosen>, Failure> {
    let (mut only, mut minutes) = (Vec::new(), DEFAULT_MINUTES);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--list" => {
                subjects.iter().for_each(|subject| println!("{}", subject.name()));
                return Ok(None);
            }
            "--minutes" => {
                let number = rest.next().and_then(|number| number.parse().ok());
                minutes = number
                    .filter(|minutes| (1..=10_000).contains(minutes))
                    .ok_or_else(|| Failure::Usage("--minutes takes 1 to 10000".to_owned()))?;
            }
            "--only" => {
                let name = rest.next().ok_or_else(|| Failure::Usage("--only what?".to_owned()))?;
                if !subjects.iter().any(|subject| subject.is_meant_by(name)) {
                    let known: Vec<String> = subjects.iter().map(Subject::name).collect();
                    let known = known.join(", ");
                    return Err(Failure::Usage(format!("no subject `{name}`; there are {known}")));
                }
                only.push(*name);
            }
            other => return Err(Failure::Usage(format!("explore has no option `{other}`"))),
        }
    }
    let meant = |subject: &Subject| only.is_empty() || only.iter().any(|n| subject.is_meant_by(n));
    let subjects = subjects.into_iter().filter(meant).collect();
    Ok(Some((subjects, Duration::from_secs(60 * minutes))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subjects() -> Vec<Subject> {
        subject::all(&Tree::of_this_build()).unwrap()
    }

    #[test]
    fn subjects_are_chosen_by_name_or_kind() {
        let names = |arguments: &[&str]| -> Vec<String> {
            let (subjects, _) = chosen(arguments, subjects()).unwrap().unwrap();
            subjects.iter().map(Subject::name).collect()
        };
        assert_eq!(names(&["--only", "tcp/sim"]), ["tcp/sim"]);
        assert!(names(&["--only", "fuzz"]).iter().all(|name| name.starts_with("fuzz/")));
        assert_eq!(names(&[]).len(), subjects().len());
        let (_, time) = chosen(&["--minutes", "3"], subjects()).unwrap().unwrap();
        assert_eq!(time.as_secs(), 180);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let senseless =
            [&["--minutes"][..], &["--minutes", "0"], &["--only", "none"], &["--only"], &["lro"]];
        for arguments in senseless {
            let chosen = chosen(arguments, subjects());
            assert!(matches!(chosen, Err(Failure::Usage(_))), "{arguments:?}");
        }
    }
}
