//! A text as it is compared with a secret: without what spellings differ in, and with the place of every
//! byte in the original.

use std::ops::Range;

/// A text in small letters, with a space for every kind of space, as a server turns a line's end
/// into one. The place of each byte is that of its whole character.
pub(super) struct Reading {
    pub(super) bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

impl Reading {
    pub(super) fn of(text: &str) -> Self {
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
    pub(super) fn place(&self, at: usize, length: usize) -> Option<Range<usize>> {
        let places = self.places.get(at..at + length)?;
        Some(places.first()?.start..places.last()?.end)
    }

    /// Without what may be put between letters.
    pub(super) fn squeezed(&self) -> Self {
        let mut squeezed = Self::empty();
        for (byte, place) in self.bytes.iter().zip(&self.places) {
            if is_letter(byte) {
                squeezed.push_byte(*byte, place.clone());
            }
        }
        squeezed
    }

    /// With what escapes stand for.
    pub(super) fn unescaped(&self) -> Self {
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

/// A letter or digit, in any language.
pub(super) fn is_letter(byte: &u8) -> bool {
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
