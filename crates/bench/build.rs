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

/// The commit that is built; `-dirty` says that there are changes that it does not have. It is looked
/// at again whenever the index of the tree changes, as it does with each commit.
fn commit() -> Option<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for path in ["HEAD", "index"].map(|name| format!("{root}/.git/{name}")) {
        if std::fs::exists(&path).unwrap_or(false) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let describe = ["-C", root, "describe", "--always", "--dirty", "--abbrev=12"];
    let output = Command::new("git").args(describe).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
