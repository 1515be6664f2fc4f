//! The project's directory.

use std::fs;
use std::path::{Path, PathBuf};

/// The project, by the directory that the workspace's `Cargo.toml` is in.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree that this program was built from.
    pub(crate) fn of_this_build() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self { root: here.ancestors().nth(2).unwrap_or(here).to_owned() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A path inside the tree.
    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    /// The text of a file of the tree.
    pub(crate) fn read(&self, relative: &str) -> Result<String, String> {
        fs::read_to_string(self.path(relative)).map_err(|error| format!("{relative}: {error}"))
    }

    /// Every file below `directory` whose name ends in `suffix`, by its path in the tree, sorted.
    pub(crate) fn files(&self, directory: &str, suffix: &str) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        collect(&self.path(directory), suffix, &mut found)?;
        let relative = |path: PathBuf| {
            let path = path.strip_prefix(&self.root).unwrap_or(&path).to_owned();
            path.to_string_lossy().into_owned()
        };
        let mut found: Vec<String> = found.into_iter().map(relative).collect();
        found.sort();
        Ok(found)
    }
}

/// Build products and what fuzzing leaves, by the names in `.gitignore`.
const NOT_SOURCE: [&str; 3] = ["target", "corpus", "artifacts"];

fn collect(directory: &Path, suffix: &str, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("{}: {error}", directory.display());
    for entry in fs::read_dir(directory).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !NOT_SOURCE.contains(&&*name) {
                collect(&path, suffix, found)?;
            }
        } else if name.ends_with(suffix) {
            found.push(path);
        }
    }
    Ok(())
}
