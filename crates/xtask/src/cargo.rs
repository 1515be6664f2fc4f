//! The steps that cargo does.

use std::path::PathBuf;
use std::process::Command;

use crate::outcome::Outcome;
use crate::process::{is_root, output, run, works};
use crate::smoke::SMOKE;
use crate::tree::Tree;

/// The integration test that runs other programs, most of them in a network of their own.
const END_TO_END: &str = "e2e";
/// They wait more than they compute.
const AT_ONCE: &str = "--test-threads=4";

/// The cargo that runs this, in the tree.
pub(crate) fn cargo(tree: &Tree) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(tree.root());
    // Ordinary users do not look where `ip` and `ethtool` are.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    if !is_incremental() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// Whether this program's target directory has incremental compilations of the largest crate, which it does without.
///
/// Where there are none, as in a fresh clone, compiling so takes half as long again; where there are some,
/// compiling otherwise would begin anew.
fn is_incremental() -> bool {
    let program = std::env::current_exe().ok();
    let folder = program.and_then(|path| Some(path.parent()?.join("incremental")));
    let entries = folder.and_then(|path| std::fs::read_dir(path).ok());
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().starts_with("nic-"))
}

pub(crate) fn format(tree: &Tree) -> Outcome {
    run(cargo(tree).args(["fmt", "--all", "--check"]))?;
    run(cargo(tree).args(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))?;
    Ok(Vec::new())
}

pub(crate) fn clippy(tree: &Tree) -> Outcome {
    run(cargo(tree).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    Ok(Vec::new())
}

pub(crate) fn docs(tree: &Tree) -> Outcome {
    let mut doc = cargo(tree);
    doc.args(["doc", "--workspace", "--no-deps"]);
    run(doc.env("RUSTDOCFLAGS", "-D warnings"))?;
    Ok(Vec::new())
}

/// In a directory of its own: other flags would build everything anew.
pub(crate) fn loom(tree: &Tree) -> Outcome {
    let mut test = cargo(tree);
    test.args(["test", "--quiet", "--package", "handoff", "--test", "interleavings"]);
    test.args(["--target-dir", "target/loom"]);
    // Flags in this form would come first.
    test.env_remove("CARGO_ENCODED_RUSTFLAGS");
    run(test.env("RUSTFLAGS", "--cfg loom"))?;
    Ok(Vec::new())
}

/// A test run whose tests may say what they are left out for, and where they say it.
struct Tests {
    left_out: PathBuf,
}

impl Tests {
    fn new(tree: &Tree) -> Result<Self, String> {
        let left_out = tree.path("target").join(format!("left-out-{}.txt", std::process::id()));
        let told = |error| format!("{}: {error}", left_out.display());
        std::fs::create_dir_all(tree.path("target")).map_err(told)?;
        std::fs::write(&left_out, "").map_err(told)?;
        Ok(Self { left_out })
    }

    fn run(&self, test: &mut Command) -> Result<(), String> {
        // A failure says where it is; calls below it, of each, make a log long that may be cut.
        run(test.env("WHARF_LEFT_OUT", &self.left_out).env("RUST_BACKTRACE", "0"))
    }

    /// What the tests that ran were left out for.
    fn left_out(self) -> Vec<String> {
        let told = std::fs::read_to_string(&self.left_out).unwrap_or_default();
        told.lines().map(str::to_owned).collect()
    }
}

impl Drop for Tests {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.left_out);
    }
}

/// Whether steps may pass although this machine lacks what their tests need.
pub(crate) fn may_lack() -> bool {
    std::env::var_os("WHARF_MAY_LACK").is_some()
}

/// All tests but the end-to-end tests, which are a step of their own.
pub(crate) fn tests(tree: &Tree) -> Outcome {
    let mut test = cargo(tree);
    test.args(["test", "--workspace", "--lib", "--bins"]);
    for name in integration_tests(tree)?.iter().filter(|name| *name != END_TO_END) {
        test.args(["--test", name]);
    }
    let tests = Tests::new(tree)?;
    tests.run(&mut test)?;
    Ok(tests.left_out())
}

/// The examples in the documentation.
pub(crate) fn doc_tests(tree: &Tree) -> Outcome {
    run(cargo(tree).args(["test", "--workspace", "--doc"]))?;
    Ok(Vec::new())
}

/// All end-to-end tests; as an ordinary user those that a user namespace allows.
pub(crate) fn end_to_end(tree: &Tree) -> Outcome {
    end_to_end_of(tree, &[])
}

