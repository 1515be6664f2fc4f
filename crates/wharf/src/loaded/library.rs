//! The libraries that are loaded into programs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use handoff::session::{BUILD, BUILD_NOTE, VERSION};

use super::elf::{self, Kind, Note};
use super::{LIBRARY, RDMA_LIBRARY};
use crate::error::Error;

/// Names a library of handoff to use in place of that beside wharf, and one of verbs.
const VARIABLE: &str = "WHARF_LIBRARY";
const RDMA_VARIABLE: &str = "WHARF_RDMA_LIBRARY";

/// Whether there is such a file.
pub(crate) fn exists(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file())
}

/// The library of handoff beside this program, or in the `lib` beside its folder, of the same build.
pub(crate) fn handoff_library() -> Result<PathBuf, Error> {
    checked(find(LIBRARY, VARIABLE)?, check)
}

/// That of verbs. It finds out itself whether the device speaks as it does.
pub(crate) fn rdma_library() -> Result<PathBuf, Error> {
    checked(find(RDMA_LIBRARY, RDMA_VARIABLE)?, |path| notes(path).map(drop))
}

fn checked(
    path: PathBuf,
    check: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, Error> {
    check(&path).map_err(|why| Error::Usage(format!("{} {why}", path.display())))?;
    Ok(path)
}

fn find(library: &str, variable: &str) -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(variable).map(PathBuf::from) {
        let none = || Error::Usage(format!("{variable}={}: there is no such file", path.display()));
        // The program may have another folder.
        return exists(&path).then(|| path.canonicalize().ok()).flatten().ok_or_else(none);
    }
    let own = env::current_exe().map_err(Error::Io)?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = [folder.join(library), folder.join("../lib").join(library)];
    let found = candidates.iter().find(|path| exists(path));
    found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| {
        Error::Usage(format!(
            "there is no {library} beside {}: build it with `cargo build --release`, or set {variable}",
            own.display()
        ))
    })
}

/// The notes of a library, or what keeps it from being loaded.
fn notes(path: &Path) -> Result<Vec<Note>, String> {
    let is_end = |c: char| c == ':' || c.is_ascii_whitespace();
    if path.to_str().is_none_or(|path| path.contains(is_end)) {
        return Err("has a name that LD_PRELOAD cannot have (a space, a colon): put it elsewhere"
            .to_owned());
    }
    match elf::kind(path) {
        Ok(Kind::Native(elf)) => Ok(elf.notes),
        Ok(_) => Err("is no library of this machine's kind".to_owned()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// What keeps the library of handoff from being loaded, or from being understood.
fn check(path: &Path) -> Result<(), String> {
    let notes = notes(path)?;
    let is_ours = |note: &&Note| note.name == BUILD_NOTE.as_bytes();
    match notes.iter().find(is_ours) {
        Some(note) if note.kind == u32::from(VERSION) && note.text == BUILD.as_bytes() => Ok(()),
        _ => Err(format!(
            "is of another build than this wharf ({BUILD}): use those of one build, as `cargo build \
             --release` makes them"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::elf::tests::{note, program};
    use super::*;

    #[test]
    fn a_library_of_another_build_is_refused() {
        let folder = env::temp_dir();
        let name = |name: &str| folder.join(format!("wharf-{name}-{}", std::process::id()));
        let says = |kind: u16, build: &str| {
            let path = name("library");
            let notes = [note(b"GNU", 3, b"id"), note(b"wharf", kind.into(), build.as_bytes())];
            std::fs::write(&path, program(&[(4, &notes.concat())])).unwrap();
            check(&path)
        };
        assert_eq!(says(VERSION, BUILD), Ok(()));
        for other in [says(VERSION + 1, BUILD), says(VERSION, "0.0.0")] {
            assert!(other.is_err_and(|why| why.contains("another build")));
        }
        std::fs::write(name("library"), "text").unwrap();
        assert!(check(&name("library")).is_err_and(|why| why.contains("no library")));
        std::fs::remove_file(name("library")).unwrap();
        assert!(check(&name("library")).is_err_and(|why| why.contains("cannot be read")));
        assert!(check(&name("a b")).is_err_and(|why| why.contains("LD_PRELOAD")));
    }
}
