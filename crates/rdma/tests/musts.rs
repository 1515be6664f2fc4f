//! `docs/rdma-musts.md` names tests that there are.

use std::path::Path;

/// Whether a source has a test of this name: a function with `#[test]` before it, and nothing but comments and other
/// attributes between.
fn has_test(source: &str, test: &str) -> bool {
    let begins = |line: &&str| {
        let line = line.trim_start();
        let name = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ");
        name.and_then(|name| name.strip_prefix(test)).is_some_and(|rest| rest.starts_with('('))
    };
    let lines: Vec<&str> = source.lines().collect();
    let Some(at) = lines.iter().position(begins) else { return false };
    let above = lines[..at].iter().rev().map(|line| line.trim_start());
    above
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .any(|line| line == "#[test]")
}

#[test]
fn every_test_of_the_table_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(root.join("../../docs/rdma-musts.md")).unwrap();
    let mut named = 0;
    for line in table.lines().filter(|line| line.starts_with('|')) {
        // A file, and the test in it.
        let mut words = line.split('`').skip(1).step_by(2);
        while let Some(file) = words.next() {
            if !file.ends_with(".rs") {
                continue;
            }
            let test = words.next().unwrap();
            // Of another crate, or of this one.
            let path = if file.starts_with("crates/") { root.join("../..") } else { root.into() };
            let source = std::fs::read_to_string(path.join(file)).unwrap();
            assert!(has_test(&source, test), "{file} has no test `{test}`");
            named += 1;
        }
    }
    assert!(named > 80, "{named}");
}
