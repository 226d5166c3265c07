//! The order of the rooms (src/docs/architecture.md): a room names only rooms below it, and no two files of the library
//! name each other, directly or through others.

mod names;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use names::Names;

/// The floors from the bottom up. Rooms on the same floor may name each other. A part of a room can have a floor of its
/// own.
const FLOORS: &[&[&str]] = &[
    &["base", "report"],
    &["node"],
    &["protocol::ballot"],
    &["protocol::queue", "protocol::rates"],
    &["protocol::slots"],
    &["lease"],
    &["engine"],
    &["locks::acquire", "locks::handle", "locks::options"],
    &["locks::mutex", "locks::rwlock", "locks::semaphore"],
    &["locks"],
    &["quorum"],
    &["integrations"],
];
/// A lower room that a room may not name. The decisions of the protocol know only the [`ANSWERS`] of a node, and Consul
/// does not use the quorum of masters.
const NEVER: &[(&str, &str)] = &[
    ("protocol", "node"),
    ("protocol", "engine"),
    ("integrations::consul", "quorum"),
    ("integrations::consul", "fence"),
];
/// The only part of a node that the decisions of the protocol name.
const ANSWERS: &str = "node::answer";
/// Rooms beside the floors, with the modules that they may name. Only the last floor names them.
const ASIDE: &[(&str, &[&str])] = &[("fence", &["report::error", "base::token"]), ("docs", &[])];
/// No room names these, but they may name any room.
const TOP: &[&str] = &["testing"];
/// A newcomer can read a list of this length.
const MOST_ENTRIES: usize = 15;
/// Modules of `node::kinds` that are not kinds.
const NOT_HELD: &[&str] = &[
    "admission",
    "server",
    "counters",
    "moment",
    "scripts",
    "wire",
];
/// The only part of the kinds that rooms above `node` know.
const REQUESTS: &str = "node::request";

