//! What is said of a server whose bytes are no reply, or too long a one.

use crate::base::printable::printable;

/// The longest reply that is accepted. Ours are some hundred bytes.
pub(super) const MAX_FRAME: usize = 1 << 20;

/// How many characters of such bytes are told. Few, as a server may repeat what was sent.
const EXCERPT: usize = 20;

/// What arrived is not valid RESP, or too much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node::redis) struct Garbage {
    why: String,
    /// What the server says instead.
    says: Option<Vec<u8>>,
}

impl Garbage {
    /// These bytes are the beginning of something else.
    pub(super) fn not_resp(bytes: &[u8]) -> Self {
        // 21 is the first byte of a TLS alert, what a TLS port says to a plain HELLO.
        if bytes.starts_with(&[21, 3]) {
            return Self::new("speaks TLS on this port: use rediss://, or its plain port");
        }
        Self {
            why: "does not speak RESP".into(),
            says: Some(bytes.to_vec()),
        }
    }

    pub(super) fn oversize() -> Self {
        Self::new(format!(
            "sends an answer of more than {} KiB",
            MAX_FRAME >> 10
        ))
    }

    /// It sends a line that does not end.
    pub(super) fn endless_line() -> Self {
        Self::new("sends a line that does not end")
    }

    /// It sends message after message that answers nothing and that nobody subscribed to.
    pub(super) fn unasked() -> Self {
        Self::new("sends messages that nobody asked for")
    }

    pub(super) fn endless() -> Self {
        Self::new("nests its answers without end")
    }

    fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            says: None,
        }
    }

    /// Completes "the server ...". `clean` takes out what nobody may read, before the text is cut.
    pub(in crate::node::redis) fn text(&self, clean: impl FnOnce(&str) -> String) -> String {
        let Some(says) = &self.says else {
            return self.why.clone();
        };
        let words = clean(&String::from_utf8_lossy(says));
        let line = words.split(['\r', '\n']).next().unwrap_or_default();
        let excerpt: String = line.chars().take(EXCERPT).collect();
        format!("{}: it says \"{}\"", self.why, printable(excerpt))
    }
}
