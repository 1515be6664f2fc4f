//! The program that is to be run: its file, and how it is reached.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use sys::executable::{Gain, gain};

use super::Bypass;
use crate::error::Error;
use crate::loaded::elf::{self, Elf, Kind};
use crate::loaded::library::exists;

/// Interpreters of interpreters that the kernel goes through (exec_binprm).
const DEPTH: usize = 5;
/// glibc's dynamic linker: the library is of glibc.
const LINKER: &[u8] = b"ld-linux-x86-64.so.2";
/// The owner of a note that Go's linker writes.
const GO: &[u8] = b"Go";

/// The program's file, as a shell finds it.
pub(super) fn find(program: &OsStr) -> Result<PathBuf, Error> {
    let path = Path::new(program);
    let none = || Error::Usage(format!("there is no program {}", path.display()));
    if path.components().count() > 1 || program.as_bytes().contains(&b'/') {
        return exists(path).then(|| path.to_owned()).ok_or_else(none);
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_executable = |path: &PathBuf| {
        let mode = fs::metadata(path).map_or(0, |file| file.permissions().mode());
        exists(path) && mode & 0o111 != 0
    };
    env::split_paths(&folders).map(|folder| folder.join(path)).find(is_executable).ok_or_else(none)
}

/// What a program is to be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Connections on the NIC, by the bypass that was asked for, if one was.
    Handoff(Option<Bypass>),
    /// Verbs, by a library.
    Verbs,
}

/// How this program is reached: as was asked for, or else by a library, if one is loaded into it, and by pairs if not.
pub(super) fn check(path: &Path, purpose: Purpose) -> Result<Bypass, Error> {
    let refuse =
        |why: &str| Err(Error::Usage(format!("{} cannot be run so: {why}", path.display())));
    let mut path = path.to_owned();
    // Of a script it is its interpreter that is run.
    let mut whose = String::new();
    for _ in 0..DEPTH {
        let kind = match elf::kind(&path) {
            Ok(kind) => kind,
            Err(error) => {
                let name = path.display();
                return refuse(&format!("{name} cannot be read, to see what it is: {error}"));
            }
        };
        let line = match kind {
            Kind::Script(line) => line,
            Kind::Native(elf) => {
                let way = match gains(&path, purpose) {
                    Some(why) => Err(why),
                    None => way(&elf, purpose),
                };
                return way.or_else(|why| refuse(&format!("{whose}{why}")));
            }
            Kind::Foreign => {
                return refuse(&format!(
                    "{whose}it is of another kind than {}, of 32 bits or for another machine, and neither is the \
                     library loaded into it nor are its system calls known: build it for this machine",
                    crate::loaded::LIBRARY
                ));
            }
            Kind::Other => {
                return refuse(&format!("{whose}it is neither a program (ELF) nor a script (#!)"));
            }
        };
        let Some((next, argument)) = interpreter(&line) else {
            return refuse(&format!("{whose}it is a script without an interpreter (#!)"));
        };
        // What env(1) runs is looked at instead, where that is known.
        let by_env = argument.filter(|_| next.file_name() == Some(OsStr::new("env")));
        let by_env = by_env.and_then(|argument| find(&argument).ok());
        path = by_env.unwrap_or(next);
        whose = format!("of its interpreter {}: ", path.display());
    }
    refuse("its interpreters are scripts, too many of them")
}

/// How a program is reached, or why it cannot be, and what to do.
fn way(elf: &Elf, purpose: Purpose) -> Result<Bypass, String> {
    let Purpose::Handoff(asked) = purpose else {
        return match loads_none(elf) {
            None => Ok(Bypass::Preload),
            Some(why) => Err(format!(
                "{why}; verbs are reached by a library alone: build it with glibc, linked dynamically"
            )),
        };
    };
    let why = loads_none(elf).or_else(|| calls_past(elf));
    match (asked, why) {
        (Some(Bypass::Preload), Some(why)) => {
            Err(format!("{why}: leave --bypass out, or use --bypass pair"))
        }
        // Its linker would end it, for a library that it cannot load.
        (Some(Bypass::Both), Some(why)) if other_linker(elf).is_some() => {
            Err(format!("{why}: use --bypass pair"))
        }
        (Some(asked), _) => Ok(asked),
        (None, Some(_)) => Ok(Bypass::Pair),
        (None, None) => Ok(Bypass::Preload),
    }
}

/// Why a library is not loaded into this program.
fn loads_none(elf: &Elf) -> Option<String> {
    if elf.interpreter.is_none() {
        return Some("it is statically linked, and then nothing is loaded into it".to_owned());
    }
    let linker = String::from_utf8_lossy(other_linker(elf)?);
    Some(format!("it is linked with another libc than glibc ({linker}), which the library needs"))
}

/// Why a library that is loaded into it does not see its system calls.
fn calls_past(elf: &Elf) -> Option<String> {
    elf.has_note_of(GO).then(|| {
        "it is written in Go, which makes its system calls itself, past the library".to_owned()
    })
}

/// Its dynamic linker, if that is another libc's.
fn other_linker(elf: &Elf) -> Option<&[u8]> {
    let linker = elf.interpreter.as_deref()?;
    let name = Path::new(OsStr::from_bytes(linker)).file_name();
    (name != Some(OsStr::from_bytes(LINKER))).then_some(linker)
}