fn library() -> Names {
    Names::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

#[test]
fn a_room_names_only_rooms_below_it() {
    let names = library();
    let mut wrong = Vec::new();
    let mut homeless = BTreeSet::new();
    for (from, to) in names.edges() {
        let placed = |module: &&str| {
            floor(module).is_some()
                || ASIDE.iter().any(|(aside, _)| is_in(module, aside))
                || TOP.iter().any(|top| is_in(module, top))
        };
        // The root of a room lists its parts.
        let named = [from, to]
            .into_iter()
            .filter(|module| module.contains("::"));
        homeless.extend(named.filter(|module| !placed(module)));
        if !from.is_empty() && !to.is_empty() && !may_name(from, to) {
            wrong.push(format!("{from} names {to}"));
        }
    }
    assert!(homeless.is_empty(), "no floor for {homeless:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn modules_have_no_import_circle() {
    let command = Path::new(env!("CARGO_MANIFEST_DIR")).join("cli/src");
    for names in [library(), Names::read(&command)] {
        let edges: Vec<(&str, &str)> = names
            .edges()
            .filter(|(from, to)| !from.is_empty() && !to.is_empty())
            .filter(|(from, _)| !TOP.contains(&names::room(from)))
            .collect();
        assert!(edges.len() > 50, "only {} edges were read", edges.len());
        let circles = circles(&edges);
        assert!(circles.is_empty(), "{circles:#?}");
    }
}

#[test]
fn modules_above_node_use_only_the_requests_of_its_kinds() {
    let names = library();
    let of_kind = |module: &str| {
        let kind = module.strip_prefix("node::kinds::");
        kind.is_some_and(|kind| !NOT_HELD.contains(&names::room(kind)))
    };
    let mut wrong = Vec::new();
    let mut is_known = false;
    for (from, to) in names.edges() {
        let above = floor(from).is_some_and(|floor| floor > 1);
        if above && of_kind(to) {
            wrong.push(format!("{from} names {to}"));
        }
        is_known |= above && is_in(to, REQUESTS);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(is_known, "nothing was read");
}

#[test]
fn the_root_is_a_short_list() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let entries = fs::read_dir(src).unwrap().count();
    assert!(entries <= MOST_ENTRIES, "{entries} entries in src");
}

/// A method whose name is a question (`is_`, `has_`, `may_`) changes nothing. A method that changes something has a
/// verb as its name.
#[test]
fn methods_named_as_questions_change_nothing() {
    let (mut seen, mut wrong) = (0, Vec::new());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "cli/src"] {
        for file in names::rust_files(&root.join(folder)) {
            let code: String = fs::read_to_string(&file).unwrap();
            let words: Vec<&str> = code.split_whitespace().collect();
            let code = words.join(" ");
            for question in ["is_", "has_", "may_"] {
                for (at, start) in code.match_indices(&format!("fn {question}")) {
                    let (name, rest) = code[at + start.len()..].split_once('(').unwrap();
                    seen += 1;
                    if rest.trim_start().starts_with("&mut self") {
                        wrong.push(format!("{}: {question}{name}", file.display()));
                    }
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} questions were read");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Clippy counts arguments (clippy.toml). A tuple of several would hide them from it.
#[test]
fn no_tuple_hides_arguments() {
    let (mut seen, mut wrong) = (0, Vec::new());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "cli/src"] {
        for file in names::rust_files(&root.join(folder)) {
            let code = fs::read_to_string(&file).unwrap();
            // rustfmt gives each argument of a long list a line of its own.
            let lines = code.lines().map(str::trim_start);
            let arguments = lines.filter(|line| line.contains(": ") && line.ends_with(','));
            for argument in arguments {
                seen += 1;
                // An alias of a tuple type hides them too.
                let pattern = argument.split_once("): ");
                if pattern.is_some_and(|(names, _)| names.starts_with('(')) {
                    wrong.push(format!("{}: {argument}", file.display()));
                }
            }
        }
    }
    assert!(seen > 1_000, "only {seen} arguments were read");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A method that calls itself through others cannot be read as a list of steps. In the engine a step returns what comes
/// next, and a loop runs it.
#[test]
fn the_engine_has_no_ring_of_functions() {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine");
    let (mut functions, mut rings) = (0, Vec::new());
    for file in names::rust_files(&engine) {
        if file
            .iter()
            .any(|part| part == "tests" || part == "tests.rs")
        {
            continue;
        }
        let code = fs::read_to_string(&file).unwrap();
        let calls = calls(code.split("#[cfg(test)]\nmod tests {").next().unwrap());
        functions += calls
            .iter()
            .map(|(from, _)| from)
            .collect::<BTreeSet<_>>()
            .len();
        let calls: Vec<(&str, &str)> = calls.iter().map(|(a, b)| (&**a, &**b)).collect();
        let own = calls.iter().filter(|(from, to)| from == to);
        rings.extend(own.map(|(from, _)| format!("{}: {from}", file.display())));
        let of_several = circles(&calls).into_iter();
        rings.extend(of_several.map(|ring| format!("{}: {ring:?}", file.display())));
    }
    assert!(functions > 200, "only {functions} functions were read");
    assert!(rings.is_empty(), "{rings:#?}");
}

/// The calls between the functions of one file. A method is `self.name`.
fn calls(code: &str) -> BTreeSet<(String, String)> {
    let lines: Vec<&str> = code
        .lines()
        .map(|line| line.split("//").next().unwrap())
        .collect();
    let mut functions: Vec<(String, String)> = Vec::new();
    let mut ends = None;
    for line in lines {
        let indent = line.len() - line.trim_start().len();
        if ends.is_none()
            && let Some((_, rest)) = line.split_once("fn ")
            && !line.trim_end().ends_with(';')
        {
            let name: String = rest.chars().take_while(|c| is_of_a_name(*c)).collect();
            let name = if indent == 0 {
                name
            } else {
                format!("self.{name}")
            };
            functions.push((name, String::new()));
            ends = Some(indent);
        }
        let Some(of) = ends else { continue };
        if let Some((_, body)) = functions.last_mut() {
            // Only what follows the name of the function can be a call.
            let begins = body.is_empty().then(|| line.split_once("fn "));
            body.push_str(
                begins
                    .flatten()
                    .map_or(line, |(_, rest)| rest.trim_start_matches(is_of_a_name)),
            );
            body.push('\n');
        }
        let is_one_line = line.contains(" { ") && line.trim_end().ends_with('}');
        if indent == of && (line.trim_start().starts_with('}') || is_one_line) {
            ends = None;
        }
    }
    let mut calls = BTreeSet::new();
    for (from, body) in &functions {
        let body = body.replace("Self::", "self.");
        for (to, _) in &functions {
            let call = format!("{to}(");
            let before = |at: usize| body[..at].chars().next_back();
            let mut found = body.match_indices(&call);
            if found.any(|(at, _)| !before(at).is_some_and(|c| is_of_a_name(c) || ".:".contains(c)))
            {
                calls.insert((from.clone(), to.clone()));
            }
        }
    }
    calls
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[test]
fn the_test_of_rings_reads_functions() {
    let code = "
impl A {
    fn one(&self) {
        self.two(1);
        free();
    }

    fn two(&self, n: u32) {
        // self.three()
        if n > 1 { Self::one(self); }
        self.other.three();
    }

    fn three(&self) { self.three() }
}

fn free() {
    one();
}
";
    let calls = calls(code);
    let calls: Vec<(&str, &str)> = calls.iter().map(|(a, b)| (&**a, &**b)).collect();
    let wanted = [
        ("self.one", "free"),
        ("self.one", "self.two"),
        ("self.three", "self.three"),
        ("self.two", "self.one"),
    ];
    assert_eq!(calls, wanted);
    assert_eq!(circles(&calls), [["self.one", "self.two"]]);
}

#[test]
fn the_layer_tests_find_what_they_forbid() {
    let names = Names::of(&[
        (
            "",
            "pub mod node; mod engine; mod words; pub use engine::Core; pub use node::{deep::Bottom as Low};",
        ),
        (
            "engine",
            "pub mod core; mod net; pub use self::core::Core;\n#[cfg(test)] mod tests { use crate::node::Node; }",
        ),
        (
            "engine::core",
            "use super::net::{self, Net};\nuse crate::{Low, words::*};\npub struct Core;",
        ),
        (
            "engine::net",
            "fn f() { crate::node::deep::g(); let _: super::Core; }\n// crate::engine::nothing\npub struct Net;",
        ),
        ("engine::tests", "use crate::node::Never;"),
        ("node", "pub mod deep; pub struct Node;"),
        ("node::deep", "pub struct Bottom; pub fn g() {}"),
        ("words", "pub struct Word;"),
    ]);
    let edges: Vec<(&str, &str)> = names.edges().collect();
    let wanted = [
        ("engine::core", "engine::net"),
        ("engine::core", "node::deep"),
        ("engine::core", "words"),
        ("engine::net", "engine::core"),
        ("engine::net", "node::deep"),
    ];
    for edge in wanted {
        assert!(edges.contains(&edge), "{edge:?} is not seen in {edges:?}");
    }
    let tests = |(from, to): &&(&str, &str)| from.contains("tests") || *to == "node";
    assert_eq!(
        edges.iter().find(tests),
        None,
        "what tests name does not count"
    );
    assert_eq!(circles(&edges), [["engine::core", "engine::net"]]);
    assert!(may_name("engine", "node") && !may_name("node", "engine"));
    assert!(may_name("engine", "lease") && !may_name("lease", "engine"));
    assert!(!may_name("protocol", "node") && !may_name("protocol", "node::session"));
    assert!(may_name("protocol::ballot", ANSWERS));
    assert!(!may_name("fence", "node") && !may_name("engine", "testing"));
    assert!(may_name("integrations", "fence") && !may_name("quorum", "fence"));
    assert!(!may_name("fence", "integrations") && !may_name("locks", "integrations"));
}

/// Returns true if the module is this room, or is in it.
fn is_in(module: &str, room: &str) -> bool {
    let rest = module.strip_prefix(room);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The floor of the smallest part of the module's path that has one.
fn floor(module: &str) -> Option<usize> {
    let parts = FLOORS.iter().enumerate();
    let parts =
        parts.flat_map(|(floor, parts)| parts.iter().map(move |part| (part.len(), *part, floor)));
    let parts = parts.filter(|(_, part, _)| is_in(module, part));
    parts.max().map(|(_, _, floor)| floor)
}

fn may_name(from: &str, to: &str) -> bool {
    if TOP.iter().any(|top| is_in(from, top)) {
        return true;
    }
    if let Some((aside, allowed)) = ASIDE.iter().find(|(aside, _)| is_in(from, aside)) {
        return is_in(to, aside) || allowed.iter().any(|room| is_in(to, room));
    }
    let is = |(a, b): &(&str, &str)| is_in(from, a) && is_in(to, b) && !is_in(to, ANSWERS);
    if NEVER.iter().any(is) {
        return false;
    }
    if ASIDE.iter().any(|(aside, _)| is_in(to, aside)) {
        return floor(from) == Some(FLOORS.len() - 1);
    }
    match (floor(from), floor(to)) {
        (Some(here), Some(there)) => there <= here,
        _ => false,
    }
}

/// Groups of modules in which each module reaches every other.
fn circles<'m>(edges: &[(&'m str, &'m str)]) -> Vec<Vec<&'m str>> {
    let mut to: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, named) in edges {
        to.entry(from).or_default().insert(named);
        to.entry(named).or_default();
    }
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        to.keys().map(|from| (*from, reached(&to, from))).collect();
    let mut circles = BTreeSet::new();
    for from in reach.keys() {
        let mutual = |other: &&&str| reach[from].contains(**other) && reach[**other].contains(from);
        let circle: Vec<&str> = reach.keys().filter(mutual).copied().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reached<'m>(to: &BTreeMap<&'m str, BTreeSet<&'m str>>, from: &str) -> BTreeSet<&'m str> {
    let mut seen = BTreeSet::new();
    let mut next: Vec<&str> = to[from].iter().copied().collect();
    while let Some(module) = next.pop() {
        if seen.insert(module) {
            next.extend(&to[module]);
        }
    }
    seen
}
