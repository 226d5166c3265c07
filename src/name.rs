//! The name of what is locked: 1 to 512 bytes of free text.
//!
//! A name stands last in every key on a node (protocol §1), so it may hold any character.

#![cfg_attr(not(feature = "unstable-node"), allow(unreachable_pub))]

use std::{fmt, sync::Arc};

use crate::Error;

const MAX_BYTES: usize = 512;
const LONGEST_WORD: usize = 64;
/// A script takes a few µs for each, and a server does nothing else meanwhile.
const MOST_NAMES: usize = 64;

/// A checked name; cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks the length and keeps the name.
    pub(crate) fn new(name: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, Error> {
        match name.as_ref().len() {
            0 => Err(Error::Invalid(
                "the name is empty: a lock needs a name of 1 to 512 bytes".into(),
            )),
            1..=MAX_BYTES => Ok(Self(name.into())),
            n => Err(Error::Invalid(format!(
                "the name has {n} bytes and at most {MAX_BYTES} are allowed: hash what does not fit"
            ))),
        }
    }

    /// The name of what belongs to one that was checked: longer than that.
    pub(crate) fn of_part(name: String) -> Self {
        Self(name.into())
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

/// Several names, sorted, each there once: 1 to 64 of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    all: Arc<[Name]>,
    shown: Name,
}

impl Names {
    /// Checks each of them, and how many there are.
    pub(crate) fn new(names: &[Arc<str>]) -> Result<Self, Error> {
        let mut all = names
            .iter()
            .map(|name| Name::new(Arc::clone(name)))
            .collect::<Result<Vec<Name>, Error>>()?;
        all.sort();
        all.dedup();
        match all.len() {
            0 => Err(Error::Invalid(
                "no name is given: give the names of 1 to 64 locks".into(),
            )),
            1..=MOST_NAMES => Ok(Self {
                shown: Name(show(&all).into()),
                all: all.into(),
            }),
            n => Err(Error::Invalid(format!(
                "{n} names are too many to be locked at once: give 1 to {MOST_NAMES}"
            ))),
        }
    }

    /// Whether it is a single name.
    pub(crate) fn is_one(&self) -> bool {
        self.all.len() == 1
    }

    pub(crate) fn all(&self) -> Arc<[Name]> {
        Arc::clone(&self.all)
    }

    /// All of them as one text, for people.
    pub(crate) fn shown(&self) -> &Name {
        &self.shown
    }
}

/// Separated by commas.
pub(crate) fn show(names: &[impl fmt::Display]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    names.join(", ")
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The name of one of many. The length keeps ("a:b", "c") and ("a", "b:c") apart.
pub(crate) fn keyed(name: &str, key: &str) -> Arc<str> {
    format!("{}:{name}:{key}", name.len()).into()
}

/// Checks a word that stands in keys and records: a key prefix, a fleet's name, a label.
pub(crate) fn check_word(what: &str, word: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    if !word.is_empty() && word.len() <= LONGEST_WORD && word.chars().all(fits) {
        return Ok(());
    }
    // A URL in the wrong place may hold a password.
    let shown = match word.contains(['/', '@']) {
        true => String::new(),
        false => format!(" {word:?}"),
    };
    Err(Error::Invalid(format!(
        "the {what}{shown} is not 1 to {LONGEST_WORD} characters of A-Z a-z 0-9 . _ : -"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boundaries_are_1_and_512_bytes() {
        assert!(Name::new("").is_err());
        assert!(Name::new("a").is_ok());
        assert!(Name::new("a".repeat(512)).is_ok());
        let message = Name::new("a".repeat(513)).unwrap_err().to_string();
        assert!(message.contains("513 bytes"), "{message}");
    }
}
