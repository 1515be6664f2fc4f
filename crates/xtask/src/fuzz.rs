//! The fuzz targets, which need a nightly compiler to run but not to be checked.

use std::process::Command;

use crate::Failure;
use crate::cargo::cargo;
use crate::outcome::Outcome;
use crate::process::{run as run_program, works};
use crate::tree::Tree;

const DEFAULT_SECONDS: u32 = 60;

/// The targets compile, by the compiler at hand.
pub(crate) fn compile(tree: &Tree) -> Outcome {
    let mut check = cargo(tree);
    check.args(["check", "--quiet", "--manifest-path", "fuzz/Cargo.toml"]);
    // Checking links nothing: without this, libfuzzer-sys compiles libFuzzer with a C++ compiler.
    check.env("CUSTOM_LIBFUZZER_PATH", "/nonexistent/libfuzzer.a");
    run_program(&mut check)?;
    Ok(Vec::new())
}

/// `cargo xtask fuzz [TARGET] [--seconds N]`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let tree = Tree::of_this_build();
    let targets = targets(&tree).map_err(Failure::Failed)?;
    let (mut chosen, mut seconds) = (Vec::new(), DEFAULT_SECONDS);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--list" => {
                targets.iter().for_each(|target| println!("{target}"));
                return Ok(());
            }
            "--seconds" => {
                let number = rest.next().and_then(|number| number.parse().ok());
                seconds =
                    number.ok_or_else(|| Failure::Usage("--seconds takes a number".to_owned()))?;
            }
            name if targets.iter().any(|target| target == name) => chosen.push(name.to_owned()),
            other => {
                let known = targets.join(", ");
                return Err(Failure::Usage(format!("no fuzz target `{other}`; there are {known}")));
            }
        }
    }
    has_tools().map_err(Failure::Failed)?;
    for target in if chosen.is_empty() { targets } else { chosen } {
        println!("fuzzing {target} for {seconds} s");
        let mut fuzz = command(&tree, &["run", &target, "--"]);
        run_program(fuzz.arg(format!("-max_total_time={seconds}"))).map_err(Failure::Failed)?;
    }
    Ok(())
}

/// `cargo fuzz` with the nightly compiler.
pub(crate) fn command(tree: &Tree, words: &[&str]) -> Command {
    // By rustup's cargo: the one that runs this is bound to its own compiler.
    let mut fuzz = Command::new("cargo");
    fuzz.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    fuzz.current_dir(tree.root()).args(["+nightly", "fuzz"]).args(words);
    fuzz
}

/// Inputs at which a target once failed, by the compiler at hand: one run of each.
pub(crate) fn replay(tree: &Tree, target: &str, inputs: &[String]) -> Result<(), String> {
    let mut replay = cargo(tree);
    replay.args(["run", "--quiet", "--manifest-path", "fuzz/Cargo.toml", "--bin", target, "--"]);
    run_program(replay.args(inputs))
}

pub(crate) fn targets(tree: &Tree) -> Result<Vec<String>, String> {
    let files = tree.files("fuzz/fuzz_targets", ".rs")?;
    let name = |file: &String| Some(file.rsplit('/').next()?.strip_suffix(".rs")?.to_owned());
    Ok(files.iter().filter_map(name).collect())
}

pub(crate) fn has_tools() -> Result<(), String> {
    let needed = [
        (["+nightly", "--version"], "a nightly compiler: rustup toolchain install nightly"),
        (["fuzz", "--version"], "cargo-fuzz: cargo install cargo-fuzz"),
    ];
    for (arguments, what) in needed {
        if !works("cargo", &arguments) {
            return Err(format!("fuzzing needs {what}"));
        }
    }
    Ok(())
}
