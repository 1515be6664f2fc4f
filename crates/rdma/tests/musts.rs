//! `docs/rdma-musts.md` names tests that there are.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use std::path::Path;

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
            let source = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(source.contains(&format!("fn {test}(")), "{file} has no `{test}`");
            named += 1;
        }
    }
    assert!(named > 60, "{named}");
}
