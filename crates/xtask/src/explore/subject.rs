//! What can be explored.

use std::collections::BTreeSet;

use crate::fuzz;
use crate::tree::Tree;

/// The integration test that has most of a package's tests, a module each.
const SUITE: &str = "suite";

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

/// A package's library, or one of its integration tests; of that, all or one module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    package: String,
    /// Name of the integration test, and of one of its modules. `None` is the library.
    test: Option<(String, Option<String>)>,
}

impl Target {
    pub(super) fn new(package: &str, test: Option<&str>) -> Self {
        Self { package: package.to_owned(), test: test.map(|test| (test.to_owned(), None)) }
    }

    /// Returns a module of the program that has most of a package's integration tests.
    pub(super) fn of_suite(package: &str, module: &str) -> Self {
        let test = (SUITE.to_owned(), Some(module.to_owned()));
        Self { package: package.to_owned(), test: Some(test) }
    }

    /// Returns the target that a source file is part of, by the tests that the package's manifest names.
    fn of_file(path: &str, manifest: &str) -> Option<Self> {
        let mut parts = path.strip_prefix("crates/")?.split('/');
        let package = parts.next()?;
        match (parts.next()?, parts.next()?) {
            ("src", _) => Some(Self::new(package, None)),
            ("tests", name) => {
                let name = name.trim_end_matches(".rs");
                let names = |name: &str| manifest.contains(&format!("[[test]]\nname = \"{name}\""));
                let is_alone = !names(SUITE) || names(name);
                Some(if is_alone {
                    Self::new(package, Some(name))
                } else {
                    Self::of_suite(package, name)
                })
            }
            _ => None,
        }
    }

    pub(super) fn package(&self) -> &str {
        &self.package
    }

    /// Returns the same without the module: what cargo builds as one program.
    pub(super) fn program(&self) -> Self {
        Self::new(&self.package, self.test.as_ref().map(|(test, _)| test.as_str()))
    }

    /// Returns `lib`, or the name of the integration test.
    pub(super) fn name(&self) -> &str {
        self.test.as_ref().map_or("lib", |(test, _)| test)
    }

    /// Returns the name of the module, or of the whole.
    fn part(&self) -> &str {
        match &self.test {
            Some((_, Some(module))) => module,
            _ => self.name(),
        }
    }

    /// Returns the words with which the program runs these tests only.
    pub(super) fn filter(&self) -> Option<String> {
        let (_, module) = self.test.as_ref()?;
        module.as_ref().map(|module| format!("{module}::"))
    }

    /// Returns the words by which cargo knows it.
    pub(super) fn words(&self) -> Vec<&str> {
        let target = match &self.test {
            Some((test, _)) => vec!["--test", test],
            None => vec!["--lib"],
        };
        [vec!["-p", &self.package], target].concat()
    }
}

impl Subject {
    pub(super) fn name(&self) -> String {
        match self {
            Subject::Properties(target) | Subject::Simulation(target) => {
                format!("{}/{}", target.package(), target.part())
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
            let package = path.split('/').nth(1).unwrap_or_default();
            let manifest = tree.read(&format!("crates/{package}/Cargo.toml"))?;
            targets.extend(Target::of_file(&path, &manifest));
        }
    }
    let mut subjects: Vec<Subject> = targets.into_iter().map(Subject::Properties).collect();
    let simulations = [("tcp", "sim"), ("rdma", "model")];
    let simulations = simulations.map(|(package, module)| Target::of_suite(package, module));
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
        let suite = "[[test]]\nname = \"suite\"\n\n[[test]]\nname = \"bound\"\n";
        for (path, manifest, words, filter) in [
            ("crates/lro/src/out_of_order.rs", suite, "-p lro --lib", None),
            ("crates/lro/tests/laws/udp.rs", suite, "-p lro --test suite", Some("laws::")),
            ("crates/tcp/tests/options.rs", suite, "-p tcp --test suite", Some("options::")),
            ("crates/tcp/tests/bound.rs", suite, "-p tcp --test bound", None),
            ("crates/gso/tests/laws/mtu.rs", "", "-p gso --test laws", None),
        ] {
            let target = Target::of_file(path, manifest).unwrap();
            assert_eq!(target.words().join(" "), words);
            assert_eq!(target.filter().as_deref(), filter);
        }
        assert_eq!(Target::of_file("fuzz/fuzz_targets/lro.rs", ""), None);
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
