//! Texts for bytes of a server that are not a reply, or are too long.

use crate::base::printable::printable;

/// The longest reply that is accepted. Normal replies have some hundred bytes.
pub(super) const MAX_FRAME: usize = 1 << 20;

/// The number of characters of such bytes that are shown. It is small, because a server may repeat what was sent.
const EXCERPT: usize = 20;

/// The input is not valid RESP, or there is too much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node::redis) struct Garbage {
    why: String,
    /// The bytes that the server sent instead.
    says: Option<Vec<u8>>,
}

impl Garbage {
    /// These bytes are the beginning of something that is not RESP.
    pub(super) fn not_resp(bytes: &[u8]) -> Self {
        // 21 is the first byte of a TLS alert, with which a TLS port answers a plain HELLO.
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

    /// It sends message after message that was not requested or subscribed to.
    pub(super) fn unasked() -> Self {
        Self::new("sends messages that were not requested")
    }

    pub(super) fn endless() -> Self {
        Self::new("nests its answers too deeply")
    }

    fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            says: None,
        }
    }

    /// Completes "the server ...". `shown` returns the part of the words that may be shown. They are cut afterwards.
    pub(in crate::node::redis) fn text(&self, shown: impl FnOnce(&str) -> String) -> String {
        let Some(says) = &self.says else {
            return self.why.clone();
        };
        let words = shown(&String::from_utf8_lossy(says));
        let line = words.split(['\r', '\n']).next().unwrap_or_default();
        let excerpt: String = line.chars().take(EXCERPT).collect();
        format!("{}: it says \"{}\"", self.why, printable(excerpt))
    }
}
