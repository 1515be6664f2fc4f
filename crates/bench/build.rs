//! Tells the measurements which compiler made them.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    // One that does not tell is left unknown.
    if let Some(version) = output.ok().and_then(|output| String::from_utf8(output.stdout).ok()) {
        println!("cargo::rustc-env=WHARF_RUSTC={}", version.trim());
    }
}
