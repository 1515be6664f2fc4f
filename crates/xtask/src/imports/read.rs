//! The modules of a crate as their files have them: what they define, what they import, what paths
//! they use. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, UseTree};

use crate::tree::Tree;

/// The path of a module from the crate's root, which is empty.
pub(super) type Name = Vec<String>;

/// See the file's documentation. A module that lies in its parent's file counts as its parent's.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Names that it defines.
    pub(super) defines: BTreeSet<String>,
    /// Names that it imports, and their paths as they are written.
    pub(super) imports: BTreeMap<String, Vec<String>>,
    /// Paths of which it imports everything.
    pub(super) globs: Vec<Vec<String>>,
    /// All paths that it uses, as they are written.
    pub(super) uses: BTreeSet<Vec<String>>,
}

pub(super) type Modules = BTreeMap<Name, Module>;

/// The modules of the crate whose sources are in `directory`. A program beside a library counts as a
/// part of it.
pub(super) fn modules(tree: &Tree, directory: &str) -> Result<Modules, String> {
    let mut modules = Modules::new();
    for root in ["lib.rs", "main.rs"] {
        let file = format!("{directory}/{root}");
        if tree.path(&file).is_file() {
            read(tree, &file, directory, Name::new(), &mut modules)?;
        }
    }
    Ok(modules)
}

/// Reads `file`, which is the module `name`; the files of the modules below it are in `below`.
fn read(
    tree: &Tree,
    file: &str,
    below: &str,
    name: Name,
    into: &mut Modules,
) -> Result<(), String> {
    let text = tree.read(file)?;
    let parsed = syn::parse_file(&text).map_err(|error| format!("{file}: {error}"))?;
    let mut reader =
        Reader { module: into.remove(&name).unwrap_or_default(), children: Vec::new() };
    reader.visit_file(&parsed);
    let Reader { module, children } = reader;
    into.insert(name.clone(), module);
    for child in children {
        let path: Name = name.iter().chain([&child]).cloned().collect();
        let candidates = [format!("{below}/{child}.rs"), format!("{below}/{child}/mod.rs")];
        let found = candidates.iter().find(|path| Path::new(&tree.path(path)).is_file());
        let found = found.ok_or_else(|| format!("{file}: no file for mod {child}"))?;
        read(tree, found, &format!("{below}/{child}"), path, into)?;
    }
    Ok(())
}

struct Reader {
    module: Module,
    children: Vec<String>,
}

impl<'a> Visit<'a> for Reader {
    fn visit_item(&mut self, item: &'a Item) {
        if is_test(attributes(item)) {
            return;
        }
        if let Some(name) = defined(item) {
            self.module.defines.insert(name);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        match &item.content {
            None => self.children.push(item.ident.to_string()),
            Some(_) => visit::visit_item_mod(self, item),
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        self.import(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let words: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        if words.len() > 1 {
            self.module.uses.insert(words);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

impl Reader {
    fn import(&mut self, before: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(before, tree));
            }
            UseTree::Name(name) => self.bind(before, &name.ident.to_string(), None),
            UseTree::Rename(rename) => {
                self.bind(before, &rename.ident.to_string(), Some(rename.rename.to_string()));
            }
            UseTree::Glob(_) => {
                self.module.globs.push(before.clone());
                self.module.uses.insert(before.clone());
            }
        }
    }

    fn bind(&mut self, before: &[String], last: &str, name: Option<String>) {
        let path = match last {
            "self" => before.to_vec(),
            last => [before, &[last.to_owned()]].concat(),
        };
        let name = name.or_else(|| path.last().cloned()).unwrap_or_default();
        self.module.uses.insert(path.clone());
        self.module.imports.insert(name, path);
    }

    /// Paths in what is given to a macro: words with `::` between them.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(word) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(word.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                }
                _ => self.end(&mut path),
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.module.uses.insert(path);
        }
    }
}

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    let says_test = |attribute: &&Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == "test")
    };
    attributes.iter().any(|attribute| says_test(&attribute))
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item gives to something, other than a module.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
