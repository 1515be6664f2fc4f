//! The protocol crates take bytes and a time and return bytes and a deadline: no clock, no socket,
//! no thread, no file. They are `no_std`, so none of those can be named; here is the proof.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::cargo;
use crate::outcome::Outcome;
use crate::process::{output, run};
use crate::tree::Tree;

/// The protocol crates.
const CRATES: [&str; 8] = ["wire", "lro", "gso", "degen", "iface", "tcp", "handoff", "rdma"];
/// What they need beside each other: mathematics and a keyed hash, without std.
const EXTERNAL: [&str; 2] = ["libm", "siphasher"];
const WASM: &str = "wasm32-unknown-unknown";

/// A library with a panic handler of its own. With `std` anywhere among what it links there are
/// two, which the compiler refuses.
const WITHOUT_STD: &str = "\
#![no_std]
extern crate alloc;
extern crate degen;
extern crate gso;
extern crate handoff;
extern crate iface;
extern crate lro;
extern crate rdma;
extern crate tcp;
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
        depends_on_pure_crates_only(tree, name)?;
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

fn depends_on_pure_crates_only(tree: &Tree, name: &str) -> Result<(), String> {
    let arguments = ["tree", "--edges", "normal,build", "--prefix", "none", "--package", name];
    let listed = output(cargo(tree).args(arguments))?;
    let mut dependencies = listed.lines().filter_map(|line| line.split_whitespace().next());
    match dependencies.find(|name| !CRATES.contains(name) && !EXTERNAL.contains(name)) {
        Some(other) => Err(format!("{name} depends on {other}, which is no protocol crate")),
        None => Ok(()),
    }
}

/// Builds [`WITHOUT_STD`] as a package of its own, with the crates as its dependencies.
fn links_without_std(tree: &Tree) -> Result<(), String> {
    let scratch = Scratch::new("purity")?;
    let write = |name: &str, text: &str| {
        let path = scratch.path().join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    write("without_std.rs", WITHOUT_STD)?;
    write("Cargo.toml", &manifest(tree))?;
    // The same versions as the workspace's, which are here already.
    write("Cargo.lock", &tree.read("Cargo.lock")?)?;
    let mut build = cargo(tree);
    build.args(["build", "--quiet", "--offline", "--manifest-path"]);
    build.arg(scratch.path().join("Cargo.toml"));
    build.arg("--target-dir").arg(scratch.path().join("target"));
    run(&mut build).map_err(|error| format!("the protocol crates need std: {error}"))
}

fn manifest(tree: &Tree) -> String {
    let mut manifest = "\
[package]
name = \"without-std\"
version = \"0.0.0\"
edition = \"2024\"
[lib]
path = \"without_std.rs\"
crate-type = [\"staticlib\"]
[workspace]
[profile.dev]
panic = \"abort\"
[dependencies]
"
    .to_owned();
    for name in CRATES {
        // Rust writes a path as TOML wants it.
        manifest += &format!("{name} = {{ path = {:?} }}\n", tree.path(&format!("crates/{name}")));
    }
    manifest
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
