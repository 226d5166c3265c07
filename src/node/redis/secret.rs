//! Takes a password out of what a server repeats, also where it repeats it escaped. Pure.

use std::collections::BTreeSet;

/// More is never told of a text, as [`said`](crate::report::said) cuts it.
const ENOUGH: usize = 1024;

/// The beginning of the text, with `***` for every place where it tells the secret.
pub(super) fn hidden(text: &str, secret: &str) -> String {
    let letters: Vec<Vec<String>> = secret.chars().map(spellings).collect();
    let (mut clean, mut rest) = (String::new(), text);
    while let (true, Some(first)) = (clean.len() < ENOUGH, rest.chars().next()) {
        match told(rest, &letters) {
            Some(after) => {
                clean.push_str("***");
                rest = after;
            }
            None => {
                clean.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
    }
    clean
}

/// What follows the secret, if the text begins with it. More than one reading may do, as a backslash
/// is a letter as well: all are tried at once, and the longest counts.
fn told<'t>(text: &'t str, letters: &[Vec<String>]) -> Option<&'t str> {
    let mut ends = BTreeSet::from([0]);
    for spellings in letters {
        let next = |&end: &usize| {
            let rest = text.get(end..).unwrap_or_default();
            let fits = move |s: &&String| {
                rest.get(..s.len())
                    .is_some_and(|it| it == s.as_str() || s.len() > 1 && it.eq_ignore_ascii_case(s))
            };
            spellings.iter().filter(fits).map(move |s| end + s.len())
        };
        ends = ends.iter().flat_map(next).collect();
        if ends.is_empty() {
            return None;
        }
    }
    let end = ends.pop_last().filter(|end| *end > 0)?;
    text.get(end..)
}

/// The usual ways to write a letter: as it is, behind a backslash, or as a number.
fn spellings(letter: char) -> Vec<String> {
    let mut bytes = [0; 4];
    let bytes = letter.encode_utf8(&mut bytes).as_bytes();
    let each = |way: fn(&u8) -> String| bytes.iter().map(way).collect::<String>();
    let mut all = vec![
        letter.to_string(),
        letter.escape_default().to_string(),
        format!("\\u{:04x}", u32::from(letter)),
        each(|byte| format!("\\x{byte:02x}")),
        each(|byte| format!("%{byte:02x}")),
    ];
    match letter {
        // Redis writes a line's end as a space: an error has one line.
        '\r' | '\n' => all.push(" ".into()),
        '\x07' => all.push("\\a".into()),
        '\x08' => all.push("\\b".into()),
        _ if letter.is_ascii_punctuation() => all.push(format!("\\{letter}")),
        _ => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_hidden_in_every_usual_spelling() {
        let secret = "it's \"ü\\\\%\n7";
        for told in [
            secret.to_owned(),
            secret.escape_default().to_string(),
            secret.escape_debug().to_string(),
            secret.as_bytes().escape_ascii().to_string(),
            r#"it's \"\xc3\xbc\\\\%\n7"#.to_owned(),
            r#"it's \"\u00FC\\\\%\n7"#.to_owned(),
            r"it's%20%22%C3%BC%5c%5c%25%0A7".to_owned(),
            secret.replace('\n', " "),
        ] {
            let text = format!("ERR `{told}`, {told}");
            assert_eq!(hidden(&text, secret), "ERR `***`, ***", "{text}");
        }
    }

    #[test]
    fn what_is_never_told_is_not_looked_through() {
        let text = format!("{}sesame", "sesame".repeat(1 << 18));
        let clean = hidden(&text, "sesame");
        assert!(clean.len() < ENOUGH + 3 && clean.chars().all(|c| c == '*'));
    }

    #[test]
    fn all_else_stays() {
        assert_eq!(hidden("ERR sesam, Sesame", "sesame"), "ERR sesam, Sesame");
        assert_eq!(hidden("nothing to hide", ""), "nothing to hide");
        assert_eq!(hidden("aaaaa", "aa"), "******a");
        assert_eq!(hidden(r"\\", r"\"), "***", "one, escaped");
        assert_eq!(hidden(r"\\", r"\\"), "***", "two");
    }

    proptest! {
        #[test]
        fn no_spelling_survives(secret in "\\PC{4,12}", before in "\\PC{0,9}", way in 0..5usize) {
            let told: String = secret.chars().filter_map(|c| spellings(c).get(way).cloned()).collect();
            let text = before + &told;
            prop_assert!(!hidden(&text, &secret).ends_with(&told));
        }
    }
}
