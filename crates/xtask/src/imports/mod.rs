//! Which crate and which module uses which: what the picture in `docs/modules.md` shows, and that there
//! is no circle.
//!
//! A module and those below it may use each other. Seen from their parent, modules side by side, each
//! with all that is below it, may not use each other in a circle.

mod graph;
mod read;
mod resolve;

use std::collections::{BTreeMap, BTreeSet};

use crate::Failure;
use crate::outcome::Outcome;
use crate::tree::Tree;
use graph::Graph;

/// Where the picture stands.
const PICTURE: &str = "docs/modules.md";

const HEAD: &str = "\
# Crates and modules, and what each uses

Written by `cargo xtask imports --write` from the sources, and compared with them by `cargo xtask check`. What
is used stands below what uses it. Not shown is what a module uses of the modules that it lies in or that lie
in it; tests are left out.
";

/// What one crate is made of.
struct Crate {
    /// Crates of this workspace that it depends on.
    uses: BTreeSet<String>,
    modules: Graph,
}

type Crates = BTreeMap<String, Crate>;

/// That no crate has a circle, and that the picture is what the sources say.
pub(crate) fn check(tree: &Tree) -> Outcome {
    let crates = crates(tree)?;
    let circles = circles(&crates);
    if !circles.is_empty() {
        let circles = circles.join("\n    ");
        return Err(format!("modules that use each other in a circle:\n    {circles}"));
    }
    if tree.read(PICTURE)? != picture(&crates) {
        return Err(format!("{PICTURE} is not what the sources say: cargo xtask imports --write"));
    }
    Ok(Vec::new())
}

/// `cargo xtask imports`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let tree = Tree::of_this_build();
    let crates = crates(&tree).map_err(Failure::Failed)?;
    match arguments {
        [] => print!("{}", picture(&crates)),
        ["--circles"] => circles(&crates).iter().for_each(|circle| println!("{circle}")),
        ["--write"] => std::fs::write(tree.path(PICTURE), picture(&crates))
            .map_err(|error| Failure::Failed(format!("{PICTURE}: {error}")))?,
        _ => return Err(Failure::Usage("imports takes --circles, --write or nothing".to_owned())),
    }
    Ok(())
}

fn crates(tree: &Tree) -> Result<Crates, String> {
    let manifests = tree.files("crates", "Cargo.toml")?;
    let directories: Vec<&str> =
        manifests.iter().filter_map(|manifest| manifest.strip_suffix("/Cargo.toml")).collect();
    let names: BTreeSet<&str> = directories.iter().map(|directory| name(directory)).collect();
    let mut crates = Crates::new();
    for directory in directories {
        let modules = read::modules(tree, &format!("{directory}/src"))?;
        let mut uses = dependencies(&tree.read(&format!("{directory}/Cargo.toml"))?);
        uses.retain(|used| names.contains(used.as_str()));
        let modules = Graph::new(resolve::edges(&modules));
        crates.insert(name(directory).to_owned(), Crate { uses, modules });
    }
    Ok(crates)
}

/// The last part of a path.
fn name(directory: &str) -> &str {
    directory.rsplit('/').next().unwrap_or(directory)
}

/// What stands under `[dependencies]` in a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest.split_once("\n[dependencies]\n").map_or("", |(_, section)| section);
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let words = lines.filter_map(|line| line.split(['.', '=', ' ']).next());
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn circles(crates: &Crates) -> Vec<String> {
    let of_crate = |(name, one): (&String, &Crate)| -> Vec<String> {
        one.modules.circles().iter().map(|circle| format!("{name}: {circle}")).collect()
    };
    crates.iter().flat_map(of_crate).collect()
}

fn picture(crates: &Crates) -> String {
    let uses = crates.iter().map(|(name, one)| (name.clone(), one.uses.clone())).collect();
    let mut text = format!("{HEAD}\n## Crates\n\n```\n{}```\n", graph::lines(&uses));
    for (name, one) in crates {
        let modules = one.modules.picture();
        if !modules.is_empty() {
            text.push_str(&format!("\n## {name}\n\n```\n{modules}```\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::dependencies;

    #[test]
    fn dependencies_are_those_of_the_library() {
        let manifest = "[package]\nname = \"x\"\n\n[dependencies]\nwire.workspace = true\n\
                        lro = { path = \"..\" }\n\n[dev-dependencies]\ngso.workspace = true\n";
        assert_eq!(dependencies(manifest).into_iter().collect::<Vec<_>>(), ["lro", "wire"]);
    }
}
