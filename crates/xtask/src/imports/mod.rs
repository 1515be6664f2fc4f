//! Which module uses which, and that there is no circle.
//!
//! A module and those below it may use each other. Seen from their parent, modules side by side, each
//! with all that is below it, may not use each other in a circle.

mod graph;
mod read;
mod resolve;

use std::collections::BTreeMap;

use crate::Failure;
use crate::outcome::Outcome;
use crate::tree::Tree;
use graph::Graph;

/// That no crate has a circle.
pub(crate) fn check(tree: &Tree) -> Outcome {
    let crates = crates(tree)?;
    let circles = circles(&crates);
    match circles.is_empty() {
        true => Ok(Vec::new()),
        false => {
            Err(format!("modules that use each other in a circle:\n    {}", circles.join("\n    ")))
        }
    }
}

/// `cargo xtask imports`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let tree = Tree::of_this_build();
    let crates = crates(&tree).map_err(Failure::Failed)?;
    match arguments {
        [] => print!("{}", picture(&crates)),
        ["--circles"] => circles(&crates).iter().for_each(|circle| println!("{circle}")),
        _ => return Err(Failure::Usage("imports takes --circles or nothing".to_owned())),
    }
    Ok(())
}

/// The modules of each crate, by the crate's name.
fn crates(tree: &Tree) -> Result<BTreeMap<String, Graph>, String> {
    let mut crates = BTreeMap::new();
    for manifest in tree.files("crates", "Cargo.toml")? {
        let Some(directory) = manifest.strip_suffix("/Cargo.toml") else { continue };
        let name = directory.rsplit('/').next().unwrap_or(directory).to_owned();
        let modules = read::modules(tree, &format!("{directory}/src"))?;
        crates.insert(name, Graph::new(resolve::edges(&modules)));
    }
    Ok(crates)
}

fn circles(crates: &BTreeMap<String, Graph>) -> Vec<String> {
    let of_crate = |(name, graph): (&String, &Graph)| -> Vec<String> {
        graph.circles().iter().map(|circle| format!("{name}: {circle}")).collect()
    };
    crates.iter().flat_map(of_crate).collect()
}

fn picture(crates: &BTreeMap<String, Graph>) -> String {
    let mut text = String::new();
    for (name, graph) in crates {
        text.push_str(&format!("{name}\n{}\n", graph.picture()));
    }
    text
}
