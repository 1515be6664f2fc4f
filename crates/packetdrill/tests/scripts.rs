//! Every script of `scripts/` against the engine.

use std::path::{Path, PathBuf};

/// All scripts below a directory, in order.
fn scripts(directory: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            scripts(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            out.push(path);
        }
    }
}

#[test]
fn every_script_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut all = Vec::new();
    scripts(&root, &mut all);
    assert!(all.len() >= 60, "{} scripts only", all.len());
    let mut failed = Vec::new();
    for path in &all {
        let text = std::fs::read_to_string(path).unwrap();
        if let Err(failure) = packetdrill::runner::run(&text) {
            let name = path.strip_prefix(&root).unwrap().display();
            failed.push(format!("{name}:{failure}"));
        }
    }
    assert!(failed.is_empty(), "{} of {} failed\n{}", failed.len(), all.len(), failed.join("\n"));
}

#[test]
fn every_script_cites_its_rfc() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut all = Vec::new();
    scripts(&root, &mut all);
    for path in all {
        let text = std::fs::read_to_string(&path).unwrap();
        let header: String = text.lines().take_while(|line| line.starts_with("//")).collect();
        assert!(header.contains("RFC "), "{} cites no RFC", path.display());
    }
}
