//! Takes a password out of what a server says, also where it repeats only a piece of it. Pure.
//!
//! Hidden is every run of the text that also stands in the password: in other capitals, escaped
//! with backslashes or percent signs (twice as well), or broken by spaces, quotes and line ends. Not
//! recognised are base64, hex without an escape, octal, HTML entities, and pieces of fewer than four
//! characters (three, of a password of up to six). As a login may be answered in any of these, only
//! the [`code`] of such an answer is told.

use std::{collections::HashSet, fmt, ops::Range};

/// More is never told of a text, as [`said`](crate::report::said) cuts it.
const ENOUGH: usize = 1024;
/// How often a text may be escaped: by a server, and by a proxy before it.
const ESCAPED: usize = 2;
/// A run of this length that also stands in the password is taken for a piece of it.
const PIECE: usize = 4;

/// The first words of errors that decide something, or that people look up. They tell nothing,
/// whatever the password is.
const CODES: &[&str] = &[
    "BUSY",
    "DENIED",
    "ERR",
    "EXHAUSTED",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOAUTH",
    "NOPERM",
    "NOPROTO",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "WRONGPASS",
    "WRONGTYPE",
];

/// The first word of an error, if it is a usual one; else nothing.
pub(super) fn code(error: &str) -> &str {
    let word = error.split_ascii_whitespace().next().unwrap_or_default();
    match CODES.contains(&word) && error.starts_with(word) {
        true => word,
        false => "",
    }
}

/// What only a server and its users may know. An empty one hides nothing.
pub(super) struct Secret {
    whole: Pieces,
    /// Of its letters and digits alone.
    squeezed: Pieces,
}

impl Secret {
    pub(super) fn new(secret: &str) -> Self {
        let whole = Reading::of(secret);
        let length = match whole.bytes.len() {
            short @ 0..PIECE => short,
            // At least half of it.
            4..=6 => 3,
            _ => PIECE,
        };
        Self {
            squeezed: Pieces::new(&whole.squeezed(), PIECE),
            whole: Pieces::new(&whole, length),
        }
    }

    /// The beginning of the text, with `***` for every place that tells of the secret.
    pub(super) fn hidden(&self, text: &str) -> String {
        if self.whole.all.is_empty() {
            return text.to_owned();
        }
        let end = text.char_indices().nth(ENOUGH).map_or(text.len(), |c| c.0);
        let text = text.get(..end).unwrap_or_default();
        let (mut told, mut reading) = (Vec::new(), Reading::of(text));
        for _ in 0..=ESCAPED {
            told.extend(self.whole.found_in(&reading));
            told.extend(self.squeezed.found_in(&reading.squeezed()));
            reading = reading.unescaped();
        }
        told.sort_unstable_by_key(|place| place.start);
        let (mut clean, mut at) = (String::new(), 0);
        for place in told {
            if place.start > at || clean.is_empty() {
                clean.push_str(text.get(at..place.start).unwrap_or_default());
                clean.push_str("***");
            }
            at = at.max(place.end);
        }
        clean.push_str(text.get(at..).unwrap_or_default());
        clean
    }

    /// The same of an error. Its code stays: it decides what is done.
    pub(super) fn hidden_in_error(&self, error: &str) -> String {
        let code = code(error);
        let words = error.get(code.len()..).unwrap_or_default();
        format!("{code}{}", self.hidden(words))
    }
}

/// Tells nothing, so that the password gets nowhere by accident.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// All runs of one length that stand in a secret.
struct Pieces {
    all: HashSet<Vec<u8>>,
    length: usize,
    /// They are so short that they stand in any word: only a word of its own is one.
    alone: bool,
}

impl Pieces {
    fn new(secret: &Reading, length: usize) -> Self {
        let all = match length {
            0 => HashSet::new(),
            _ => secret.bytes.windows(length).map(<[u8]>::to_vec).collect(),
        };
        Self {
            all,
            length,
            alone: secret.bytes.len() < PIECE,
        }
    }

    /// Their places in the text.
    fn found_in(&self, text: &Reading) -> Vec<Range<usize>> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let runs = text.bytes.windows(self.length).enumerate();
        runs.filter(|(at, run)| self.all.contains(*run) && (!self.alone || self.is_word(text, *at)))
            .filter_map(|(at, _)| text.place(at, self.length))
            .collect()
    }

    fn is_word(&self, text: &Reading, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| text.bytes.get(before));
        let after = text.bytes.get(at + self.length);
        ![before, after].into_iter().flatten().any(is_letter)
    }
}