/// What rights its user gains by this program, with which it is out of reach, and what to do.
fn gains(path: &Path, purpose: Purpose) -> Option<String> {
    let gain = match gain(path) {
        Ok(gain) => gain?,
        Err(error) => return Some(format!("what rights it gives is not known: {error}")),
    };
    let out_of_reach = match purpose {
        Purpose::Handoff(Some(Bypass::Pair)) => {
            "with other rights than its supervisor's it is out of reach"
        }
        _ => "into a program that gives its user other rights nothing is loaded (ld.so(8))",
    };
    let remedy = match gain {
        Gain::User => format!("run wharf as {}, its owner", owner(path)),
        Gain::Group => "run a copy of it without that bit".to_owned(),
        Gain::Capabilities => "run wharf as root, or a copy of it without these".to_owned(),
    };
    Some(format!("{gain}, and {out_of_reach}: {remedy}"))
}

/// The owner of a file.
fn owner(path: &Path) -> String {
    match fs::metadata(path).map_or(0, |file| file.uid()) {
        0 => "root".to_owned(),
        uid => format!("user {uid}"),
    }
}

/// The interpreter that a script's first line names, and the program in what is given to it first, if it is env(1) or the
/// like: options and assignments stand before that.
fn interpreter(line: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let first = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
    let is_program = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
    let argument = words.find(is_program).map(|word| OsString::from_vec(word.to_vec()));
    Some((first, argument))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loaded::elf::tests::{note, program};

    /// A folder of files that are executable.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = env::temp_dir().join(format!("wharf-run-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }

        fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Why no library is loaded into it.
    fn refusal(path: &Path) -> String {
        let checked = check(path, Purpose::Handoff(Some(Bypass::Preload)));
        checked.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn what_loads_no_library_is_refused_and_so_is_a_script_of_it() {
        const PT_INTERP: u32 = 3;
        const PT_NOTE: u32 = 4;
        let folder = Folder::new("kinds");
        let (glibc, musl) = (b"/lib64/ld-linux-x86-64.so.2\0", b"/lib/ld-musl-x86_64.so.1\0");
        let go = note(b"Go", 4, b"id");
        let good = program(&[(PT_INTERP, glibc), (PT_NOTE, &note(b"GNU", 3, b"id"))]);
        let mut foreign = good.clone();
        foreign[18] = 183;
        let files = [
            ("good", good, ""),
            ("static", program(&[(1, b"code")]), "it is statically linked"),
            ("musl", program(&[(PT_INTERP, musl)]), "another libc than glibc (/lib/ld-musl"),
            ("go", program(&[(PT_INTERP, glibc), (PT_NOTE, &go)]), "it is written in Go"),
            ("foreign", foreign, "of 32 bits or for another machine"),
            ("text", b"exit\n".to_vec(), "neither a program (ELF) nor a script"),
            ("nothing", b"#!\n".to_vec(), "a script without an interpreter"),
        ];
        for (name, bytes, part) in files {
            let path = folder.put(name, &bytes);
            let why = refusal(&path);
            assert!(why.contains(part) && why.is_empty() == part.is_empty(), "{name}: {why}");
            // What loads none is reached by pairs, if it can be run at all.
            let by_itself = check(&path, Purpose::Handoff(None)).ok();
            let expected = match name {
                "good" => Some(Bypass::Preload),
                "static" | "musl" | "go" => Some(Bypass::Pair),
                _ => None,
            };
            assert_eq!(by_itself, expected, "{name}");
            let by_pairs = check(&path, Purpose::Handoff(Some(Bypass::Pair))).ok();
            assert_eq!(by_pairs, expected.map(|_| Bypass::Pair), "{name}");
            let by_both = check(&path, Purpose::Handoff(Some(Bypass::Both))).ok();
            let could = expected.is_some() && name != "musl";
            assert_eq!(by_both, could.then_some(Bypass::Both), "{name}");
            // Verbs are calls of a library's, however the program makes its system calls.
            let for_verbs = check(&path, Purpose::Verbs);
            let could = matches!(name, "good" | "go");
            assert_eq!(for_verbs.as_ref().ok(), could.then_some(&Bypass::Preload), "{name}");
            if let "static" | "musl" = name {
                assert!(why.ends_with("leave --bypass out, or use --bypass pair"), "{why}");
                let why = for_verbs.unwrap_err().to_string();
                assert!(why.ends_with("build it with glibc, linked dynamically"), "{why}");
            }
            let line = format!("#!{} -x\n", path.display());
            let why = refusal(&folder.put("script", line.as_bytes()));
            assert!(why.contains(part), "{name} by a script: {why}");
            assert!(why.is_empty() || why.contains(&path.display().to_string()), "{why}");
            let line = format!("#!/usr/bin/env -S A=b {} -x\n", path.display());
            let why = refusal(&folder.put("by-env", line.as_bytes()));
            assert!(why.contains(part) && !why.contains('\n'), "{name} by env: {why}");
        }
        let own = format!("#!{}\n", folder.0.join("endless").display());
        assert!(refusal(&folder.put("endless", own.as_bytes())).contains("too many"));
        let gone = folder.put("gone", b"#!/no/such/interpreter\n");
        assert!(
            refusal(&gone).contains("/no/such/interpreter cannot be read"),
            "{}",
            refusal(&gone)
        );
        assert!(refusal(&PathBuf::from("/bin/sh")).is_empty());
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        assert!(find(OsStr::new("sh")).is_ok_and(|path| path.is_absolute()));
        for none in ["no-such-program", "./no-such-program", "/etc", ""] {
            assert!(find(OsStr::new(none)).is_err(), "{none}");
        }
    }
}
