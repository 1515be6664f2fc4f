//! Which module a path leads to: the one that defines what it names, whatever it is imported through.

use std::collections::BTreeSet;

use super::read::{Modules, Name};

/// Imports that lead to imports, before a path is taken to lead nowhere.
const MOST_STEPS: usize = 16;

/// Which module uses which other: all pairs.
pub(super) fn edges(modules: &Modules) -> BTreeSet<(Name, Name)> {
    let mut edges = BTreeSet::new();
    for (name, module) in modules {
        for path in &module.uses {
            if let Some(target) = resolve(modules, name, path, MOST_STEPS)
                && target != *name
            {
                edges.insert((name.clone(), target));
            }
        }
        // Also a module that nothing uses and that uses nothing is in the picture.
        edges.insert((name.clone(), name.clone()));
    }
    edges
}

/// The module that has what `path`, as written in the module `from`, leads to.
fn resolve(modules: &Modules, from: &Name, path: &[String], steps: usize) -> Option<Name> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => descend(modules, Name::new(), rest, steps),
        "self" => descend(modules, from.clone(), rest, steps),
        "super" => {
            let (_, parent) = from.split_last()?;
            match rest.first().map(String::as_str) {
                Some("super") => resolve(modules, &parent.to_vec(), rest, steps),
                _ => descend(modules, parent.to_vec(), rest, steps),
            }
        }
        _ => {
            let module = modules.get(from)?;
            let is_known = module.imports.contains_key(first)
                || module.defines.contains(first)
                || modules.contains_key(&child(from, first));
            is_known.then(|| descend(modules, from.clone(), path, steps)).flatten()
        }
    }
}

fn descend(modules: &Modules, at: Name, path: &[String], steps: usize) -> Option<Name> {
    let Some((first, rest)) = path.split_first() else { return Some(at) };
    let steps = steps.checked_sub(1)?;
    let below = child(&at, first);
    if modules.contains_key(&below) {
        return descend(modules, below, rest, steps);
    }
    let module = modules.get(&at)?;
    if module.defines.contains(first) {
        return Some(at);
    }
    if let Some(import) = module.imports.get(first)
        && import.first() != Some(first)
    {
        let whole = [&import[..], rest].concat();
        return resolve(modules, &at, &whole, steps);
    }
    let through = |glob: &Vec<String>| {
        let whole = [&glob[..], path].concat();
        let found = resolve(modules, &at, &whole, steps)?;
        modules[&found].defines.contains(first).then_some(found)
    };
    module.globs.iter().find_map(through)
}

fn child(of: &Name, name: &str) -> Name {
    [&of[..], &[name.to_owned()]].concat()
}
