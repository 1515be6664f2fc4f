//! What can be explored.

use std::collections::BTreeSet;

use crate::fuzz;
use crate::tree::Tree;

/// Something with seeds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    /// The property tests of one target of a package, and differentials that draw their cases as these do.
    Properties(Target),
    /// A simulation: that of TCP, with the transparency of freezes, or that of RDMA beside a model.
    Simulation(Target),
    /// Sequences through the local kernel's GRO and the lossless profile.
    Gro,
    /// Sequences of socket calls on a connection that moves, beside one of the kernel's.
    Calls,
    /// A fuzz target.
    Fuzz(String),
}

/// A package's library, or one of its integration tests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    package: String,
    /// `None` is the library.
    test: Option<String>,
}

impl Target {
    pub(super) fn new(package: &str, test: Option<&str>) -> Self {
        Self { package: package.to_owned(), test: test.map(str::to_owned) }
    }

    /// The target that a source file is part of.
    fn of_file(path: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("crates/")?.split('/');
        let package = parts.next()?;
        match (parts.next()?, parts.next()?) {
            ("src", _) => Some(Self::new(package, None)),
            ("tests", name) => Some(Self::new(package, Some(name.trim_end_matches(".rs")))),
            _ => None,
        }
    }

    pub(super) fn package(&self) -> &str {
        &self.package
    }

    /// `lib`, or the name of the integration test.
    pub(super) fn name(&self) -> &str {
        self.test.as_deref().unwrap_or("lib")
    }

    /// The words by which cargo knows it.
    pub(super) fn words(&self) -> Vec<&str> {
        let target = match &self.test {
            Some(test) => vec!["--test", test],
            None => vec!["--lib"],
        };
        [vec!["-p", &self.package], target].concat()
    }
}

impl Subject {
    pub(super) fn name(&self) -> String {
        match self {
            Subject::Properties(target) | Subject::Simulation(target) => {
                format!("{}/{}", target.package(), target.name())
            }
            Subject::Gro => "lro/kernel".to_owned(),
            Subject::Calls => "wharf/e2e".to_owned(),
            Subject::Fuzz(target) => format!("fuzz/{target}"),
        }
    }

    /// Whether a word of the command line means it: its name, or what is before the slash.
    pub(super) fn is_meant_by(&self, word: &str) -> bool {
        let name = self.name();
        name == word || name.split('/').next() == Some(word)
    }
}

/// All there are, by the sources.
pub(super) fn all(tree: &Tree) -> Result<Vec<Subject>, String> {
    let mut targets = BTreeSet::new();
    for path in tree.files("crates", ".rs")? {
        // Properties, and differentials whose cases have the seed of properties.
        let drawn = ["proptest!", "TestRunner::new("];
        let text = tree.read(&path)?;
        if !path.starts_with("crates/xtask/") && drawn.iter().any(|mark| text.contains(mark)) {
            targets.extend(Target::of_file(&path));
        }
    }
    let mut subjects: Vec<Subject> = targets.into_iter().map(Subject::Properties).collect();
    let simulations = [("tcp", "sim"), ("rdma", "model")];
    let simulations = simulations.map(|(package, test)| Target::new(package, Some(test)));
    subjects.extend(simulations.map(Subject::Simulation));
    subjects.extend([Subject::Gro, Subject::Calls]);
    subjects.extend(fuzz::targets(tree)?.into_iter().map(Subject::Fuzz));
    Ok(subjects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_the_target_that_cargo_builds_of_it() {
        for (path, words) in [
            ("crates/lro/src/out_of_order.rs", "-p lro --lib"),
            ("crates/lro/tests/laws/udp.rs", "-p lro --test laws"),
            ("crates/tcp/tests/options.rs", "-p tcp --test options"),
        ] {
            assert_eq!(Target::of_file(path).unwrap().words().join(" "), words);
        }
        assert_eq!(Target::of_file("fuzz/fuzz_targets/lro.rs"), None);
    }

    #[test]
    fn every_kind_is_found_in_the_tree() {
        let names: Vec<String> =
            all(&Tree::of_this_build()).unwrap().iter().map(Subject::name).collect();
        let simulated = ["tcp/sim", "rdma/model", "lro/kernel", "wharf/e2e"];
        for name in ["lro/laws", "lro/lib", "gso/laws", "fuzz/lro"].iter().chain(&simulated) {
            assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
        }
    }
}
