//! Text from outside, made safe to show.

use std::fmt::{self, Write as _};

/// Replaces a text that may not be shown.
pub(crate) const HIDDEN: &str = "***";
/// The text of a server is cut to this many characters.
pub(crate) const LONGEST: usize = 200;

/// Makes text from outside, such as an answer of a server, safe to show. It is cut, and characters that could hide or
/// move something on a terminal or in a log are escaped. All text from outside passes through this function.
pub(crate) fn printable(what: impl fmt::Display) -> String {
    cut(what, LONGEST)
}

/// The same with `longest` characters at most.
pub(crate) fn cut(what: impl fmt::Display, longest: usize) -> String {
    // One place is kept free for the ellipsis.
    let (text, room) = (String::new(), longest - 1);
    let mut shown = Printable { text, room };
    if write!(shown, "{what}").is_err() {
        shown.text.push('…');
    }
    shown.text
}

/// Takes what fits and then stops, so that even a huge answer is never written in full.
struct Printable {
    text: String,
    room: usize,
}

impl fmt::Write for Printable {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            let escaped = c.escape_debug();
            let plain = matches!(c, '"' | '\'' | '\\');
            let width = if plain { 1 } else { escaped.len() };
            self.room = self.room.checked_sub(width).ok_or(fmt::Error)?;
            match plain {
                true => self.text.push(c),
                false => self.text.extend(escaped),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn readable_text_is_unchanged() {
        for plain in ["", "ERR it's \"so\" \\ ünd 100 %", "漢字", "a…"] {
            assert_eq!(printable(plain), plain);
        }
        assert_eq!(printable("a".repeat(199)), "a".repeat(199));
    }

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        for (raw, shown) in [
            ("\x1b[2Jgone", r"\u{1b}[2Jgone"),
            ("a\r\nb\tc\0", r"a\r\nb\tc\0"),
            ("\x7f\u{9b}", r"\u{7f}\u{9b}"),
            (
                "\u{202a}\u{202e}\u{2066}\u{2069}",
                r"\u{202a}\u{202e}\u{2066}\u{2069}",
            ),
            ("\u{200b}\u{feff}\u{2028}", r"\u{200b}\u{feff}\u{2028}"),
        ] {
            assert_eq!(printable(raw), shown);
        }
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(
            printable("ü".repeat(1 << 20)),
            format!("{}…", "ü".repeat(199))
        );
        let text = format!("{}\x1b{}", "a".repeat(195), "b".repeat(99));
        assert_eq!(
            printable(text),
            format!("{}…", "a".repeat(195)),
            "no half escape"
        );
        assert_eq!(
            printable(format_args!("{:?}", vec![7; 1 << 20]))
                .chars()
                .count(),
            200
        );
    }

    proptest! {
        #[test]
        fn printable_text_is_bounded_and_idempotent(bytes in prop::collection::vec(any::<u8>(), 0..900)) {
            let once = printable(String::from_utf8_lossy(&bytes));
            prop_assert!(once.chars().count() <= LONGEST);
            prop_assert!(!once.contains(char::is_control));
            prop_assert_eq!(printable(&once), once);
        }
    }
}
