//! Keeps passwords out of what is shown of a server's texts. This file is pure.
//!
//! A text that contains the whole password, plain or percent-encoded, is not shown. ASCII letters are compared without
//! case. Pieces of the password and other encodings are not recognised. So only the [`code`] is shown of the answer to
//! a login. No other request contains a password.

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::base::printable::HIDDEN;

/// The first words of servers of other kinds, and how much of them is shown: a version and a status.
const STRANGERS: [(&str, usize); 3] = [
    ("HTTP/", "HTTP/1.1 400".len()),
    ("SSH-", "SSH-2.0".len()),
    ("220 ", "220 ".len()),
];

/// The first words of errors that the client acts on, or that people look up. They reveal nothing of
/// any password.
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

/// The first word of an error, if it is a known code. Otherwise an empty text.
pub(super) fn code(error: &str) -> &str {
    let word = error.split_ascii_whitespace().next().unwrap_or_default();
    match CODES.contains(&word) && error.starts_with(word) {
        true => word,
        false => "",
    }
}

/// The last passwords of a connection in lower case, the newest last. An empty one hides nothing.
pub(super) struct Secret(Vec<String>);

/// The number of passwords that are remembered. A connection that logs in again may still hear of the one before.
const KEPT: usize = 16;

impl Secret {
    pub(super) fn new(secret: &str) -> Self {
        let mut new = Self(Vec::new());
        new.add(secret);
        new
    }

    /// Hides this password too.
    pub(super) fn add(&mut self, secret: &str) {
        let secret = secret.to_ascii_lowercase();
        if secret.is_empty() || self.0.contains(&secret) {
            return;
        }
        if self.0.len() == KEPT {
            self.0.remove(0);
        }
        self.0.push(secret);
    }

    /// The text, or `***` if it contains the secret.
    pub(super) fn hidden<'t>(&self, text: &'t str) -> &'t str {
        match self.is_in(text) {
            true => HIDDEN,
            false => text,
        }
    }

    /// The error, or its code alone if the error contains the secret.
    pub(super) fn hidden_in_error<'t>(&self, error: &'t str) -> &'t str {
        match (self.is_in(error), code(error)) {
            (false, _) => error,
            (true, "") => HIDDEN,
            (true, code) => code,
        }
    }

    /// The part that may be shown of bytes that are not RESP. Such a server may repeat a login, or a part of it, in any
    /// form. So only the name of its protocol and a status are shown.
    pub(super) fn hidden_in_garbage<'t>(&self, words: &'t str) -> &'t str {
        if self.0.is_empty() {
            return words;
        }
        let mut strangers = STRANGERS.into_iter();
        let Some((name, shown)) = strangers.find(|(name, _)| words.starts_with(name)) else {
            return HIDDEN;
        };
        let is_plain = |c: char| c.is_ascii_digit() || c == '.' || c == ' ';
        let status = words
            .get(..shown)
            .filter(|status| status.chars().skip(name.len()).all(is_plain) && !self.is_in(words));
        status.unwrap_or(name)
    }

    fn is_in(&self, text: &str) -> bool {
        let has = |text: &str| {
            let text = text.to_ascii_lowercase();
            self.0.iter().any(|secret| text.contains(secret))
        };
        !self.0.is_empty() && (has(text) || has(&percent_decode_str(text).decode_utf8_lossy()))
    }
}

/// Shows nothing, so that the password is not logged by accident.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_with_the_secret_plain_or_percent_encoded_is_hidden() {
        let secret = Secret::new("It's%20 ü");
        for text in [
            "it's%20 ü",
            "<IT'S%20 ü>",
            "it's%2520%20%C3%BC",
            "%49%74%27%73%25%32%30%20%c3%bc and more",
        ] {
            assert_eq!(secret.hidden(text), "***", "{text}");
        }
        for text in ["it's%20", "it's 20 ü", "", "%", "%4"] {
            assert_eq!(secret.hidden(text), text);
        }
        assert_eq!(Secret::new("").hidden("no secret"), "no secret");
    }

    #[test]
    fn garbage_is_shown_by_its_protocol_and_status_alone() {
        let secret = Secret::new("1.1 40");
        for (words, shown) in [
            ("HTTP/1.0 400 Bad", "HTTP/1.0 400"),
            ("HTTP/1.1 400 Bad", "HTTP/"),
            ("HTTP/hunter2", "HTTP/"),
            ("SSH-1.1 40", "SSH-"),
            ("SSH-2.0-x", "SSH-2.0"),
            ("220 1.1 4", "220 "),
            ("1.1 4", "***"),
        ] {
            assert_eq!(secret.hidden_in_garbage(words), shown, "{words}");
        }
        assert_eq!(Secret::new("").hidden_in_garbage("any"), "any");
    }

    #[test]
    fn error_with_the_secret_is_shown_by_its_code_alone() {
        let shown = |error| Secret::new("readonly").hidden_in_error(error).to_owned();
        assert_eq!(shown("ERR it is readonly"), "ERR");
        assert_eq!(shown("Error: readonly"), "***");
        assert_eq!(shown("READONLY"), "READONLY");
        assert_eq!(shown("ERR\r\n"), "ERR\r\n");
        assert_eq!(code(" ERR x"), "");
        assert_eq!(code("ERRor"), "");
    }
}
