//! Which module names which other module, read from the source.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, Item, UseTree, visit::Visit};

/// The edges between the modules of a library. The module of `src/a/b.rs` is `a::b`, and the root has the empty name.
pub(crate) struct Names(BTreeSet<(String, String)>);

/// The room that contains a module: the first part of its name.
pub(crate) fn room(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

impl Names {
    pub(crate) fn read(src: &Path) -> Self {
        let mut files = Vec::new();
        for file in rust_files(src) {
            let path = file.strip_prefix(src).unwrap().with_extension("");
            let mut parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap()).collect();
            if matches!(parts.last(), Some(&"mod" | &"lib" | &"main")) {
                parts.pop();
            }
            files.push((parts.join("::"), fs::read_to_string(&file).unwrap()));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(m, code)| (&**m, &**code)).collect();
        Self::of(&files)
    }

    /// Reads these modules with their code.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut library = Library::default();
        let mut found = Vec::new();
        for (module, code) in files {
            let mut finder = Finder::new(module);
            finder.visit_file(&syn::parse_file(code).unwrap());
            library.modules.insert((*module).to_owned());
            library.tests.extend(finder.tests);
            library.reexports.extend(finder.reexports);
            found.extend(finder.paths);
        }
        let mut edges = BTreeSet::new();
        for (from, path) in found {
            let to = library.module_of(&path);
            if let Some(to) = to.filter(|to| *to != from && !library.is_test(&from)) {
                edges.insert((from, to));
            }
        }
        Self(edges)
    }

    /// Pairs of modules of which the first names the second.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(from, to)| (&**from, &**to))
    }
}

#[derive(Default)]
struct Library {
    modules: BTreeSet<String>,
    /// Modules that are built only for tests.
    tests: BTreeSet<String>,
    /// The re-exports of a module: its own name for each, and the path that it stands for.
    reexports: BTreeMap<(String, String), Vec<String>>,
}

impl Library {
    fn is_test(&self, module: &str) -> bool {
        let inside = |test: &String| {
            let rest = module.strip_prefix(test.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        self.tests.iter().any(inside)
    }

    /// The module that defines what an absolute path names. `None` if that does not belong to this library.
    fn module_of(&self, path: &[String]) -> Option<String> {
        let mut module = String::new();
        for (i, part) in path.iter().enumerate() {
            let inner = match module.is_empty() {
                true => part.clone(),
                false => format!("{module}::{part}"),
            };
            if self.modules.contains(&inner) {
                module = inner;
            } else if let Some(target) = self.reexports.get(&(module.clone(), part.clone())) {
                let rest = path[i + 1..].iter().cloned();
                let target: Vec<String> = target.iter().cloned().chain(rest).collect();
                // A crate that is re-exported under its own name does not belong to this library.
                return (target != path).then(|| self.module_of(&target)).flatten();
            } else {
                break;
            }
        }
        (!module.is_empty()).then_some(module)
    }
}

/// Finds all paths of one file that begin with `crate`, `self` or `super`, and makes them absolute.
struct Finder {
    /// The current position. Inline modules of a file are part of its name only for `self` and `super`.
    here: Vec<String>,
    module: String,
    paths: Vec<(String, Vec<String>)>,
    reexports: BTreeMap<(String, String), Vec<String>>,
    tests: BTreeSet<String>,
}

impl Finder {
    fn new(module: &str) -> Self {
        Self {
            here: module
                .split("::")
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect(),
            module: module.to_owned(),
            paths: Vec::new(),
            reexports: BTreeMap::new(),
            tests: BTreeSet::new(),
        }
    }

    /// Returns `None` if the path does not begin at a known place: at a crate, or at an imported name.
    fn absolute(&self, parts: &[String]) -> Option<Vec<String>> {
        let mut path = match parts.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.here.clone(),
            _ => return None,
        };
        let mut rest = parts.iter().peekable();
        while let Some(part) = rest.peek() {
            match part.as_str() {
                "super" => drop(path.pop()),
                "crate" | "self" => {}
                _ => break,
            }
            rest.next();
        }
        path.extend(rest.cloned());
        Some(path)
    }

    fn found(&mut self, parts: &[String]) {
        if let Some(path) = self.absolute(parts) {
            self.paths.push((self.module.clone(), path));
        }
    }

    /// Collects each name that a `use` imports, with its path.
    fn leaves(tree: &UseTree, before: &[String], leaves: &mut Vec<(String, Vec<String>)>) {
        let with = |part: String| [before, &[part]].concat();
        match tree {
            UseTree::Path(path) => Self::leaves(&path.tree, &with(path.ident.to_string()), leaves),
            UseTree::Name(name) if name.ident == "self" => {
                leaves.push((before.last().cloned().unwrap_or_default(), before.to_vec()));
            }
            UseTree::Name(name) => {
                leaves.push((name.ident.to_string(), with(name.ident.to_string())))
            }
            UseTree::Rename(name) => {
                leaves.push((name.rename.to_string(), with(name.ident.to_string())))
            }
            UseTree::Glob(_) => leaves.push(("*".into(), before.to_vec())),
            UseTree::Group(group) => {
                for tree in &group.items {
                    Self::leaves(tree, before, leaves);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = attributes(item);
        if attributes.iter().any(is_test) {
            if let Item::Mod(module) = item {
                let name = module.ident.to_string();
                let path = [self.here.clone(), vec![name]].concat();
                self.tests.insert(path.join("::"));
            }
            return;
        }
        if let Item::Mod(module) = item {
            self.here.push(module.ident.to_string());
            syn::visit::visit_item(self, item);
            self.here.pop();
            return;
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let mut leaves = Vec::new();
        Self::leaves(&item.tree, &[], &mut leaves);
        for (name, parts) in leaves {
            // In the root, and in a module that is named without `self`, a path may begin with a child.
            let local = [vec!["self".to_owned()], parts.clone()].concat();
            let known = matches!(
                parts.first().map(String::as_str),
                Some("crate" | "self" | "super")
            );
            let path = self.absolute(if known { &parts } else { &local });
            if !matches!(item.vis, syn::Visibility::Inherited)
                && let Some(path) = path
            {
                // A re-export passes the name on. The module itself does not need it.
                self.reexports.insert((self.here.join("::"), name), path);
            } else {
                self.found(&parts);
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let parts: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.found(&parts);
        syn::visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns true for `#[cfg(test)]`, and for features that only tests and the simulation use.
fn is_test(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let tokens = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg")
        && [
            "test",
            "any(test,feature=\"test-util\")",
            "any(test,feature=\"conformance\")",
            "feature=\"test-util\"",
            "feature=\"conformance\"",
            "doctest",
        ]
        .contains(&&*tokens)
}

/// All Rust files in a folder.
pub(crate) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}