/// A letter or digit, in any language.
fn is_letter(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// A text in small letters, with a space for every kind of space (a server makes one of a line's
/// end), and for each byte its place in the text: that of its whole character.
struct Reading {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl Reading {
    fn of(text: &str) -> Self {
        let mut reading = Self::empty();
        for (at, c) in text.char_indices() {
            reading.push(c, at..at + c.len_utf8());
        }
        reading
    }

    fn empty() -> Self {
        Self {
            bytes: Vec::new(),
            places: Vec::new(),
        }
    }

    fn push(&mut self, c: char, place: Range<usize>) {
        for &byte in c.encode_utf8(&mut [0; 4]).as_bytes() {
            self.push_byte(byte, place.clone());
        }
    }

    fn push_byte(&mut self, byte: u8, place: Range<usize>) {
        self.bytes.push(match byte.is_ascii_whitespace() {
            true => b' ',
            false => byte.to_ascii_lowercase(),
        });
        self.places.push(place);
    }

    /// Where these bytes stand in the text.
    fn place(&self, at: usize, length: usize) -> Option<Range<usize>> {
        let places = self.places.get(at..at + length)?;
        Some(places.first()?.start..places.last()?.end)
    }

    /// Without what may be put between letters.
    fn squeezed(&self) -> Self {
        let mut squeezed = Self::empty();
        for (byte, place) in self.bytes.iter().zip(&self.places) {
            if is_letter(byte) {
                squeezed.push_byte(*byte, place.clone());
            }
        }
        squeezed
    }

    /// With what escapes stand for.
    fn unescaped(&self) -> Self {
        let (mut unescaped, mut at) = (Self::empty(), 0);
        while let Some(rest) = self.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let (letter, length) = escape(rest);
            if let Some(place) = self.place(at, length) {
                match letter {
                    Letter::Byte(byte) => unescaped.push_byte(byte, place),
                    Letter::Char(c) => unescaped.push(c, place),
                }
            }
            at += length;
        }
        unescaped
    }
}

enum Letter {
    Byte(u8),
    Char(char),
}

/// The letter that the text begins with, and how many bytes stand for it.
fn escape(text: &[u8]) -> (Letter, usize) {
    let number = |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let byte = |digits: &[u8]| Some(Letter::Byte(u8::try_from(number(digits)?).ok()?));
    let unicode = |digits: &[u8]| Some(Letter::Char(char::from_u32(number(digits)?)?));
    let numbered = match text {
        [b'%', a, b, ..] => byte(&[*a, *b]).map(|letter| (letter, 3)),
        [b'\\', b'x', a, b, ..] => byte(&[*a, *b]).map(|letter| (letter, 4)),
        [b'\\', b'u', b'{', rest @ ..] => {
            let end = rest.iter().take(7).position(|byte| *byte == b'}');
            let digits = end.and_then(|end| rest.get(..end));
            digits.and_then(|digits| Some((unicode(digits)?, digits.len() + 4)))
        }
        [b'\\', b'u', a, b, c, d, ..] => unicode(&[*a, *b, *c, *d]).map(|letter| (letter, 6)),
        _ => None,
    };
    numbered.unwrap_or(match text {
        [b'\\', b'n' | b'r' | b't', ..] => (Letter::Byte(b' '), 2),
        [b'\\', b'0', ..] => (Letter::Byte(0), 2),
        [b'\\', b'a', ..] => (Letter::Byte(7), 2),
        [b'\\', b'b', ..] => (Letter::Byte(8), 2),
        [b'\\', other, ..] => (Letter::Byte(*other), 2),
        [other, ..] => (Letter::Byte(*other), 1),
        [] => (Letter::Byte(0), 1),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hidden(text: &str, secret: &str) -> String {
        Secret::new(secret).hidden(text)
    }

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
            r"it's%2520%2522%25C3%25BC%255c%255c%2525%250A7".to_owned(),
            secret.replace('\n', " "),
            secret.to_uppercase().replace('Ü', "ü"),
        ] {
            let text = format!("ERR `{told}`, {told}");
            assert_eq!(hidden(&text, secret), "ERR `***`, ***", "{text}");
        }
    }

    #[test]
    fn a_piece_is_hidden_and_what_is_broken_up() {
        for (told, clean) in [
            ("ERR unknown command 'hunte", "ERR unknown command '***"),
            ("ter2pass' is not known", "***' is not known"),
            ("hun\r\nter\r\n2pa\r\nss", "***"),
            ("say h-u-n-t-e-r", "say ***"),
            ("the HUNTer2 hunt", "the *** ***"),
            ("a hun, a ter", "a hun, a ter"),
        ] {
            assert_eq!(hidden(told, "hunter2pass"), clean);
        }
        // Half of a short one.
        assert_eq!(hidden("sesa esam sam", "sesame"), "*** *** ***");
        assert_eq!(hidden("ERR tes pass", "test"), "ERR *** pass");
    }

    #[test]
    fn a_very_short_one_is_hidden_where_it_stands_alone() {
        assert_eq!(hidden("an 'an' AN,and", "an"), "*** '***' ***,and");
        assert_eq!(hidden("nothing to hide", ""), "nothing to hide");
        assert_eq!(hidden(r"a \\ b", r"\"), "a *** b");
    }

    #[test]
    fn the_code_of_an_error_stays() {
        let clean = |error| Secret::new("readonly error").hidden_in_error(error);
        assert_eq!(clean("READONLY it is readonly"), "READONLY it is ***");
        assert_eq!(clean("ERR\r\n"), "ERR\r\n");
        assert_eq!(clean("Error: readonly"), "***: ***");
        assert_eq!(code(" ERR x"), "");
        assert_eq!(code("ERRor"), "");
    }

    #[test]
    fn what_is_never_told_is_not_looked_through() {
        let text = format!("{}x", "sesame".repeat(1 << 18));
        assert_eq!(hidden(&text, "sesame"), "***");
        let long: String = (0..1 << 18).map(|n| format!("{n:x}")).collect();
        let start = crate::clock::cpu_time();
        assert_eq!(hidden(&"x".repeat(1 << 22), &long), "x".repeat(ENOUGH));
        let took = crate::clock::cpu_time() - start;
        assert!(took < std::time::Duration::from_secs(10), "{took:?}");
    }

    /// The ways a letter is written: as it is, in capitals, escaped once or twice, with something
    /// behind it.
    fn spelled(c: char, way: usize) -> String {
        let mut bytes = [0; 4];
        let bytes = c.encode_utf8(&mut bytes).as_bytes();
        let each = |way: fn(&u8) -> String| bytes.iter().map(way).collect::<String>();
        match way {
            0 => c.to_string(),
            1 => c.to_ascii_uppercase().to_string(),
            2 => c.escape_default().to_string(),
            3 => format!("\\u{{{:X}}}", u32::from(c)),
            4 => each(|byte| format!("\\x{byte:02x}")),
            5 => each(|byte| format!("%{byte:02X}")),
            6 => each(|byte| format!("%25{byte:02x}")),
            7 => each(|byte| format!("\\\\x{byte:02X}")),
            8 => format!("{c}\n"),
            _ => format!("{c}', '"),
        }
    }

    proptest! {
        #[test]
        fn no_piece_survives(
            secret in "[!-~ü漢]{4,24}",
            (from, to) in (0..24usize, 0..24usize),
            before in "[ -~]{0,9}",
            way in 0..8usize,
        ) {
            let letters: Vec<char> = secret.chars().collect();
            let (from, to) = (from.min(letters.len()), to.min(letters.len()));
            let told = &letters[from.min(to)..from.max(to)];
            let text = before + &told.iter().map(|c| spelled(*c, way)).collect::<String>();
            let clean = hidden(&text, &secret);
            for piece in told.windows(PIECE) {
                let piece: String = piece.iter().map(|c| spelled(*c, way)).collect();
                prop_assert!(!clean.contains(&piece), "{text:?} became {clean:?}");
            }
        }

        #[test]
        fn nor_one_that_is_broken_up(secret in "[a-z0-9]{7,24}", way in 8..10usize) {
            let text: String = secret.chars().map(|c| spelled(c, way)).collect();
            prop_assert_eq!(hidden(&text, &secret).matches(char::is_alphanumeric).count(), 0);
        }

        #[test]
        fn what_has_nothing_of_it_stays(text in "[a-m \\\\%]{0,99}") {
            prop_assert_eq!(hidden(&text, "QRSTUVWXYZ"), text);
        }
    }
}
