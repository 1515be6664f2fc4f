//! Modules side by side, and circles of them.

use std::collections::{BTreeMap, BTreeSet};

use super::read::Name;

/// See the file's documentation.
#[derive(Debug)]
pub(super) struct Graph {
    edges: BTreeSet<(Name, Name)>,
}

/// What the children of one module use of each other, each with all that is below it.
pub(super) type Siblings = BTreeMap<String, BTreeSet<String>>;

impl Graph {
    pub(super) fn new(edges: BTreeSet<(Name, Name)>) -> Self {
        Graph { edges }
    }

    /// Of the children of `parent`.
    fn siblings(&self, parent: &[String]) -> Siblings {
        let mut siblings = Siblings::new();
        let child_of = |name: &Name| name.strip_prefix(parent)?.first().cloned();
        for (from, to) in &self.edges {
            let Some(from) = child_of(from) else { continue };
            let uses = siblings.entry(from.clone()).or_default();
            if let Some(to) = child_of(to).filter(|to| *to != from) {
                uses.insert(to);
            }
        }
        siblings
    }

    fn parents(&self) -> BTreeSet<Name> {
        let parent = |(from, _): &(Name, Name)| Some(from.split_last()?.1.to_vec());
        self.edges.iter().filter_map(parent).collect()
    }

    /// Each circle in words: its modules, and who uses whom.
    pub(super) fn circles(&self) -> Vec<String> {
        let mut words = Vec::new();
        for parent in self.parents() {
            let siblings = self.siblings(&parent);
            for circle in circles(&siblings) {
                let uses = |name: &String| {
                    let used: Vec<&str> =
                        siblings[name].intersection(&circle).map(String::as_str).collect();
                    format!("{name} uses {}", used.join(", "))
                };
                let uses: Vec<String> = circle.iter().map(uses).collect();
                let place = if parent.is_empty() { "crate" } else { &parent.join("::") };
                words.push(format!("in {place}: {}", uses.join("; ")));
            }
        }
        words
    }

    /// A line for each module, those that use others above these.
    pub(super) fn picture(&self) -> String {
        let mut text = String::new();
        self.draw(&[], &mut text);
        text
    }

    fn draw(&self, parent: &[String], text: &mut String) {
        let siblings = self.siblings(parent);
        for name in order(&siblings) {
            text.push_str(&line(&siblings, &name, parent.len()));
            self.draw(&[parent, &[name]].concat(), text);
        }
    }
}

/// A line for each of the siblings.
pub(super) fn lines(siblings: &Siblings) -> String {
    order(siblings).iter().map(|name| line(siblings, name, 0)).collect()
}

fn line(siblings: &Siblings, name: &str, depth: usize) -> String {
    let uses: Vec<&str> = siblings[name].iter().map(String::as_str).collect();
    let arrow = if uses.is_empty() { "" } else { " -> " };
    format!("{}{name}{arrow}{}\n", "  ".repeat(depth), uses.join(" "))
}

/// The sets of more than one that reach each other.
fn circles(siblings: &Siblings) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> =
        siblings.keys().map(|name| (name, reached(siblings, name))).collect();
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for name in siblings.keys() {
        let back = reach[name].iter().filter(|other| reach[**other].contains(name));
        let circle: BTreeSet<String> = back.map(|name| (*name).clone()).collect();
        if circle.len() > 1 && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

/// What `name` uses, directly or not.
fn reached<'a>(siblings: &'a Siblings, name: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = siblings[name].iter().collect();
    while let Some(name) = next.pop() {
        if reached.insert(name) {
            next.extend(siblings.get(name).into_iter().flatten());
        }
    }
    reached
}

/// Those that use others before these; else by name.
fn order(siblings: &Siblings) -> Vec<String> {
    let mut left: BTreeSet<&String> = siblings.keys().collect();
    let mut order = Vec::new();
    while !left.is_empty() {
        let is_used = |name: &&&String| {
            left.iter().any(|other| other != *name && siblings[*other].contains(**name))
        };
        // In a circle each is used: the first by name then.
        let next = left.iter().find(|name| !is_used(name)).or(left.first()).copied();
        let Some(next) = next else { break };
        left.remove(next);
        order.push(next.clone());
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(edges: &[(&str, &str)]) -> Graph {
        let name = |text: &str| text.split("::").map(str::to_owned).collect::<Name>();
        let all = edges.iter().flat_map(|(from, to)| {
            [(name(from), name(from)), (name(to), name(to)), (name(from), name(to))]
        });
        Graph::new(all.collect())
    }

    #[test]
    fn a_circle_is_seen_through_what_is_below() {
        let circles = graph(&[("a::x", "b"), ("b::y", "c"), ("c", "a"), ("d", "a")]).circles();
        assert_eq!(circles, ["in crate: a uses b; b uses c; c uses a"]);
        let circles = graph(&[("a::x", "a::y"), ("a::y::z", "a::x")]).circles();
        assert_eq!(circles, ["in a: x uses y; y uses x"]);
    }

    #[test]
    fn a_parent_and_its_child_are_no_circle() {
        assert!(graph(&[("a", "a::x"), ("a::x", "a"), ("a::x", "b")]).circles().is_empty());
    }

    #[test]
    fn a_module_stands_above_what_it_uses() {
        let picture = graph(&[("a", "c"), ("b", "a"), ("c::x", "d"), ("c::w", "c::x")]).picture();
        assert_eq!(picture, "b -> a\na -> c\nc -> d\n  w -> x\n  x\nd\n");
    }
}
