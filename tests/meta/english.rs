//! Pages, error texts, help texts and comments are written in plain English: a subject, a verb, an object. The phrases that are
//! looked for here are those that readers stumbled over most.

use super::pages::{files, pages, read};

/// Where the phrase stands does not matter.
const ANYWHERE: &[&str] = &[
    "in vain",
    "anew",
    "shall",
    "hence",
    "thereof",
    "whoever",
    "whatever",
    "lest",
    "ours",
    "theirs",
    "as far as",
    "one who",
    "those who",
    "him who",
    "them who",
];
/// A sentence does not begin with them, unless it is a question.
const AT_THE_START: &[&str] = &["What", "Who", "Whom", "Whose", "Whether"];
/// "Of a mutex: ..." leaves out the noun.
const AFTER_OF: &[&str] = &[
    "a", "an", "the", "each", "one", "those", "these", "whom", "which", "what", "who", "all",
    "every",
];
/// "is no longer" is plain, "is no lock" is not.
const AFTER_NO: &[&str] = &[
    "longer", "more", "less", "need", "reason", "way", "such", "matter", "other", "one",
];

/// The phrases of a line that are not plain.
fn faults(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let spoken: String = line
        .chars()
        .map(|c| {
            if c.is_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                ' '
            }
        })
        .collect();
    let words: Vec<&str> = spoken.split_whitespace().collect();
    let spoken = format!(" {} ", words.join(" "));
    found.extend(
        ANYWHERE
            .iter()
            .filter(|phrase| spoken.contains(&format!(" {phrase} ")))
            .map(|phrase| (*phrase).to_owned()),
    );
    for three in words.windows(3) {
        match three {
            ["so", much @ ("many" | "much" | "often" | "long"), then]
                if !["that", "as"].contains(then) =>
            {
                found.push(format!("so {much}"));
            }
            [verb @ ("is" | "are" | "was"), "no", noun] if !AFTER_NO.contains(noun) => {
                found.push(format!("{verb} no {noun}"));
            }
            _ => {}
        }
    }
    for sentence in sentences(line) {
        let mut words = sentence.split_whitespace();
        let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        let end = sentence
            .find(['.', '!', '?'])
            .map(|at| &sentence[at..at + 1]);
        if AT_THE_START.contains(&first) && end != Some("?") {
            found.push(format!("{first} ... as a subject"));
        }
        if first == "Of" && AFTER_OF.contains(&second) {
            found.push(format!("Of {second} ..."));
        }
    }
    if line.contains("; else ") || line.contains(", else ") {
        found.push("else, for otherwise".into());
    }
    found
}

/// The parts of a line that begin a sentence, or follow a colon.
fn sentences(line: &str) -> impl Iterator<Item = &str> {
    let ends = [". ", ": ", "! ", "? "];
    let begins = line.char_indices().filter(move |(at, _)| {
        *at == 0
            || line
                .get(..*at)
                .is_some_and(|before| ends.iter().any(|end| before.ends_with(end)))
    });
    begins.map(|(at, _)| &line[at..])
}

/// The lines of a page that are prose.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(number, line)| {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            return None;
        }
        let is_prose = !is_code && !line.starts_with("    ");
        is_prose.then(|| {
            (
                number + 1,
                line.trim_start_matches(['|', '>', '*', '-', ' ']),
            )
        })
    })
}

#[test]
fn the_pages_are_in_plain_english() {
    let mut pages = pages();
    pages.extend(
        [
            "README.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "cli/README.md",
            "docker/README.md",
            "examples/README.md",
        ]
        .map(String::from),
    );
    let mut found = Vec::new();
    for page in pages {
        for (number, line) in prose(&read(&page)) {
            found.extend(
                faults(line)
                    .iter()
                    .map(|fault| format!("{page}:{number}: {fault}: {line}")),
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The source of the library and of the command, without what only its makers read.
fn sources() -> Vec<String> {
    let mut sources = files("src", ".rs");
    sources.extend(files("cli/src", ".rs"));
    sources.retain(|file| {
        !["/tests", "/testing/", "/cases"]
            .iter()
            .any(|part| file.contains(part))
    });
    sources
}

#[test]
fn texts_for_users_are_in_plain_english() {
    let mut found = Vec::new();
    for file in sources() {
        let source = read(&file);
        let source = source.split("\nmod tests {").next().unwrap_or("");
        for (number, line) in source.lines().enumerate() {
            let line = line.trim_start();
            let code = line.split(" // ").next().unwrap_or("");
            let is_text =
                code.contains('"') || code.ends_with('\\') || !code.contains(['(', '{', ';']);
            if line.starts_with("//") || !is_text {
                continue;
            }
            let said = code.split_once('"').map_or(code, |(_, said)| said);
            found.extend(
                faults(said)
                    .iter()
                    .map(|fault| format!("{file}:{}: {fault}: {line}", number + 1)),
            );
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A phrase may be right where it stands: some are.
const MOST_IN_COMMENTS: usize = 150;

#[test]
fn comments_are_in_plain_english() {
    let mut found = Vec::new();
    for (folder, kind, mark) in [
        ("src", ".rs", "//"),
        ("src", ".lua", "--"),
        ("cli", ".rs", "//"),
        ("tests", ".rs", "//"),
        ("benches", ".rs", "//"),
        ("examples", ".rs", "//"),
    ] {
        for file in files(folder, kind) {
            for (number, line) in read(&file).lines().enumerate() {
                let Some((_, comment)) = line.split_once(mark) else {
                    continue;
                };
                let comment = comment.trim_start_matches(['/', '!', ' ', '-', '*', '|']);
                found.extend(
                    faults(comment)
                        .iter()
                        .map(|fault| format!("{file}:{}: {fault}: {comment}", number + 1)),
                );
            }
        }
    }
    assert!(
        found.len() <= MOST_IN_COMMENTS,
        "{} places:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn a_phrase_that_is_not_plain_is_found() {
    for line in [
        "Who waits, waits in line.",
        "It ends. Whether it does is told by the node.",
        "at most so many of them",
        "Of a mutex: the token.",
        "this is no URL",
        "nodes that shall vote",
        "it stays ours",
        "done; else it waits",
        "those who wait",
    ] {
        assert_eq!(faults(line).len(), 1, "{line}: {:?}", faults(line));
    }
    for line in [
        "Who holds it?",
        "It is no longer held, so many as there are.",
        "What is promised, and what is not? See the page.",
        "Waiters queue.",
        "yours",
    ] {
        assert_eq!(faults(line), [] as [&str; 0], "{line}");
    }
}
