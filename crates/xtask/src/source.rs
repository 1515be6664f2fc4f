//! What can be told from the text of the sources.

use crate::outcome::Outcome;
use crate::tree::Tree;

/// One concern a file; a file that grows past this has two.
const MOST_LINES: usize = 600;

/// Where unsafe code may be: the operating system's calls, SIMD, and what C calls.
const UNSAFE_ROOMS: [&str; 7] = [
    "crates/sys/",
    "crates/wire/src/bytes.rs",
    "crates/wire/src/cache.rs",
    "crates/wire/src/checksum/x86.rs",
    // A table of C functions.
    "crates/packetdrill-so/",
    "crates/bypass/",
    // The C interface of libibverbs and librdmacm: pointers of programs.
    "crates/verbs/",
];

pub(crate) fn sizes(tree: &Tree) -> Outcome {
    let mut long = Vec::new();
    for directory in ["crates", "fuzz"] {
        for file in tree.files(directory, ".rs")? {
            let lines = tree.read(&file)?.lines().count();
            if lines > MOST_LINES {
                long.push(format!("{file} has {lines} lines"));
            }
        }
    }
    none(long)
}

/// The workspace's lints deny unsafe code; here is who may lift that, and that all obey.
pub(crate) fn unsafe_rooms(tree: &Tree) -> Outcome {
    let mut wrong = Vec::new();
    for file in tree.files("crates", ".rs")? {
        let in_room = UNSAFE_ROOMS.iter().any(|room| file.starts_with(room));
        if !in_room && lifts_the_ban(&tree.read(&file)?) {
            wrong.push(format!(
                "{file} allows unsafe code; only {} may",
                UNSAFE_ROOMS.join(" and ")
            ));
        }
    }
    let workspace = tree.read("Cargo.toml")?;
    if !workspace.lines().any(|line| line.starts_with("unsafe_code = \"deny\"")) {
        wrong.push("Cargo.toml does not deny unsafe_code in [workspace.lints.rust]".to_owned());
    }
    for manifest in tree.files("crates", "Cargo.toml")? {
        if !tree.read(&manifest)?.contains("[lints]\nworkspace = true") {
            wrong.push(format!("{manifest} does not take over the workspace's lints"));
        }
    }
    none(wrong)
}

/// Whether an attribute of the text turns the lint off again.
fn lifts_the_ban(text: &str) -> bool {
    let attributes = text.lines().map(str::trim).filter(|line| line.starts_with('#'));
    let mut lifting = attributes.filter(|line| {
        line.contains("unsafe_code")
            && ["allow(", "expect(", "warn("].iter().any(|level| line.contains(level))
    });
    lifting.next().is_some()
}

fn none(wrong: Vec<String>) -> Outcome {
    if wrong.is_empty() { Ok(Vec::new()) } else { Err(wrong.join("\n    ")) }
}

#[cfg(test)]
mod tests {
    use super::lifts_the_ban;

    #[test]
    fn lifting_the_ban_is_seen_and_keeping_it_is_not() {
        assert!(lifts_the_ban("//! Calls.\n#![allow(unsafe_code)] // why\n"));
        assert!(lifts_the_ban("fn f() {\n    #[expect(dead_code, unsafe_code)]\n}"));
        assert!(!lifts_the_ban("#![forbid(unsafe_code)]\n// allow(unsafe_code)\n"));
    }
}
