//! The protocol crates take bytes and a time and return bytes and a deadline: no clock, no socket,
//! no thread, no file. They are `no_std`, so none of those can be named; here is the proof.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::check::Outcome;
use crate::process::{output, run};
use crate::tree::Tree;

/// The protocol crates; each may need those before it.
const CRATES: [&str; 3] = ["wire", "lro", "gso"];
const WASM: &str = "wasm32-unknown-unknown";

/// A library with a panic handler of its own. With `std` anywhere among what it links there are
/// two, which the compiler refuses.
const WITHOUT_STD: &str = "\
#![no_std]
extern crate alloc;
extern crate gso;
extern crate lro;
extern crate wire;
struct Nothing;
unsafe impl alloc::alloc::GlobalAlloc for Nothing {
    unsafe fn alloc(&self, _: core::alloc::Layout) -> *mut u8 { core::ptr::null_mut() }
    unsafe fn dealloc(&self, _: *mut u8, _: core::alloc::Layout) {}
}
#[global_allocator]
static NOTHING: Nothing = Nothing;
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }
";

pub(crate) fn check(tree: &Tree) -> Outcome {
    for name in CRATES {
        says_no_std(tree, name)?;
        depends_on_protocol_crates_only(tree, name)?;
    }
    links_without_std(tree)?;
    if !has_target(WASM) {
        return Ok(vec![format!("the build for {WASM}: `rustup target add {WASM}`")]);
    }
    for name in CRATES {
        run(cargo(tree).args(["build", "--quiet", "--target", WASM, "--package", name]))?;
    }
    Ok(Vec::new())
}

fn says_no_std(tree: &Tree, name: &str) -> Result<(), String> {
    let root = format!("crates/{name}/src/lib.rs");
    if tree.read(&root)?.lines().any(|line| line.trim() == "#![no_std]") {
        return Ok(());
    }
    Err(format!("{root} does not say #![no_std]"))
}

fn depends_on_protocol_crates_only(tree: &Tree, name: &str) -> Result<(), String> {
    let arguments = ["tree", "--edges", "normal,build", "--prefix", "none", "--package", name];
    let listed = output(cargo(tree).args(arguments))?;
    let dependencies = listed.lines().filter_map(|line| line.split_whitespace().next());
    match dependencies.into_iter().find(|dependency| !CRATES.contains(dependency)) {
        Some(other) => Err(format!("{name} depends on {other}, which is no protocol crate")),
        None => Ok(()),
    }
}

/// Compiles the crates with nothing but rustc, and links them into [`WITHOUT_STD`].
fn links_without_std(tree: &Tree) -> Result<(), String> {
    let scratch = Scratch::new("purity")?;
    for (at, name) in CRATES.into_iter().enumerate() {
        let mut library = rustc(scratch.path(), &CRATES[..at]);
        library.args(["--crate-type=rlib", "--crate-name", name]);
        run(library.arg(tree.path(&format!("crates/{name}/src/lib.rs"))))?;
    }
    let probe = scratch.path().join("without_std.rs");
    fs::write(&probe, WITHOUT_STD).map_err(|error| format!("{}: {error}", probe.display()))?;
    let mut link = rustc(scratch.path(), &CRATES);
    link.args(["--crate-type=staticlib", "-Cpanic=abort"]);
    run(link.arg(probe)).map_err(|error| format!("the protocol crates need std: {error}"))
}

/// The compiler alone, knowing `libraries` built before in the directory that it writes to.
fn rustc(directory: &Path, libraries: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    command.args(["--edition=2024", "--cap-lints=allow", "--out-dir"]).arg(directory);
    command.arg("-L").arg(directory);
    for name in libraries {
        let file = directory.join(format!("lib{name}.rlib"));
        command.arg("--extern").arg(format!("{name}={}", file.display()));
    }
    command
}

fn has_target(target: &str) -> bool {
    let directory =
        output(Command::new("rustc").args(["--print", "target-libdir", "--target", target]));
    directory.is_ok_and(|directory| Path::new(directory.trim()).is_dir())
}

/// A directory that goes when this does.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("wharf-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed lies in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
