//! The owner of an attempt: a random uuid, new for every attempt, and a label that names the holder for operators
//! (protocol §1).

#![cfg_attr(not(feature = "unstable-node"), allow(unreachable_pub))]

use std::{fmt, sync::Arc};

use rand::{Rng, SeedableRng, TryRng, rngs::StdRng, rngs::SysRng};
use uuid::Uuid;

use crate::{Error, base::name::quoted};

/// The longest label, in characters, which are ASCII.
const LONGEST_LABEL: usize = 128;

/// The text that names a holder on a node: `<owner>@<label>`, with the owner as 32 hex digits. Never reused.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry(Arc<str>);

impl Entry {
    /// Joins an owner and its label.
    pub(crate) fn new(owner: Uuid, label: &Label) -> Self {
        let mut buffer = Uuid::encode_buffer();
        let owner: &str = owner.simple().encode_lower(&mut buffer);
        Self([owner, "@", &label.0].concat().into())
    }

    /// Reads an entry. `None` if the text does not have the form of one.
    pub(crate) fn read(text: &str) -> Option<Self> {
        is_entry(text).then(|| Self(text.into()))
    }

    /// The text on the node.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same text, shared.
    pub(crate) fn text(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

/// The owner is printed as a uuid with its hyphens, as users see it elsewhere.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match owner_of(&self.0) {
            Some(owner) => write!(f, "{owner}@{}", label_of(&self.0)),
            None => f.write_str(&self.0),
        }
    }
}

/// Returns true if a text that was read on a node has the form of an [`Entry`].
pub(crate) fn is_entry(text: &str) -> bool {
    owner_of(text).is_some()
}

/// The owner of an entry that was read on a node. `None` if the text does not have the form of an [`Entry`].
pub(crate) fn owner_of(entry: &str) -> Option<Uuid> {
    let (owner, label) = entry.split_once('@')?;
    let lower_hex = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
    if owner.len() != 32 || !owner.bytes().all(lower_hex) || !is_label(label) {
        return None;
    }
    Uuid::try_parse(owner).ok()
}

/// The label of an entry that was read on a node; the whole text if it has no `@`.
pub(crate) fn label_of(entry: &str) -> &str {
    entry.split_once('@').map_or(entry, |(_, label)| label)
}

/// Returns true for a character that a label may hold. A space would end an entry in a text on a node, and an `@` its
/// owner. Nearly every URL with a password has an `@` too. Quotes and backslashes would need escapes in logs and JSON.
fn fits_label(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '@' | '"' | '\'' | '\\')
}

fn is_label(text: &str) -> bool {
    (1..=LONGEST_LABEL).contains(&text.len()) && text.chars().all(fits_label)
}

/// The holder's name for people: 1 to 128 printable ASCII characters, without space, `@`, quotes and `\`.
#[derive(Clone, Debug)]
pub(crate) struct Label(Arc<str>);

impl Label {
    pub(crate) fn new(label: &str) -> Result<Self, Error> {
        // In the URL of a socket a password stands behind `pass=`.
        let has_password = label.contains("pass=");
        match is_label(label) && !has_password {
            true => Ok(Self(label.into())),
            false => Err(Error::Invalid(format!(
                "the label{} must be 1 to {LONGEST_LABEL} printable ASCII characters, without spaces, @, quotes and \
                 backslashes",
                quoted(label)
            ))),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// `host:pid`, without the characters that a label may not hold.
    pub(crate) fn of_this_process() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname")
            .ok()
            .or_else(|| std::env::var("HOSTNAME").ok())
            .unwrap_or_default();
        let mut host: String = host
            .trim()
            .chars()
            .filter(|c| fits_label(*c))
            // The rest is for the colon and the pid.
            .take(LONGEST_LABEL - 16)
            .collect();
        if host.is_empty() {
            host.push_str("host");
        }
        Self(format!("{host}:{}", std::process::id()).into())
    }
}

/// The source of random numbers. Owners are read from the operating system each time, because a generator in user space
/// gives two forked processes the same owner. A seed replays a simulation.
pub(crate) enum Chance {
    System,
    #[cfg_attr(not(any(test, feature = "test-util")), allow(dead_code))]
    Seeded(Box<StdRng>),
    /// Acts as if the operating system had no random bits.
    #[cfg(test)]
    Dry,
}

impl Chance {
    #[cfg_attr(not(any(test, feature = "test-util")), allow(dead_code))]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self::Seeded(Box::new(StdRng::seed_from_u64(seed)))
    }

