//! What exploring found, and the check runs ever after.
//!
//! A line of `kept.txt` is a test, and the seed with which it once failed:
//! `SETTING=VALUE PACKAGE TARGET TEST`, where the target is `lib` or an integration test. Property tests
//! keep theirs beside their sources (`proptest-regressions`). Inputs of fuzz targets lie in
//! `fuzz/kept/TARGET`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use super::subject::Target;
use crate::cargo::cargo;
use crate::fuzz;
use crate::outcome::Outcome;
use crate::process::run_captured;
use crate::tree::Tree;

const FILE: &str = "crates/xtask/kept.txt";
const INPUTS: &str = "fuzz/kept";

/// A test with a seed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    /// `NAME=VALUE[,NAME=VALUE...]`, for the environment.
    pub(super) setting: String,
    pub(super) package: String,
    /// `lib`, or the name of an integration test.
    pub(super) target: String,
    pub(super) test: String,
}

impl Case {
    pub(super) fn new(setting: String, target: &Target, test: &str) -> Self {
        let (package, name) = (target.package().to_owned(), target.name().to_owned());
        Self { setting, package, target: name, test: test.to_owned() }
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split('#').next()?.split_whitespace().collect();
        let [setting, package, target, test] = words[..] else { return None };
        setting.split_once('=')?;
        let [setting, package, target, test] = [setting, package, target, test].map(str::to_owned);
        Some(Self { setting, package, target, test })
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} {}", self.setting, self.package, self.target, self.test)
    }
}

/// The step of the check: nothing that was kept fails again.
pub(crate) fn check(tree: &Tree) -> Outcome {
    for case in cases(tree)? {
        let mut test = cargo(tree);
        test.envs(case.setting.split(',').filter_map(|setting| setting.split_once('=')));
        // All of the workspace, as the step before has built it; none but that package has the test.
        test.args(["test", "--quiet", "--workspace"]);
        match case.target.as_str() {
            "lib" => test.arg("--lib"),
            name => test.args(["--test", name]),
        };
        let (succeeded, said) = run_captured(test.args(["--", "--exact", &case.test]))?;
        if !succeeded {
            return Err(format!("`{case}` fails\n{said}"));
        }
        if !said.contains(" 1 passed;") {
            return Err(format!("{FILE}: there is no test as in `{case}`"));
        }
    }
    for (target, inputs) in inputs(tree)? {
        fuzz::replay(tree, &target, &inputs)?;
    }
    Ok(Vec::new())
}

fn cases(tree: &Tree) -> Result<Vec<Case>, String> {
    let text = tree.read(FILE)?;
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let form = "SETTING=VALUE PACKAGE TARGET TEST";
            Case::parse(line).ok_or_else(|| format!("{FILE}: `{line}` is not `{form}`"))
        })
        .collect()
}

/// The kept inputs of each fuzz target.
fn inputs(tree: &Tree) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut by_target = BTreeMap::<String, Vec<String>>::new();
    if tree.path(INPUTS).is_dir() {
        for path in tree.files(INPUTS, "")? {
            let target = path.split('/').rev().nth(1).unwrap_or_default().to_owned();
            by_target.entry(target).or_default().push(path);
        }
    }
    Ok(by_target)
}

/// Adds a case; what was known is not written again.
pub(super) fn keep(tree: &Tree, case: &Case) -> Result<String, String> {
    if !cases(tree)?.contains(case) {
        let file = OpenOptions::new().append(true).open(tree.path(FILE));
        file.and_then(|mut file| writeln!(file, "{case}"))
            .map_err(|error| format!("{FILE}: {error}"))?;
    }
    Ok(format!("kept in {FILE}: {case}"))
}

/// Copies an input at which a fuzz target failed.
pub(super) fn keep_input(tree: &Tree, target: &str, artifact: &Path) -> Result<String, String> {
    let name = artifact.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let directory = tree.path(INPUTS).join(target);
    let copied = std::fs::create_dir_all(&directory)
        .and_then(|()| std::fs::copy(artifact, directory.join(&name)));
    copied.map_err(|error| format!("{}: {error}", artifact.display()))?;
    Ok(format!("kept in {INPUTS}/{target}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read_as_it_is_written() {
        let line = "WHARF_SIM_SEED=17 tcp sim all_bytes_arrive_or_there_is_a_reason";
        let case = Case::parse(&format!("{line} # what failed")).unwrap();
        assert_eq!(case.to_string(), line);
        for other in ["tcp sim test", "A=1 tcp sim", "A tcp sim test", ""] {
            assert_eq!(Case::parse(other), None, "{other}");
        }
        assert!(cases(&Tree::of_this_build()).is_ok());
    }
}
