//! Takes a password out of what a server says, even where it repeats only a piece of it. Pure.
//!
//! It hides every run of the text that also stands in the password: in other capitals, escaped with
//! backslashes or percent signs, even twice, or broken by spaces, quotes and line ends. What stands
//! before and behind such a run makes no difference. It does not recognise base64, hex without an
//! escape, octal, HTML entities, or pieces of fewer than four characters (three, of a password of up
//! to six). A login may be repeated in any of these, so only the [`code`] of the error that answers
//! it is told.

mod reading;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, fmt, ops::Range};

use self::reading::Reading;

/// No more of a text is ever shown: [`printable`](crate::base::printable::printable) cuts it.
const ENOUGH: usize = 1024;
/// How often a text may be escaped: by a server, and by a proxy before it.
const ESCAPED: usize = 2;
/// What escapes begin with. One mark alone too, as a text that is escaped with backslashes may have
/// a percent sign that stands for itself, and the other way round.
const ESCAPES: [&[u8]; 3] = [b"\\%", b"\\", b"%"];
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

/// What only a server and its users may know. An empty secret hides nothing.
pub(super) struct Secret {
    whole: Pieces,
    /// Those of its letters and digits alone.
    squeezed: Pieces,
}

impl Secret {
    pub(super) fn new(secret: &str) -> Self {
        let whole = Reading::of(secret);
        let length = match whole.len() {
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
        let mut told = Vec::new();
        self.find(&Reading::of(text), ESCAPED, &mut told);
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

    /// Adds the places that tell of the secret, in the text as it is and with its escapes undone up
    /// to `escaped` times.
    fn find(&self, text: &Reading, escaped: usize, told: &mut Vec<Range<usize>>) {
        told.extend(self.whole.found_in(text));
        told.extend(self.squeezed.found_in(&text.squeezed()));
        if escaped > 0 {
            for unescaped in ESCAPES.iter().filter_map(|marks| text.unescaped(marks)) {
                self.find(&unescaped, escaped - 1, told);
            }
        }
    }

    /// The same for an error. Its code stays, as it decides what is done.
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
    /// Only a whole word counts, as many words contain a run this short.
    alone: bool,
}

impl Pieces {
    fn new(secret: &Reading, length: usize) -> Self {
        let all = match length {
            0 => HashSet::new(),
            _ => secret.runs(length).map(|run| run.bytes).collect(),
        };
        Self {
            all,
            length,
            alone: secret.len() < PIECE,
        }
    }

    /// Where they stand in the text.
    fn found_in(&self, text: &Reading) -> Vec<Range<usize>> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let runs = text.runs(self.length);
        runs.filter(|run| self.all.contains(&run.bytes) && (!self.alone || run.is_word))
            .map(|run| run.place)
            .collect()
    }
}
