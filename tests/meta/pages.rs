//! What a newcomer reads is complete: every page is found, and says what it means in the same words.

use std::{fs, path::Path};

fn read(path: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push((path.display().to_string(), read(&path)));
        }
    }
}

#[test]
fn every_page_is_in_the_rustdoc_and_in_the_readme() {
    let (index, readme) = (read("src/docs/mod.rs"), read("README.md"));
    let pages = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/docs")).unwrap();
    let mut seen = 0;
    for page in pages {
        let path = page.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "md") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        seen += 1;
        assert!(
            index.contains(&format!("//! | [`{name}`] |")),
            "{name} is not in the table of src/docs/mod.rs"
        );
        assert!(
            index.contains(&format!("include_str!(\"{name}.md\")")),
            "{name} is not in src/docs/mod.rs"
        );
        assert!(
            readme.contains(&format!(
                "\n[{name}]: https://docs.rs/quorate/latest/quorate/docs/{name}/index.html\n"
            )),
            "{name} is not in README.md"
        );
    }
    assert!(seen >= 10, "{seen} pages");
}

/// It is shown on the package's page, where a file beside it is nowhere.
#[test]
fn the_readme_links_to_what_is_there_for_every_reader() {
    let readme = read("README.md");
    let pages = "https://docs.rs/quorate/latest/quorate/docs/";
    let targets = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let references = readme.lines().filter_map(|line| line.strip_prefix('['));
    let references = references.filter_map(|line| line.split_once("]: "));
    let mut seen = 0;
    for target in targets
        .map(|(target, _)| target)
        .chain(references.map(|(_, target)| target))
    {
        seen += 1;
        if let Some(heading) = target.strip_prefix('#') {
            assert!(headings(&readme).contains(&heading.to_owned()), "{target}");
        } else if let Some(page) = target.strip_prefix(pages) {
            let (name, heading) = page.split_once("/index.html").unwrap();
            let page = read(format!("src/docs/{name}.md"));
            if let Some(heading) = heading.strip_prefix('#') {
                assert!(headings(&page).contains(&heading.to_owned()), "{target}");
            }
        } else {
            assert!(target.starts_with("https://"), "{target}");
        }
    }
    assert!(seen > 10, "{seen} links");
}

/// The anchors of all headings, as both pages make them.
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

/// It is [`quorate::Lease::guard`], and nothing else.
#[test]
fn the_readme_uses_guard_for_one_thing() {
    let readme = read("README.md");
    for line in readme.lines() {
        assert!(!line.replace("`guard`", "").contains("guard"), "{line}");
    }
    assert!(readme.contains("`guard`"));
}

/// The first paragraph of an item is what an overview shows, to readers who do not know the protocol.
#[test]
fn no_summary_of_a_public_item_names_a_section_of_the_protocol() {
    let mut files = Vec::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut files,
    );
    let mut seen = 0;
    for (file, text) in files {
        let mut summary: Option<String> = None; // of the comment that is being read
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
