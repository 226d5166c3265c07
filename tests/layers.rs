//! Who may name whom (src/docs/architecture.md): a room names only rooms below it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// From the bottom up; rooms on one floor may name each other.
const FLOORS: &[&[&str]] = &[
    &[
        "clock", "columns", "error", "logs", "name", "owner", "report", "rules", "settings",
        "token",
    ],
    &["node"],
    &["ballot"],
    &["claim"],
    &["engine", "lease"],
    &["mutex"],
    &["builder", "env", "quorum"],
];
/// What stands beside the stairs, and what it may name.
const ASIDE: &[(&str, &[&str])] = &[("fence", &["error", "token"]), ("docs", &[])];
/// Nobody names these; they may name anything.
const TOP: &[&str] = &["testing", "bin", "lib"];

#[test]
fn a_room_names_only_rooms_below_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let public = public_names(&fs::read_to_string(root.join("lib.rs")).unwrap());
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for file in rust_files(&root) {
        let room = room_of(file.strip_prefix(&root).unwrap());
        seen.insert(room.clone());
        if TOP.contains(&room.as_str()) || is_of_tests(&file) {
            continue;
        }
        for named in named_rooms(&fs::read_to_string(&file).unwrap(), &public) {
            if named != room && !may_name(&room, &named) {
                wrong.push(format!("{} names {named}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let placed: BTreeSet<String> = FLOORS
        .iter()
        .flat_map(|floor| floor.iter())
        .chain(ASIDE.iter().map(|(room, _)| room))
        .chain(TOP)
        .map(ToString::to_string)
        .collect();
    let homeless: Vec<_> = seen.difference(&placed).collect();
    assert!(homeless.is_empty(), "no floor for {homeless:?}");
}

#[test]
fn the_test_sees_what_it_forbids() {
    let public = public_names("pub use quorum::Quorum;\npub use lease::{Lease, LeaseWatch};");
    let code = "use crate::{\n    Quorum, Error,\n    node::{Operation, kinds::Reply},\n};\nfn f() { crate::engine::x() }\n#[cfg(test)]\nuse crate::mutex;";
    let named: Vec<String> = named_rooms(code, &public).into_iter().collect();
    assert_eq!(named, ["engine", "node", "quorum"]);
    assert!(may_name("engine", "node") && !may_name("node", "engine"));
    assert!(may_name("lease", "engine") && !may_name("fence", "node"));
}

fn may_name(room: &str, named: &str) -> bool {
    if let Some((_, allowed)) = ASIDE.iter().find(|(aside, _)| *aside == room) {
        return allowed.contains(&named);
    }
    let floor = |room| FLOORS.iter().position(|floor| floor.contains(&room));
    match (floor(room), floor(named)) {
        (Some(here), Some(there)) => there <= here,
        _ => false,
    }
}

/// Tests name what they test with, and so do the cases of the conformance suite.
fn is_of_tests(file: &Path) -> bool {
    let mut names = file.iter().filter_map(|name| name.to_str());
    names.any(|name| matches!(name.trim_end_matches(".rs"), "tests" | "cases"))
}

fn room_of(file: &Path) -> String {
    let first = file.iter().next().unwrap().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Which room each name of lib.rs's re-exports comes from.
fn public_names(lib: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for line in lib.split(';').map(str::trim) {
        let Some(path) = line
            .rsplit("pub use ")
            .next()
            .filter(|_| line.contains("pub use "))
        else {
            continue;
        };
        let Some(room) = path.split("::").next() else {
            continue;
        };
        for name in words(path) {
            names.insert(name.to_owned(), room.to_owned());
        }
    }
    names
}

/// The rooms that code outside of tests names.
fn named_rooms(code: &str, public: &BTreeMap<String, String>) -> BTreeSet<String> {
    let code: String = code
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap()
        .split("#[cfg(test)]\nuse ")
        .next()
        .unwrap()
        .lines()
        .map(|line| line.split("//").next().unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    let mut rooms = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        let tops = if let Some(list) = after.strip_prefix('{') {
            tops_of(list)
        } else {
            vec![first_word(after)]
        };
        for top in tops {
            let room = public.get(top).map_or(top, String::as_str);
            let is_room =
                FLOORS.iter().any(|f| f.contains(&room)) || ASIDE.iter().any(|(a, _)| *a == room);
            if is_room || TOP.contains(&room) {
                rooms.insert(room.to_owned());
            }
        }
    }
    rooms
}

/// The first words of a use list, up to its closing brace.
fn tops_of(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut tops) = (0, 0, Vec::new());
    for (i, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                tops.push(first_word(&list[start..i]));
                return tops;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                tops.push(first_word(&list[start..i]));
                start = i + 1;
            }
            _ => {}
        }
    }
    tops
}

fn first_word(text: &str) -> &str {
    words(text).next().unwrap_or("")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
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
