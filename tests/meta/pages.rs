//! The pages for newcomers are complete: every page can be found, and all pages use the same words.

use std::{fs, path::Path};

pub(super) fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files under a folder, by their paths from the root of the project.
pub(super) fn files(folder: &str, kind: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found.append(&mut files(&path, kind));
        } else if path.ends_with(kind) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The pages, without the definitions of links that the documentation puts before each of them.
pub(super) fn pages() -> Vec<String> {
    let mut pages = files("src/docs", ".md");
    pages.retain(|page| page != LINKS);
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

const LINKS: &str = "src/docs/links.md";

/// `src/docs/protocol/queue.md` is called `protocol/queue`, and the first page of a folder has the folder's name.
fn label(page: &str) -> &str {
    let name = page.strip_prefix("src/docs/").unwrap();
    let name = name.strip_suffix(".md").unwrap();
    name.strip_suffix("/README").unwrap_or(name)
}

#[test]
fn every_page_is_in_the_documentation_and_in_the_readme() {
    let (index, readme) = (read("src/docs/mod.rs"), read("README.md"));
    let sections = read("src/docs/protocol/README.md");
    for page in pages() {
        let (name, file) = (label(&page), page.strip_prefix("src/docs/").unwrap());
        assert!(
            index.contains(&format!("\"{file}\")")),
            "{page} is not in src/docs/mod.rs"
        );
        if name.contains('/') {
            assert!(
                sections.contains(&format!("[{name}]: ")),
                "{page} is not in the list of sections"
            );
        } else {
            assert!(
                index.contains(&format!("//! | [`{name}`] |")),
                "{page} is not in the table of src/docs/mod.rs"
            );
            assert!(
                readme.contains(&format!("\n[{name}]: {page}\n")),
                "{page} is not in README.md"
            );
        }
    }
}

/// Where the links of a text lead: in parentheses, and in definitions.
fn targets(text: &str) -> Vec<&str> {
    let links = text.split("](").skip(1);
    let links = links.filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    links
        .chain(definitions(text).map(|(_, target)| target))
        .collect()
}

/// `[label]: target`, a line each.
fn definitions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('['));
    let definitions = lines.filter_map(|line| line.split_once("]: "));
    definitions.filter(|(label, _)| !label.contains(']'))
}

/// A registry's page resolves links to files by the `repository` of the manifest.
#[test]
fn links_lead_to_files_and_headings_that_are_there() {
    assert!(read("Cargo.toml").contains("\nrepository"));
    let mut texts = pages();
    texts.extend(
        [
            "README.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "examples/README.md",
        ]
        .map(String::from),
    );
    let mut seen = 0;
    for text in texts {
        let folder = Path::new(&text).parent().unwrap();
        let content = read(&text);
        for target in targets(&content) {
            // rustdoc checks links to items.
            if target.starts_with("https://") || target.starts_with("crate::") {
                continue;
            }
            seen += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = match file {
                "" => content.clone(),
                file if Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join(folder)
                    .join(file)
                    .is_dir() =>
                {
                    continue;
                }
                file => read(folder.join(file)),
            };
            assert!(
                heading.is_empty() || headings(&there).contains(&heading.to_owned()),
                "{text}: {target}"
            );
        }
    }
    assert!(seen > 60, "{seen} links");
}

/// The same link leads to a file in a checkout, and to a module in the documentation.
#[test]
fn page_links_mean_the_same_in_a_checkout_and_in_the_documentation() {
    let links = read(LINKS);
    let mut used = Vec::new();
    for page in pages() {
        let content = read(&page);
        for (label, target) in definitions(&content)
            .filter(|(_, target)| target.contains(".md") && !target.contains("://"))
        {
            let (name, heading) = label.split_once('#').unwrap_or((label, ""));
            let file = fs::canonicalize(
                Path::new(&page)
                    .parent()
                    .unwrap()
                    .join(target.split('#').next().unwrap()),
            );
            let there = ["", "/README"].map(|end| format!("src/docs/{name}{end}.md"));
            assert!(
                there
                    .iter()
                    .any(|there| fs::canonicalize(there).ok() == file.as_ref().ok().cloned()),
                "{page}: {label}"
            );
            assert_eq!(
                target.split_once('#').map_or("", |(_, it)| it),
                heading,
                "{page}: {label}"
            );
            let module = format!("crate::docs::{}", label.replace('/', "::"));
            assert!(
                links.contains(&format!("[{label}]: {module}\n")),
                "{LINKS} lacks [{label}]: {module}"
            );
            assert!(
                content.contains(&format!("[{label}]"))
                    && content.matches(&format!("[{label}]")).count() > 1,
                "{page} does not use [{label}]"
            );
            used.push(label.to_owned());
        }
        assert!(
            !content.contains("](crate::docs::"),
            "{page} has a link to a page that leads nowhere in a checkout: write [text][page] and a definition"
        );
    }
    for (label, _) in definitions(&links) {
        assert!(
            used.contains(&label.to_owned()),
            "{LINKS}: no page uses [{label}]"
        );
    }
}

