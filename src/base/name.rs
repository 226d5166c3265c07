//! The name of a lock: 1 to 512 bytes of free text.
//!
//! A name stands last in every key on a node (protocol §1), so it may hold any character.

#![cfg_attr(not(feature = "unstable-node"), allow(unreachable_pub))]

use std::{borrow::Cow, fmt, slice, sync::Arc};

use crate::Error;

const MAX_BYTES: usize = 512;
const LONGEST_WORD: usize = 64;
/// A script takes a few µs for each name, and a server does nothing else meanwhile.
const MOST_NAMES: usize = 64;

/// The name of the lock in which a read-write lock's writers take turns begins with this.
const TURN: &str = "@rwlock-turn:";
/// Put before a user's name that begins with [`TURN`], with or without more of these in front. So no user's name equals
/// one of the library's own names on a node.
const NOT_OWN: char = '@';

/// A checked name; cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    text: Arc<str>,
    /// This library has made the name, for a lock of its own.
    is_own: bool,
}

impl Name {
    /// Checks the length and keeps the name.
    pub(crate) fn new(name: impl AsRef<str> + Into<Arc<str>>) -> Result<Self, Error> {
        match name.as_ref().len() {
            0 => Err(Error::Invalid(
                "the name is empty: a lock needs a name of 1 to 512 bytes".into(),
            )),
            1..=MAX_BYTES => Ok(Self::of_text(name.into())),
            n => Err(Error::Invalid(match name_and_key(name.as_ref()) {
                Some((_, key)) if n - key.len() < MAX_BYTES => format!(
                    "the key has {} bytes and its name takes {}, but at most {MAX_BYTES} are allowed: use a hash of the key",
                    key.len(),
                    n - key.len(),
                ),
                _ => format!(
                    "the name has {n} bytes, but at most {MAX_BYTES} are allowed: use a hash of it"
                ),
            })),
        }
    }

    /// A name of the library's own, for a part of a lock whose name was checked. It may be longer than a user's name.
    pub(crate) fn of_part(name: String) -> Self {
        Self {
            text: name.into(),
            is_own: true,
        }
    }

    /// The mutex in whose queue the writers of the read-write lock of this name wait.
    pub(crate) fn of_turn(&self) -> Self {
        Self {
            text: format!("{TURN}{self}").into(),
            is_own: true,
        }
    }

    fn of_text(text: Arc<str>) -> Self {
        let is_own = false;
        Self { text, is_own }
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// Returns true for a name that only this library uses.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// The name as it stands last in keys: these two texts, one after the other.
    pub(crate) fn in_keys(&self) -> [&str; 2] {
        let own = TURN.trim_start_matches(NOT_OWN);
        let looks_own = self.text.starts_with(NOT_OWN)
            && self.text.trim_start_matches(NOT_OWN).starts_with(own);
        match looks_own && !self.is_own {
            true => ["@", &self.text],
            false => ["", &self.text],
        }
    }

    /// The name whose text in keys is this. `None` if it is not a user's.
    pub(crate) fn of_key(text: &str) -> Option<Self> {
        let name = Self::new(text).ok()?;
        match name.in_keys() {
            ["", _] => Some(name),
            _ => Self::new(text.strip_prefix(NOT_OWN)?)
                .ok()
                .filter(|name| name.in_keys().concat() == text),
        }
    }
}

/// 1 to 64 names, sorted, each of them once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names(Few);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Few {
    One(Name),
    Many {
        all: Arc<[Name]>,
        /// All names as one text, for people.
        shown: Name,
    },
}

impl Names {
    /// Checks each name, and their number.
    pub(crate) fn new(names: &[Arc<str>]) -> Result<Self, Error> {
        let mut all = names
            .iter()
            .map(|name| Name::new(Arc::clone(name)))
            .collect::<Result<Vec<Name>, Error>>()?;
        all.sort();
        all.dedup();
        match &*all {
            [] => Err(Error::Invalid(
                "no name is given: give the names of 1 to 64 locks".into(),
            )),
            [one] => Ok(one.clone().into()),
            _ if all.len() <= MOST_NAMES => Ok(Self(Few::Many {
                shown: Name::of_text(show(&all).into()),
                all: all.into(),
            })),
            _ => Err(Error::Invalid(format!(
                "{} names are too many to lock at once: give 1 to {MOST_NAMES}",
                all.len()
            ))),
        }
    }

