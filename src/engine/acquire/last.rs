//! The last answer of each node to a queued acquisition, reduced to what its caller may be told. Many acquisitions may
//! be queued, so this takes a third of the memory of [`Answers`].

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use crate::{
    FencingToken, Silence, Vote,
    node::answer::{Ahead, Answer, Slots},
    protocol::ballot::answers::{Answers, Evidence},
};

pub(super) struct Last(Box<[Word]>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    /// The node was not asked, or has not answered.
    Nothing,
    Ours(FencingToken),
    /// Another owner holds it: for how much longer, and its entry. Each is `None` if the node did not say.
    Held(Option<Left>, Option<Arc<str>>),
    Else,
    Silent(Box<Silence>),
}

/// A time in ms, as nodes tell it. One is added to it, so that it is never zero and an `Option` of it takes four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Left(NonZeroU32);

impl Left {
    fn new(left: Duration) -> Self {
        let ms = u32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u32::MAX);
        Self(NonZeroU32::MIN.saturating_add(ms))
    }

    fn time(self) -> Duration {
        Duration::from_millis(u64::from(self.0.get() - 1))
    }
}

impl Last {
    pub(super) fn new(nodes: usize) -> Self {
        Self(vec![Word::Nothing; nodes].into())
    }

    pub(super) fn set(&mut self, node: usize, answer: Result<Answer, Silence>) {
        let word = match answer {
            Ok(
                Answer::InLine {
                    ahead:
                        Ahead {
                            remaining, holder, ..
                        },
                    ..
                }
                | Answer::Held {
                    remaining, holder, ..
                },
            ) => Word::Held(remaining.map(Left::new), self.once(holder)),
            Ok(Answer::Slots(Slots {
                mine: None,
                next_free,
                ..
            })) => Word::Held(next_free.map(Left::new), None),
            Ok(Answer::Conflict(_)) => Word::Held(None, None),
            Ok(
                Answer::Taken { counter, .. }
                | Answer::Slots(Slots {
                    mine: Some((_, counter)),
                    ..
                }),
            ) => Word::Ours(FencingToken::from_counter(counter)),
            Ok(_) => Word::Else,
            Err(silence) => Word::Silent(Box::new(silence)),
        };
        if let Some(last) = self.0.get_mut(node) {
            *last = word;
        }
    }

    /// The node is asked again. It no longer counts as silent, until it fails to answer the new request.
    pub(super) fn asked_again(&mut self, node: usize) {
        if let Some(last @ Word::Silent(_)) = self.0.get_mut(node) {
            *last = Word::Nothing;
        }
    }

    /// The number of nodes that have answered.
    pub(super) fn answered(&self) -> usize {
        let is_answer = |word: &&Word| !matches!(word, Word::Nothing | Word::Silent(_));
        self.0.iter().filter(is_answer).count()
    }

    /// Nodes that have not answered are not waited for any more.
    pub(super) fn end(&mut self) {
        for word in &mut self.0 {
            if *word == Word::Nothing {
                *word = Word::Silent(Box::new(Silence::WaitOver));
            }
        }
    }

    /// Returns true if the node did not answer the last request.
    pub(super) fn is_silent(&self, node: usize) -> bool {
        matches!(self.0.get(node), Some(Word::Silent(_)))
    }

    /// Returns true if any node said that it has changed since it was met.
    pub(super) fn is_any_stale(&self) -> bool {
        let stale = |word: &Word| {
            matches!(word, Word::Silent(silence)
                if matches!(**silence, Silence::NotAdmitted | Silence::ScriptsFlushed))
        };
        self.0.iter().any(stale)
    }

    pub(super) fn is_any_silent(&self) -> bool {
        self.0.iter().any(|word| matches!(word, Word::Silent(_)))
    }

    /// Keeps the text of a holder once: usually all nodes name the same one.
    fn once(&self, holder: Option<Arc<str>>) -> Option<Arc<str>> {
        let known = self.0.iter().find_map(|word| match word {
            Word::Held(_, known) if *known == holder => known.clone(),
            _ => None,
        });
        known.or(holder)
    }

    /// In how much time all of it will be free, according to the nodes.
    pub(super) fn free_in(&self) -> Option<Duration> {
        let left = self.0.iter().filter_map(|word| match word {
            Word::Held(left, _) => *left,
            _ => None,
        });
        left.max().map(Left::time)
    }

    /// The same answers as evidence for a report.
    pub(super) fn answers(&self) -> Answers<impl Evidence + PartialEq> {
        let mut answers = Answers::new(self.0.len());
        for (node, word) in self.0.iter().enumerate() {
            match word {
                Word::Nothing => {}
                Word::Silent(silence) => answers.set(node, Err(Silence::clone(silence))),
                word => answers.set(node, Ok(word.clone())),
            }
        }
        answers
    }
}

impl Evidence for Word {
    fn vote(&self) -> Vote {
        match self {
            Self::Ours(token) => Vote::Granted(*token),
            Self::Held(left, _) => Vote::Held(left.map(Left::time)),
            Self::Else => Vote::Confirmed,
            Self::Nothing => Vote::NotWaitedFor,
            Self::Silent(silence) => Vote::None(Silence::clone(silence)),
        }
    }

    fn holder(&self) -> Option<&str> {
        match self {
            Self::Held(_, holder) => holder.as_deref(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_small_and_equal_holders_share_memory() {
        assert!(size_of::<Word>() <= 24, "{}", size_of::<Word>());
        let behind = |holder: &str| Answer::InLine {
            rank: 1,
            ahead: Ahead {
                remaining: None,
                holder: Some(holder.into()),
                ticket: 0,
                is_reserved: false,
            },
        };
        let mut last = Last::new(3);
        last.set(0, Ok(behind("a")));
        last.set(1, Ok(behind("b")));
        last.set(2, Ok(behind("a")));
        let holder = |node: usize| match &last.0[node] {
            Word::Held(_, Some(holder)) => Arc::clone(holder),
            other => panic!("{other:?}"),
        };
        assert!(Arc::ptr_eq(&holder(0), &holder(2)));
        assert_eq!(&*holder(1), "b");
    }

    #[test]
    fn remaining_time_is_rounded_up_to_whole_milliseconds() {
        let told = |left: Duration| Left::new(left).time();
        let ms = Duration::from_millis;
        assert_eq!(told(Duration::ZERO), Duration::ZERO);
        assert_eq!(told(ms(1)), ms(1));
        assert_eq!(told(Duration::from_micros(1)), ms(1));
        assert_eq!(told(ms(86_400_000)), ms(86_400_000));
        assert!(told(Duration::MAX) > ms(49 * 86_400_000), "some 49 days");
    }
}
