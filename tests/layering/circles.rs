//! Who imports whom, file by file, and whether anybody comes back to where they started.
//!
//! Read off the text: `use` statements and paths in code, with a name that another module
//! hands on (`use other::Name`) followed to where it is defined. A `pub use` that a module's
//! own code makes no use of hands a name on and imports nothing: so the face of a room, which
//! lists what is in it, may stand above files that know each other through it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

/// A module by its path from the crate's root.
pub type Module = Vec<String>;

/// The modules of the crate with this root file that are built without tests, with their
/// code. Of a library and a binary that lie in one folder, each has what its root declares.
pub fn modules(root: &Path) -> BTreeMap<Module, String> {
    let folder = root.parent().unwrap();
    let top = code(&fs::read_to_string(root).unwrap());
    let declared: BTreeSet<&str> = top
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';')?.split_once("mod "))
        .map(|(_, name)| name)
        .collect();
    let mut found = BTreeMap::from([(Module::new(), top.clone())]);
    for file in super::sources(folder) {
        let inside = file.strip_prefix(folder).unwrap().with_extension("");
        let mut module: Module = inside
            .iter()
            .map(|part| part.to_string_lossy().into_owned())
            .collect();
        if !declared.contains(module[0].as_str()) {
            continue;
        }
        if module.last().is_some_and(|name| name == "mod") {
            module.pop();
        }
        found.insert(module, code(&fs::read_to_string(&file).unwrap()));
    }
    let of_tests: Vec<Module> = found
        .iter()
        .flat_map(|(module, text)| {
            let after = text.split("#[cfg(test)]").skip(1);
            let names = after.filter_map(|rest| {
                let rest = rest.trim_start();
                let rest = rest.strip_prefix("pub ").unwrap_or(rest);
                let rest = rest.strip_prefix("pub(crate) ").unwrap_or(rest);
                let (name, _) = rest.strip_prefix("mod ")?.split_once(';')?;
                Some([&module[..], &[name.to_owned()]].concat())
            });
            names.collect::<Vec<_>>()
        })
        .collect();
    found.retain(|module, _| !of_tests.iter().any(|gone| module.starts_with(gone)));
    found
}

/// A file's text without comments and without its own tests.
pub fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| match line.find("//") {
        Some(at) => &line[..at],
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// One `use` statement: its paths, and whether it hands them on.
struct Use {
    paths: Vec<Vec<String>>,
    public: bool,
}

/// The `use` statements of a file, and its code without them.
fn statements(text: &str) -> (Vec<Use>, String) {
    let (mut found, mut rest, mut open) = (Vec::new(), String::new(), String::new());
    for line in text.lines() {
        let words = line.trim_start();
        let bare = words
            .strip_prefix("pub(super) ")
            .or_else(|| words.strip_prefix("pub(crate) "))
            .or_else(|| words.strip_prefix("pub "))
            .unwrap_or(words);
        if open.is_empty() && !bare.starts_with("use ") {
            // What declares a module does not use what is called the same.
            if !(bare.starts_with("mod ") && bare.ends_with(';')) {
                rest += line;
                rest.push('\n');
            }
            continue;
        }
        open += " ";
        open += words;
        if words.ends_with(';') {
            let (head, tree) = open.split_once("use ").unwrap();
            found.push(Use {
                paths: branches(tree.trim_end_matches(';')),
                public: head.contains("pub"),
            });
            open.clear();
        }
    }
    (found, rest)
}

/// The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn branches(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap().trim();
        return vec![path.split("::").map(str::to_owned).collect()];
    };
    let inside = &inside[..inside.rfind('}').unwrap()];
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    let parts = parts.into_iter().filter(|part| !part.trim().is_empty());
    parts
        .flat_map(|part| branches(&format!("{}{}", before.trim(), part.trim())))
        .collect()
}

/// Paths of two names and more in code: `super::other::call`.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(|c: char| !is_part(c))
        .filter(|word| word.contains("::"))
        .map(|word| {
            let names = word.split("::").filter(|name| !name.is_empty());
            names.map(str::to_owned).collect::<Vec<_>>()
        })
        .filter(|path| path.len() > 1)
        .collect()
}

/// What each module takes from which other.
type Imports = BTreeMap<Module, BTreeMap<Module, BTreeSet<String>>>;

