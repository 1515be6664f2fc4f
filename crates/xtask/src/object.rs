//! The XDP program's object, committed so that building needs no clang, is what its source says.

use std::fs;
use std::process::Command;

use crate::outcome::Outcome;
use crate::process::{is_installed, output, run};
use crate::purity::Scratch;
use crate::tree::Tree;

const DIRECTORY: &str = "crates/sys/bpf";
/// The clang that made the committed object. The same one makes the same bytes.
const BUILT_BY: u32 = 14;

pub(crate) fn check(tree: &Tree) -> Outcome {
    if let Some(missing) = ["clang", "llvm-strip"].into_iter().find(|name| !is_installed(name)) {
        return Ok(vec![format!(
            "the comparison of redirect.o with its source: no {missing} here"
        )]);
    }
    let scratch = Scratch::new("xdp-object")?;
    let built = scratch.path().join("redirect.o");
    let committed = tree.path(&format!("{DIRECTORY}/redirect.o"));
    // In its directory, as its head says, so that the object names the file in the same way.
    let mut clang = Command::new("clang");
    clang.current_dir(tree.path(DIRECTORY));
    run(clang.args(["-O2", "-target", "bpf", "-c", "redirect.c", "-o"]).arg(&built))?;
    run(Command::new("llvm-strip").arg("-g").arg(&built))?;

    let read = |path| fs::read(path).map_err(|error| format!("redirect.o: {error}"));
    if read(&built)? == read(&committed)? {
        return Ok(Vec::new());
    }
    let version = clang_version()?;
    if version == BUILT_BY {
        return Err(format!(
            "{DIRECTORY}/redirect.o is not what redirect.c compiles to; its head says how to build it"
        ));
    }
    // Another clang may lay an object out in another way, and mean the same instructions.
    let instructions = |path| -> Result<String, String> {
        let text = output(
            Command::new("llvm-objdump").args(["-d", "-r", "--no-show-raw-insn"]).arg(path),
        )?;
        Ok(text.lines().filter(|line| !line.contains("file format")).collect::<Vec<_>>().join("\n"))
    };
    if is_installed("llvm-objdump") && instructions(&built)? == instructions(&committed)? {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "the comparison of redirect.o with its source: it was built by clang {BUILT_BY}, here is {version}"
    )])
}

/// The major version of clang: "Debian clang version 14.0.6".
fn clang_version() -> Result<u32, String> {
    let text = output(Command::new("clang").arg("--version"))?;
    let mut words = text.split_whitespace().skip_while(|word| *word != "version").skip(1);
    let major = words.next().and_then(|version| version.split('.').next()?.parse().ok());
    major.ok_or_else(|| format!("clang tells no version: {text}"))
}
