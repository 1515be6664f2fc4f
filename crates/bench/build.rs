//! Tells the measurements which compiler made them, and of which commit.

use std::process::{Command, Stdio};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    // One that does not tell is left unknown.
    if let Some(version) = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()) {
        println!("cargo::rustc-env=WHARF_RUSTC={}", version.trim());
    }
    if let Some(commit) = commit() {
        println!("cargo::rustc-env=WHARF_COMMIT={commit}");
    }
}

/// The commit that is built; `-dirty` says that there are changes that it does not have.
fn commit() -> Option<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        let output = git.args(["-C", root]).args(arguments).stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let of_git = git(&["rev-parse", "--absolute-git-dir"])?;
    println!("cargo::rerun-if-changed={of_git}/HEAD");
    println!("cargo::rerun-if-changed={of_git}/index");
    println!("cargo::rerun-if-changed={root}/crates");
    // `describe --dirty` would write the index, by which cargo would run this again.
    let status = ["--no-optional-locks", "status", "--porcelain", "--untracked-files=no"];
    let is_dirty = git(&status).is_none_or(|changes| !changes.is_empty());
    let commit = git(&["describe", "--always", "--abbrev=12"])?;
    Some(if is_dirty { commit + "-dirty" } else { commit })
}