/// One end-to-end test of each command and of each kind of program.
pub(crate) fn smoke(tree: &Tree) -> Outcome {
    let list =
        output(cargo(tree).args(["test", "--workspace", "--test", END_TO_END, "--", "--list"]))?;
    let tests: Vec<&str> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    if let Some(missing) = SMOKE.iter().find(|name| !tests.contains(name)) {
        return Err(format!(
            "there is no end-to-end test `{missing}`: see crates/xtask/src/smoke.rs"
        ));
    }
    end_to_end_of(tree, &[&["--exact"], SMOKE].concat())
}

fn end_to_end_of(tree: &Tree, names: &[&str]) -> Outcome {
    let words = ["test", "--workspace", "--test", END_TO_END];
    let options = [&["--", "--show-output", AT_ONCE], names].concat();
    let tests = Tests::new(tree)?;
    if is_root() {
        tests.run(cargo(tree).args(words).args(&options))?;
        return Ok(tests.left_out());
    }
    // Whatever cargo has to fetch or build, it does outside of the namespace.
    run(cargo(tree).args(words).arg("--no-run"))?;
    let namespace = ["--user", "--map-root-user", "--net"];
    if !works("unshare", &[&namespace[..], &["true"]].concat()) {
        let why = "all end-to-end tests: they need root, or the right to make user namespaces";
        return if may_lack() { Ok(vec![why.to_owned()]) } else { Err(why.to_owned()) };
    }
    let cargo = cargo(tree);
    let mut test = Command::new("unshare");
    test.args(namespace).arg(cargo.get_program()).args(words).arg("--offline");
    tests.run(test.current_dir(tree.root()).args(&options))?;
    Ok(tests.left_out())
}

/// Names of the integration tests of all crates: those that a manifest names, and where it names none
/// `tests/NAME.rs` and `tests/NAME/main.rs`.
fn integration_tests(tree: &Tree) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for manifest in tree.files("crates", "Cargo.toml")? {
        let text = tree.read(&manifest)?;
        names.extend(named_tests(&text).map(str::to_owned));
        if !text.contains("autotests = false") {
            let folder = manifest.replace("Cargo.toml", "tests");
            if tree.path(&folder).is_dir() {
                let files = tree.files(&folder, ".rs")?;
                names.extend(files.iter().filter_map(|path| test_name(path)));
            }
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Names of the integration tests that a manifest lists.
fn named_tests(manifest: &str) -> impl Iterator<Item = &str> {
    let tables = manifest.split("[[test]]\nname = \"").skip(1);
    tables.filter_map(|rest| rest.split('"').next())
}

fn test_name(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["crates", _, "tests", file] => file.strip_suffix(".rs").map(str::to_owned),
        ["crates", _, "tests", name, "main.rs"] => Some((*name).to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integration_tests_are_found_by_their_files() {
        assert_eq!(test_name("crates/gso/tests/laws/main.rs").as_deref(), Some("laws"));
        assert_eq!(test_name("crates/sys/tests/control.rs").as_deref(), Some("control"));
        for other in ["crates/gso/tests/laws/kernel.rs", "crates/gso/src/tests/a.rs"] {
            assert_eq!(test_name(other), None, "{other}");
        }
        let names = integration_tests(&Tree::of_this_build()).unwrap();
        for name in [END_TO_END, "suite", "bound", "laws"] {
            assert!(names.iter().any(|known| known == name), "{name}: {names:?}");
        }
    }

    /// Cargo compiles what a manifest or `tests/main.rs` names, and says nothing of other files.
    #[test]
    fn no_file_of_tests_is_left_out() {
        let tree = Tree::of_this_build();
        for manifest in tree.files("crates", "Cargo.toml").unwrap() {
            let text = tree.read(&manifest).unwrap();
            if !text.contains("autotests = false") {
                continue;
            }
            let folder = manifest.replace("Cargo.toml", "tests");
            let main = tree.read(&format!("{folder}/main.rs")).unwrap();
            let alone: Vec<&str> = named_tests(&text).collect();
            for path in tree.files(&folder, ".rs").unwrap() {
                let name = path[folder.len() + 1..].split('/').next().unwrap();
                let name = name.trim_end_matches(".rs");
                let is_named = name == "main" || alone.contains(&name);
                // A folder may be of a file beside it, or of another module's `#[path]`.
                assert!(
                    is_named || main.contains(&format!("mod {name};")),
                    "{path} is compiled by nothing"
                );
            }
        }
    }
}