    /// All names, sorted.
    pub fn all(&self) -> &[Name] {
        match &self.0 {
            Few::One(name) => slice::from_ref(name),
            Few::Many { all, .. } => all,
        }
    }

    /// The name, if there is only one.
    pub(crate) fn one(&self) -> Option<&Name> {
        match &self.0 {
            Few::One(name) => Some(name),
            Few::Many { .. } => None,
        }
    }

    /// All names as one text, for people.
    pub(crate) fn shown(&self) -> &Name {
        match &self.0 {
            Few::One(name) => name,
            Few::Many { shown, .. } => shown,
        }
    }
}

impl From<Name> for Names {
    fn from(name: Name) -> Self {
        Self(Few::One(name))
    }
}

/// Joins names by commas.
pub(crate) fn show(names: &[impl fmt::Display]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    names.join(", ")
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

/// The name for one key. The length keeps ("a:b", "c") and ("a", "b:c") apart.
pub(crate) fn keyed(name: &str, key: &str) -> Arc<str> {
    format!("{}:{name}:{key}", name.len()).into()
}

/// The name and the key of which [`keyed`] made this name.
fn name_and_key(text: &str) -> Option<(&str, &str)> {
    let (length, rest) = text.split_once(':')?;
    let (name, key) = rest.split_at_checked(length.parse().ok()?)?;
    Some((name, key.strip_prefix(':')?))
}

/// The name as users gave it; for one that was made for a key, both.
pub(crate) fn as_given(text: &str) -> Cow<'_, str> {
    match name_and_key(text) {
        Some((name, key)) => format!("{name} for {key}").into(),
        None => text.into(),
    }
}

/// Checks a word that stands in keys and records: a key prefix, a fleet's name.
pub(crate) fn check_word(what: &str, word: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
    if !word.is_empty() && word.len() <= LONGEST_WORD && word.chars().all(fits) {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "the {what}{} must be 1 to {LONGEST_WORD} characters of A-Z a-z 0-9 . _ : -",
        quoted(word)
    )))
}

/// A word that was refused, as an error shows it: a space and the word in quotes. A URL in the wrong place may hold a
/// password, so nothing is shown of it.
pub(crate) fn quoted(word: &str) -> String {
    match word.contains(['/', '@']) {
        true => String::new(),
        false => format!(" {word:?}"),
    }
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

    #[test]
    fn a_key_that_is_too_long_is_called_a_key() {
        // "3:api:" and the key.
        assert!(Name::new(keyed("api", &"k".repeat(506))).is_ok());
        let message = Name::new(keyed("api", &"k".repeat(507))).unwrap_err();
        let says = "the key has 507 bytes and its name takes 6, but at most 512 are allowed";
        assert!(message.to_string().contains(says), "{message}");
        let message = Name::new(keyed(&"n".repeat(600), "k")).unwrap_err();
        assert!(
            message.to_string().contains("the name has 606 bytes"),
            "{message}"
        );
    }

    #[test]
    fn a_name_for_a_key_is_shown_as_it_was_given() {
        assert_eq!(as_given(&keyed("a:b", "c")), "a:b for c");
        for plain in ["", "api", "3:api", "9:api:k", "x:api:k", "3:apik"] {
            assert_eq!(as_given(plain), plain);
        }
    }

    #[test]
    fn no_user_name_equals_the_name_of_a_turn() {
        let turn = Name::new("a").unwrap().of_turn();
        assert_eq!(turn.in_keys().concat(), "@rwlock-turn:a");
        assert_eq!(Name::of_key("@rwlock-turn:a"), None);
        for (name, in_keys) in [
            ("@rwlock-turn:a", "@@rwlock-turn:a"),
            ("@@rwlock-turn:a", "@@@rwlock-turn:a"),
            ("rwlock-turn:a", "rwlock-turn:a"),
            ("@rwlock-tur", "@rwlock-tur"),
            ("@a", "@a"),
        ] {
            let name = Name::new(name).unwrap();
            assert_ne!(name, turn);
            assert_eq!(name.in_keys().concat(), in_keys);
            assert_eq!(Name::of_key(in_keys), Some(name));
        }
    }
}
