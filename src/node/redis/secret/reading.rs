//! A text as it is compared with a secret: without what spellings differ in, and with the place of every
//! byte in the original.

use std::ops::Range;

/// The longest escape, `\u{10ffff}`, has this many bytes.
const LONGEST: usize = 10;

/// A text in small letters, with a space for every kind of space, as a server turns a line's end
/// into one.
///
/// It can be read from any byte on, as what stands before an escaped secret may not decide how the
/// secret is read. A backslash in front would escape the backslash that the secret begins with, and
/// a `%` its first two letters.
pub(super) struct Reading {
    /// Stored backwards: each step comes after the one that it leads to.
    steps: Vec<Step>,
}

struct Step {
    byte: u8,
    /// The whole character or escape that the byte is of.
    place: Range<usize>,
    /// The index of the step that follows.
    next: Option<usize>,
}

/// Some bytes in a row.
pub(super) struct Run {
    pub(super) bytes: Vec<u8>,
    /// Where they stand in the text.
    pub(super) place: Range<usize>,
    /// No letter stands before them or behind them.
    pub(super) is_word: bool,
}

impl Reading {
    pub(super) fn of(text: &str) -> Self {
        let (mut reading, mut next) = (Self::empty(), None);
        for (at, c) in text.char_indices().rev() {
            next = reading.push(Letter::Char(c), at..at + c.len_utf8(), next);
        }
        reading
    }

    fn empty() -> Self {
        Self { steps: Vec::new() }
    }

    /// Puts a letter before the step `next`, and says which step it begins with.
    fn push(&mut self, letter: Letter, place: Range<usize>, next: Option<usize>) -> Option<usize> {
        let mut utf8 = [0; 4];
        let bytes = match letter {
            Letter::Byte(byte) => &[byte],
            Letter::Char(c) => c.encode_utf8(&mut utf8).as_bytes(),
        };
        bytes.iter().rev().fold(next, |next, byte| {
            let byte = match byte.is_ascii_whitespace() {
                true => b' ',
                false => byte.to_ascii_lowercase(),
            };
            let place = place.clone();
            self.steps.push(Step { byte, place, next });
            self.steps.len().checked_sub(1)
        })
    }

    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// All runs of this length, from any byte on.
    pub(super) fn runs(&self, length: usize) -> impl Iterator<Item = Run> {
        let in_word = self.in_word();
        let run = move |(first, in_word): (&Step, bool)| {
            let mut run = Run {
                bytes: Vec::with_capacity(length),
                place: first.place.clone(),
                is_word: !in_word,
            };
            let mut steps = self.from(first);
            for step in steps.by_ref().take(length) {
                run.bytes.push(step.byte);
                run.place.end = step.place.end;
            }
            run.is_word &= !steps.next().is_some_and(|after| is_letter(after.byte));
            (run.bytes.len() == length).then_some(run)
        };
        self.steps.iter().zip(in_word).filter_map(run)
    }

    fn from<'a>(&'a self, first: &'a Step) -> impl Iterator<Item = &'a Step> {
        std::iter::successors(Some(first), |step| self.steps.get(step.next?))
    }

    /// For each step, whether only letters lead to it, and at least one.
    fn in_word(&self) -> Vec<bool> {
        let mut leads = vec![None; self.steps.len()];
        for step in &self.steps {
            if let Some(lead) = step.next.and_then(|next| leads.get_mut(next)) {
                *lead = Some(lead.unwrap_or(true) && is_letter(step.byte));
            }
        }
        leads.into_iter().map(|lead| lead == Some(true)).collect()
    }

    /// Without what may be put between letters.
    pub(super) fn squeezed(&self) -> Self {
        self.rewritten(|step| is_letter(step.byte).then_some((Letter::Byte(step.byte), step)))
    }

    /// With what the escapes that begin with these marks stand for. `None` if a mark is missing.
    pub(super) fn unescaped(&self, marks: &[u8]) -> Option<Self> {
        let has = |mark: &u8| self.steps.iter().any(|step| step.byte == *mark);
        let read = |first| {
            let steps: Vec<&Step> = self.from(first).take(LONGEST).collect();
            let bytes: Vec<u8> = steps.iter().map(|step| step.byte).collect();
            let (letter, length) = escape(&bytes);
            Some((letter, *steps.get(length.checked_sub(1)?)?))
        };
        marks.iter().all(has).then(|| {
            self.rewritten(|step| match marks.contains(&step.byte) {
                true => read(step),
                false => Some((Letter::Byte(step.byte), step)),
            })
        })
    }

    /// With what `read` makes of each step: a letter, and the last step that stands for it. Without
    /// the step, if it makes nothing of it.
    fn rewritten<'a>(&'a self, read: impl Fn(&'a Step) -> Option<(Letter, &'a Step)>) -> Self {
        let mut written = Self::empty();
        // Where the text goes on, for each step.
        let mut starts: Vec<Option<usize>> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let after = |step: &Step| starts.get(step.next?).copied().flatten();
            let start = match read(step) {
                Some((letter, last)) => {
                    written.push(letter, step.place.start..last.place.end, after(last))
                }
                None => after(step),
            };
            starts.push(start);
        }
        written
    }
}

/// A letter or digit, in any language.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
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