struct House<'a> {
    modules: &'a BTreeMap<Module, String>,
    /// What a name means in a module, from the crate's root, where `use` says it.
    names: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
}

impl House<'_> {
    /// A path from the crate's root; `None` where it is of another crate.
    fn meant_by(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => return Some([module, rest].concat()),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let base = &module[..module.len().checked_sub(up)?];
                return Some([base, &path[up..]].concat());
            }
            _ => {}
        }
        if let Some(meant) = self.names.get(module).and_then(|names| names.get(first)) {
            return Some([meant, rest].concat());
        }
        let child = [&module[..], std::slice::from_ref(first)].concat();
        self.modules
            .contains_key(&child)
            .then(|| [&module[..], path].concat())
    }

    /// The module where what a path names is defined, and that name.
    fn defined<'p>(&self, path: &'p [String], depth: usize) -> Option<(Module, String)> {
        let module = (0..=path.len())
            .rev()
            .map(|parts| &path[..parts])
            .find(|part| self.modules.contains_key(*part))?;
        let name: &'p String = path.get(module.len())?;
        let handed = self.names.get(module).and_then(|names| names.get(name));
        match handed {
            Some(meant) if depth < 8 && meant != path => {
                let further = [&meant[..], &path[module.len() + 1..]].concat();
                self.defined(&further, depth + 1)
            }
            _ => Some((module.to_vec(), name.clone())),
        }
    }
}

/// Who imports what of whom.
pub fn imports(modules: &BTreeMap<Module, String>) -> Imports {
    let mut house = House {
        modules,
        names: BTreeMap::new(),
    };
    let mut taken: BTreeMap<&Module, Vec<Vec<String>>> = BTreeMap::new();
    let read: Vec<_> = modules
        .iter()
        .map(|(m, text)| (m, statements(text)))
        .collect();
    for (module, (uses, code)) in &read {
        for statement in uses {
            for path in &statement.paths {
                let Some(meant) = house.meant_by(module, path) else {
                    continue;
                };
                let name = path.last().unwrap().clone();
                let word = |c: char| !(c.is_alphanumeric() || c == '_');
                if !statement.public || code.split(word).any(|other| other == name) {
                    taken.entry(module).or_default().push(meant.clone());
                }
                house
                    .names
                    .entry((*module).clone())
                    .or_default()
                    .insert(name, meant);
            }
        }
    }
    for (module, (_, code)) in &read {
        let paths = paths_in(code);
        let meant = paths.iter().filter_map(|path| house.meant_by(module, path));
        taken.entry(module).or_default().extend(meant);
    }
    let mut found = Imports::new();
    for (module, paths) in taken {
        for path in paths {
            if let Some((of, name)) = house.defined(&path, 0)
                && of != *module
            {
                let from = found.entry(module.clone()).or_default();
                from.entry(of).or_default().insert(name);
            }
        }
    }
    found
}

/// Every shortest way back to where it began, as a line, each circle once.
pub fn circles(imports: &Imports) -> Vec<String> {
    let mut found = BTreeMap::new();
    for start in imports.keys() {
        if let Some(way) = way_back(imports, start) {
            let mut members: Vec<&Module> = way.clone();
            members.sort();
            found.entry(members).or_insert_with(|| told(imports, &way));
        }
    }
    found.into_values().collect()
}

/// The shortest way from a module over its imports back to it.
fn way_back<'a>(imports: &'a Imports, start: &'a Module) -> Option<Vec<&'a Module>> {
    let mut from: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(module) = next.pop_front() {
        for of in imports.get(module).into_iter().flatten().map(|(of, _)| of) {
            if of == start {
                let mut way = vec![module];
                while let Some(before) = from.get(way[way.len() - 1]) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if !from.contains_key(of) {
                from.insert(of, module);
                next.push_back(of);
            }
        }
    }
    None
}

fn told(imports: &Imports, way: &[&Module]) -> String {
    let steps = way.iter().enumerate().map(|(at, module)| {
        let next = way[(at + 1) % way.len()];
        let names: Vec<&str> = imports[*module][next].iter().map(String::as_str).collect();
        format!("{} takes {} of ", module.join("::"), names.join(", "))
    });
    steps.collect::<String>() + &way[0].join("::")
}