    /// 128 fresh bits, or an error if the operating system has none.
    pub(crate) fn bits(&mut self) -> Result<u128, Error> {
        let mut bytes = [0; 16];
        match self {
            Self::System => SysRng.try_fill_bytes(&mut bytes).map_err(|why| {
                Error::System(format!("the operating system gave no random bits: {why}"))
            })?,
            Self::Seeded(rng) => rng.fill_bytes(&mut bytes),
            #[cfg(test)]
            Self::Dry => {
                return Err(Error::System(
                    "the operating system gave no random bits: a test".into(),
                ));
            }
        }
        Ok(u128::from_be_bytes(bytes))
    }

    /// An owner that nobody had before.
    pub(crate) fn owner(&mut self) -> Result<Uuid, Error> {
        let bytes = self.bits()?.to_be_bytes();
        Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }

    /// A number of `0..=most`, for jitter only.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        let random = match self {
            Self::System => rand::rng().next_u64(),
            Self::Seeded(rng) => rng.next_u64(),
            #[cfg(test)]
            Self::Dry => 0,
        };
        most.checked_add(1).map_or(random, |n| random % n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_32_hex_digits_and_the_label() {
        let label = Label::new("web-1:77").unwrap();
        let owner = Uuid::from_u128(0xab);
        let entry = Entry::new(owner, &label);
        assert_eq!(entry.as_str(), "000000000000000000000000000000ab@web-1:77");
        assert_eq!(owner_of(entry.as_str()), Some(owner));
        assert_eq!(
            format!("{entry:?}"),
            "00000000-0000-0000-0000-0000000000ab@web-1:77"
        );
        assert_eq!(label_of(entry.as_str()), "web-1:77");
        assert_eq!(label_of("no label"), "no label");
    }

    #[test]
    fn an_entry_is_recognised_by_its_form() {
        let owner = "0123456789abcdef0123456789abcdef";
        let long = "a".repeat(129);
        assert!(is_entry(&format!("{owner}@web-1:77")));
        assert!(is_entry(&format!("{owner}@{}", "~".repeat(128))));
        for bad in [
            String::new(),
            owner.into(),
            format!("{owner}@"),
            format!("{owner}@{long}"),
            format!("{owner}@a b"),
            format!("{owner}@a@b"),
            format!("{owner}@a\\b"),
            format!("{owner}@a\"b"),
            format!("{owner}@a\u{1b}[2Jb"),
            format!("{owner}0@a"),
            format!("{}@a", &owner[1..]),
            format!("{}@a", owner.to_uppercase()),
            format!("g{}@a", &owner[1..]),
            "01234567-89ab-cdef-0123-456789abcdef@a".into(),
            "{0123456789abcdef0123456789abcd}@a".into(),
        ] {
            assert!(!is_entry(&bad), "{bad:?}");
        }
    }

    #[test]
    fn labels_hold_what_the_protocol_allows() {
        for good in [
            &"a".repeat(128),
            "10.0.0.7:8080",
            "https://[fe80::1%25eth0]:8080/path?x=1&y=%20#z",
            "!#$%&()*+,-./:;<=>?[]^_`{|}~",
        ] {
            assert_eq!(Label::new(good).unwrap().0.as_ref(), good);
        }
        let long = "a".repeat(129);
        for bad in [
            "", " ", "a b", "a@b", "ä", "a\tb", "a\nb", "a\x1bb", "a\x7fb", "a\"b", "a'b", "a\\b",
            &long,
        ] {
            assert!(Label::new(bad).is_err(), "{bad:?}");
        }
        for secret in [
            "redis://user:geheim@host",
            "redis://:geheim@h /",
            "unix:///run/r.sock?user=u&pass=geheim",
            "geheim@h",
        ] {
            let error = Label::new(secret).unwrap_err().to_string();
            assert!(!error.contains("geheim"), "{error}");
            assert!(error.contains("1 to 128 printable"), "{error}");
        }
        let own = Label::of_this_process();
        assert!(Label::new(&own.0).is_ok(), "{own:?}");
    }

    #[test]
    fn owners_differ() {
        let mut chance = Chance::System;
        let (one, other) = (chance.owner().unwrap(), chance.owner().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.get_version(), Some(uuid::Version::Random));
    }

    #[test]
    fn a_seed_replays_its_owners() {
        let owner = || Chance::seeded(7).owner().unwrap();
        assert_eq!(owner(), owner());
    }
}
