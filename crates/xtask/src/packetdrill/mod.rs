//! A packetdrill binary and its scripts, which the user has, against the local kernel and against the
//! engine: what passes where, and why not.

mod one;
mod report;
mod unsupported;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cargo::cargo;
use crate::process::{is_installed, is_root, output};
use crate::tree::Tree;
use crate::{Failure, Failure::Failed, Failure::Usage};

use one::{Stack, Verdict};

/// Scripts that run at once. They sleep most of the time, but their timing suffers from company.
const AT_ONCE: usize = 2;

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    binary: PathBuf,
    scripts: PathBuf,
    report: Option<PathBuf>,
}

/// What became of a script.
#[derive(Debug, Clone)]
pub(crate) struct Both {
    name: String,
    text: String,
    kernel: Verdict,
    engine: Verdict,
}

/// `cargo xtask packetdrill --binary PATH --scripts DIR [--report FILE]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let settings = read(arguments)?;
    let scripts = look(&settings)?;
    let tree = Tree::of_this_build();
    let object = build(&tree).map_err(Failed)?;
    let results = run_all(&settings, &scripts, &object);
    print!("{}", report::summary(&results));
    if let Some(file) = &settings.report {
        let table = report::table(&results);
        std::fs::write(file, table).map_err(|why| Failed(format!("{}: {why}", file.display())))?;
        println!("the table is in {}", file.display());
    } else {
        print!("\n{}", report::table(&results));
    }
    Ok(())
}

fn read(arguments: &[&str]) -> Result<Settings, Failure> {
    let (mut binary, mut scripts, mut report) = (None, None, None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let place = match *argument {
            "--binary" => &mut binary,
            "--scripts" => &mut scripts,
            "--report" => &mut report,
            other => return Err(Usage(format!("packetdrill has no option `{other}`"))),
        };
        let value = rest.next().ok_or_else(|| Usage(format!("{argument} takes a path")))?;
        *place = Some(PathBuf::from(value));
    }
    let binary = binary.ok_or_else(|| Usage("which packetdrill? --binary PATH".to_owned()))?;
    let scripts = scripts.ok_or_else(|| Usage("which scripts? --scripts DIR".to_owned()))?;
    Ok(Settings { binary, scripts, report })
}

/// Everything that is needed is there; gives the scripts.
fn look(settings: &Settings) -> Result<Vec<PathBuf>, Failure> {
    if !settings.binary.is_file() {
        let path = settings.binary.display();
        return Err(Failed(format!(
            "{path} is no file: build packetdrill from its sources first (google/packetdrill)"
        )));
    }
    let mut scripts = Vec::new();
    collect(&settings.scripts, &mut scripts)
        .map_err(|why| Failed(format!("{}: {why}", settings.scripts.display())))?;
    scripts.sort();
    if scripts.is_empty() {
        let path = settings.scripts.display();
        return Err(Failed(format!("there is no script (*.pkt) in {path}")));
    }
    if !is_root() {
        let why = "packetdrill needs root: network namespaces, TUN and real-time priority";
        return Err(Failed(why.to_owned()));
    }
    let missing: Vec<&str> = ["unshare", "ip", "sysctl", "python3"]
        .into_iter()
        .filter(|name| !is_installed(name))
        .collect();
    if missing.is_empty() {
        return Ok(scripts);
    }
    Err(Failed(format!("not installed: {}", missing.join(", "))))
}

/// Scripts at a path: itself, or all below it.
fn collect(path: &Path, out: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        std::fs::metadata(path)?;
        out.push(path.canonicalize()?);
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        let path = entry?.path();
        if path.is_dir() || path.extension().is_some_and(|extension| extension == "pkt") {
            collect(&path, out)?;
        }
    }
    Ok(())
}

/// Builds the shared object; gives where it is.
fn build(tree: &Tree) -> Result<PathBuf, String> {
    println!("building the engine as a shared object");
    let mut build = cargo(tree);
    build.args(["build", "--release", "--package", "packetdrill-so"]);
    build.arg("--message-format=json-render-diagnostics");
    let said = output(&mut build)?;
    let file = said.split('"').find(|word| word.ends_with("/libwharf_packetdrill.so"));
    file.map(PathBuf::from).ok_or_else(|| "cargo has built no libwharf_packetdrill.so".to_owned())
}

/// Every script on both, some at once.
fn run_all(settings: &Settings, scripts: &[PathBuf], object: &Path) -> Vec<Both> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let base = settings.scripts.canonicalize().unwrap_or_else(|_| settings.scripts.clone());
    let work = || {
        while let Some(path) = scripts.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = path.strip_prefix(&base).ok().filter(|rest| !rest.as_os_str().is_empty());
            let name = name.unwrap_or(path).display().to_string();
            let kernel = one::run(&settings.binary, path, Stack::Kernel, object);
            let engine = one::run(&settings.binary, path, Stack::Engine, object);
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let number = done.len() + 1;
            println!("[{number}/{}] {name}: kernel {kernel}, wharf {engine}", scripts.len());
            done.push(Both { name, text, kernel, engine });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by(|a, b| a.name.cmp(&b.name));
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_before_anything_is_built() {
        for arguments in [&["--binary", "x"][..], &["--scripts", "x"], &["--binary"], &["x"]] {
            assert!(matches!(run(arguments), Err(Usage(_))), "{arguments:?}");
        }
        let words = ["--binary", "/no/such/packetdrill", "--scripts", "/"];
        let Err(Failed(why)) = run(&words) else { panic!("it ran") };
        assert!(why.contains("/no/such/packetdrill is no file"), "{why}");
        let words = ["--binary", "/bin/sh", "--scripts", "/no/such/directory"];
        let Err(Failed(why)) = run(&words) else { panic!("it ran") };
        assert!(why.starts_with("/no/such/directory: "), "{why}");
    }
}
