//! Pushes: messages that a node sends unasked to a waiter, through the channel of the waiter's process (protocol §5).

use std::{sync::Arc, time::Duration};

use crate::base::{owner::Entry, token::FencingToken};

/// A message to one waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The waiter.
    pub entry: Entry,
    /// The message.
    pub says: Says,
}

/// The content of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// The lock is handed over, for the term with which the waiter was registered.
    Granted {
        /// The number of the request by which the waiter was registered.
        seq: u64,
        /// The counter.
        token: u64,
        /// The guard of the memory that handed over. Servers replicate what they publish, so the connection by which
        /// a message came does not say which memory sent it.
        guard: Arc<str>,
    },
    /// The lock is free, and kept for the waiter for a while, so the waiter has to ask. For a slot: the waiter is far
    /// enough in front to ask.
    Called,
    /// A slot is free, and the waiter is far enough in front to take it.
    Free {
        /// The slot.
        slot: u32,
    },
    /// A read-write lock was freed, so waiters may ask again.
    Freed,
    /// The waiter is the next one or the first. It should ask now, and again after this time.
    Next {
        /// The longest time until those before it are over.
        after: Duration,
    },
}

impl Push {
    /// Reads the text of a message. Returns `None` if it is not a push of this library.
    pub(crate) fn read(text: &str) -> Option<Self> {
        // The guard is the last part of a hand-over, and has spaces in it.
        let mut words = text.splitn(5, ' ');
        let (kind, entry) = (words.next()?, Entry::read(words.next()?)?);
        let mut number = || words.next()?.parse::<u64>().ok();
        let says = match kind {
            "S" => Says::Free {
                slot: number()?.try_into().ok()?,
            },
            "G" => Says::Granted {
                seq: number()?,
                token: number().filter(|token| *token <= FencingToken::MAX)?,
                guard: words.next()?.into(),
            },
            "W" => Says::Called,
            "F" => Says::Freed,
            "N" => Says::Next {
                after: Duration::from_millis(number()?),
            },
            _ => return None,
        };
        words.next().is_none().then_some(Self { entry, says })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str =
        "000000000000000000000000000000ab@https://web-1:77/a?b=1&c,d;e|f#g%20*{}[]<>$`";

    #[test]
    fn a_message_names_the_waiter_and_says_one_of_five_things() {
        let says = |text: &str| Push::read(&text.replace("ENTRY", ENTRY)).map(|push| push.says);
        let (seq, token, guard) = (3, 1 << 51, "30000 3 3 list 5000 id".into());
        let granted = Says::Granted { seq, token, guard };
        let text = format!("G ENTRY 3 {token} 30000 3 3 list 5000 id");
        assert_eq!(says(&text), Some(granted));
        assert_eq!(says("W ENTRY"), Some(Says::Called));
        let after = Duration::from_millis(50);
        assert_eq!(says("N ENTRY 50"), Some(Says::Next { after }));
        assert_eq!(says("S ENTRY 7"), Some(Says::Free { slot: 7 }));
        assert_eq!(says("F ENTRY"), Some(Says::Freed));
        for text in [
            "S ENTRY",
            "S ENTRY 4294967296",
            "",
            "G",
            "G ENTRY",
            "G ENTRY 1 2",
            "G ENTRY x 2 3",
            "G ENTRY 1 9007199254740992 guard",
            "W",
            "W ENTRY 1",
            "W nobody",
            "N ENTRY",
            "N ENTRY -1",
            "X ENTRY",
            "W  ENTRY",
        ] {
            assert_eq!(says(text), None, "{text:?}");
        }
    }
}
