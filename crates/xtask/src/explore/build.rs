//! The programs that the turns run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::subject::{Subject, Target};
use crate::cargo::cargo;
use crate::fuzz;
use crate::process::{output, run_captured};
use crate::tree::Tree;

/// The built tests of the workspace.
pub(super) struct Programs {
    by_target: BTreeMap<Target, PathBuf>,
}

impl Programs {
    /// Builds them as the check does.
    pub(super) fn build(tree: &Tree) -> Result<Self, String> {
        let mut build = cargo(tree);
        build.args(["test", "--workspace", "--no-run", "--message-format=json", "--quiet"]);
        Ok(Self { by_target: output(&mut build)?.lines().filter_map(executable).collect() })
    }

    /// A target's tests, where and as cargo runs them.
    pub(super) fn command(&self, tree: &Tree, target: &Target) -> Result<Command, String> {
        let program = self.by_target.get(&target.program());
        let missing = || format!("cargo builds nothing by `{}`", target.words().join(" "));
        let mut command = Command::new(program.ok_or_else(missing)?);
        // Ordinary users do not look where `ip` and `ethtool` are.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command.current_dir(tree.path("crates").join(target.package()));
        Ok(command)
    }
}

/// The target and its program, by a line of cargo's about a test that it has built.
fn executable(line: &str) -> Option<(Target, PathBuf)> {
    let line: Value = serde_json::from_str(line).ok()?;
    if line["profile"]["test"] != true {
        return None;
    }
    let program = PathBuf::from(line["executable"].as_str()?);
    let package = Path::new(line["manifest_path"].as_str()?).parent()?.file_name()?.to_str()?;
    match line["target"]["kind"][0].as_str()? {
        "test" => Some((Target::new(package, line["target"]["name"].as_str()), program)),
        "lib" => Some((Target::new(package, None), program)),
        _ => None,
    }
}

/// Builds what a subject runs beside the tests.
pub(super) fn prepare(tree: &Tree, subject: &Subject) -> Result<(), String> {
    let Subject::Fuzz(target) = subject else { return Ok(()) };
    fuzz::has_tools()?;
    let (succeeded, said) = run_captured(&mut fuzz::command(tree, &["build", target]))?;
    if succeeded { Ok(()) } else { Err(format!("it does not build\n{said}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_what_cargo_says() {
        let line = |test: bool, kind: &str, name: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/a/crates/lro/Cargo.toml\",\
                 \"target\":{{\"kind\":[\"{kind}\"],\"name\":\"{name}\"}},\
                 \"profile\":{{\"test\":{test}}},\"executable\":\"/a/x\"}}"
            )
        };
        let program = || PathBuf::from("/a/x");
        let laws = Target::new("lro", Some("laws"));
        assert_eq!(executable(&line(true, "test", "laws")), Some((laws, program())));
        let lib = Target::new("lro", None);
        assert_eq!(executable(&line(true, "lib", "lro")), Some((lib, program())));
        for other in [&line(false, "lib", "lro"), &line(true, "bin", "lro"), "{}", "x"] {
            assert_eq!(executable(other), None, "{other}");
        }
    }
}