/// The most words of each page, so that none grows without a decision.
const SIZES: &[(&str, usize)] = &[
    ("README.md", 1_660),
    ("CHANGELOG.md", 490),
    ("src/docs/architecture.md", 1_450),
    ("src/docs/consul.md", 1_750),
    ("src/docs/deployment.md", 995),
    ("src/docs/failures.md", 2_880),
    ("src/docs/fencing.md", 1_900),
    ("src/docs/guarantees.md", 4_000),
    ("src/docs/integrations.md", 2_350),
    ("src/docs/logs.md", 1_730),
    ("src/docs/migration.md", 2_080),
    ("src/docs/numbers.md", 2_150),
    ("src/docs/operations.md", 5_150),
    ("src/docs/protocol/README.md", 300),
    ("src/docs/protocol/admission.md", 2_700),
    ("src/docs/protocol/evidence.md", 300),
    ("src/docs/protocol/mutex.md", 2_450),
    ("src/docs/protocol/queue.md", 2_100),
    ("src/docs/protocol/rates.md", 1_700),
    ("src/docs/protocol/rwlock.md", 1_450),
    ("src/docs/protocol/semaphore.md", 2_400),
    ("src/docs/protocol/several.md", 350),
    ("src/docs/protocol/traps.md", 2_100),
    ("src/docs/protocol/words.md", 650),
    ("src/docs/rates.md", 2_400),
    ("src/docs/semaphores.md", 1_400),
    ("src/docs/shutdown.md", 2_400),
    ("src/docs/testing.md", 2_600),
    ("src/docs/upgrading.md", 440),
];

#[test]
fn no_page_is_longer_than_its_readers_have_time_for() {
    let mut pages = pages();
    pages.extend(["README.md", "CHANGELOG.md"].map(String::from));
    for page in &pages {
        let (_, most) = SIZES
            .iter()
            .find(|(name, _)| name == page)
            .unwrap_or_else(|| panic!("{page} has no size here"));
        let words = read(page).split_whitespace().count();
        assert!(
            words <= *most,
            "{page} has {words} words, of at most {most}"
        );
    }
    assert_eq!(SIZES.len(), pages.len());
}

/// The anchors of all headings, as both sites make them.
fn headings(text: &str) -> Vec<String> {
    let titles = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |title: &str| {
        let title = title.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    };
    titles.map(anchor).collect()
}

/// An overview shows the first paragraph of an item to readers who do not know the protocol.
#[test]
fn no_summary_of_a_public_item_names_a_section_of_the_protocol() {
    let mut seen = 0;
    for file in files("src", ".rs") {
        let text = read(&file);
        let mut summary: Option<String> = None; // the summary of the comment that is being read
        let mut ended = false;
        for line in text.lines().map(str::trim) {
            if let Some(said) = line.strip_prefix("///") {
                let summary = summary.get_or_insert_default();
                ended |= said.trim().is_empty();
                if !ended {
                    summary.push_str(said);
                }
            } else if let Some(summary) = summary.take_if(|_| !line.starts_with("#[")) {
                ended = false;
                // A variant begins with a capital letter; a row of the table of settings is `name: Type {`.
                let is_row = line
                    .strip_suffix(" {")
                    .is_some_and(|row| row.contains(": ") && !row.contains('('));
                let is_variant = line.starts_with(|c: char| c.is_ascii_uppercase());
                if line.starts_with("pub ") || is_variant || is_row {
                    seen += 1;
                    assert!(!summary.contains('§'), "{file}: {line}\n{summary}");
                }
            }
        }
    }
    assert!(seen > 100, "{seen} items");
}
