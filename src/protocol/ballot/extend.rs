//! The vote on an extension (protocol §3, client step 7).

use super::answers::{Answers, Heard};
use crate::{Silence, node::answer::Answer};

/// The result of the answers so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Open,
    /// Q nodes extended the lease. It counts only if the old validity has not ended when this is processed.
    Extended,
    /// Too many nodes say that the lock is not held by this entry. No majority can extend it, so it is not repaired
    /// either.
    Evicted,
    /// Too few nodes answered. The old validity stands.
    Failed,
}

/// The answers to one EXTEND.
#[derive(Debug)]
pub(crate) struct Ballot {
    answers: Answers<Answer>,
    needed: usize,
}

impl Ballot {
    pub(crate) fn new(nodes: usize, needed: usize) -> Self {
        Self {
            answers: Answers::new(nodes),
            needed,
        }
    }

    /// The nodes that say that the lock is not held by this entry.
    pub(crate) fn gone(&self) -> impl Iterator<Item = usize> + '_ {
        let lost = |h: &Heard<Answer>| *h == Heard::Said(Answer::Lost);
        (0..self.answers.len()).filter(move |&n| self.answers.get(n).is_some_and(lost))
    }

    pub(crate) fn vote(&mut self, node: usize, answer: Result<Answer, Silence>) {
        self.answers.set(node, answer);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let extended = self.answers.count(|r| *r == Answer::Extended);
        let gone = self.answers.count(|r| *r == Answer::Lost);
        if extended >= self.needed {
            Verdict::Extended
        } else if self.answers.len() - gone < self.needed {
            Verdict::Evicted
        } else if extended + self.answers.waiting() < self.needed {
            Verdict::Failed
        } else {
            Verdict::Open
        }
    }

    pub(crate) fn answers(&self) -> &Answers<Answer> {
        &self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(votes: &[Option<Result<Answer, Silence>>]) -> Verdict {
        let n = votes.len();
        let mut ballot = Ballot::new(n, crate::base::majority::majority(n));
        for (node, vote) in votes.iter().enumerate() {
            if let Some(vote) = vote {
                ballot.vote(node, vote.clone());
            }
        }
        ballot.verdict()
    }

    #[test]
    fn q_acks_extend_and_fewer_do_not() {
        let ack = || Some(Ok(Answer::Extended));
        let dead = || Some(Err(Silence::Stalled));
        let gone = || Some(Ok(Answer::Lost));
        assert_eq!(verdict(&[ack(), ack(), None, None, None]), Verdict::Open);
        assert_eq!(
            verdict(&[ack(), ack(), ack(), gone(), gone()]),
            Verdict::Extended
        );
        assert_eq!(
            verdict(&[ack(), ack(), dead(), dead(), dead()]),
            Verdict::Failed
        );
        assert_eq!(
            verdict(&[ack(), ack(), gone(), dead(), gone()]),
            Verdict::Failed
        );
        assert_eq!(
            verdict(&[gone(), gone(), gone(), None, None]),
            Verdict::Evicted
        );
    }
}
