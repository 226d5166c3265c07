//! The answers to a RELEASE for which a caller waits.

use super::answers::{Answers, Heard};
use crate::{Silence, node::answer::Answer};

/// The result of the answers so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Open,
    /// A majority confirms the release.
    Released,
    /// The lock was no longer held on a majority.
    Gone,
    /// Too few nodes answered. The entries on the others expire.
    NoQuorum,
}

/// The answers to one RELEASE, and the nodes on which the lock was known to stand.
#[derive(Debug)]
pub(crate) struct Ballot {
    answers: Answers<Answer>,
    held_on: Vec<usize>,
    needed: usize,
}

impl Ballot {
    pub(crate) fn new(nodes: usize, needed: usize, held_on: Vec<usize>) -> Self {
        Self {
            answers: Answers::new(nodes),
            held_on,
            needed,
        }
    }

    pub(crate) fn vote(&mut self, node: usize, answer: Result<Answer, Silence>) {
        self.answers.set(node, answer);
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let freed = self.answers.count(|r| *r == Answer::Released(true));
        if freed >= self.needed {
            return Verdict::Released;
        }
        if self.answers.waiting() > 0 {
            return Verdict::Open;
        }
        // A node that does not answer may still have it. A node that says "not yours" has not.
        let silent = |n: &&usize| matches!(self.answers.get(**n), Some(Heard::Silent(_)));
        let may_keep = self.held_on.iter().filter(silent).count();
        let answered = self.answers.count(|r| matches!(r, Answer::Released(_)));
        if freed + may_keep < self.needed {
            Verdict::Gone
        } else if answered >= self.needed {
            Verdict::Released
        } else {
            Verdict::NoQuorum
        }
    }

    pub(crate) fn answers(&self) -> &Answers<Answer> {
        &self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(held_on: &[usize], votes: &[Option<Result<Answer, Silence>>]) -> Verdict {
        let n = votes.len();
        let q = crate::base::majority::majority(n);
        let mut ballot = Ballot::new(n, q, held_on.to_vec());
        for (node, vote) in votes.iter().enumerate() {
            if let Some(vote) = vote {
                ballot.vote(node, vote.clone());
            }
        }
        ballot.verdict()
    }

    #[test]
    fn a_release_is_confirmed_gone_or_unknown() {
        let freed = || Some(Ok(Answer::Released(true)));
        let not_ours = || Some(Ok(Answer::Released(false)));
        let dead = || Some(Err(Silence::Stalled));
        let all = [0, 1, 2, 3, 4];
        let three = [0, 1, 2];
        assert_eq!(
            verdict(&all, &[freed(), freed(), freed(), None, None]),
            Verdict::Released
        );
        assert_eq!(
            verdict(&all, &[freed(), freed(), None, None, None]),
            Verdict::Open
        );
        let evicted = [not_ours(), not_ours(), not_ours(), not_ours(), not_ours()];
        assert_eq!(verdict(&all, &evicted), Verdict::Gone);
        // The lock stood on three nodes. One of them has died since.
        let one_died = [freed(), freed(), dead(), not_ours(), not_ours()];
        assert_eq!(verdict(&three, &one_died), Verdict::Released);
        let three_died = [dead(), dead(), dead(), freed(), freed()];
        assert_eq!(verdict(&all, &three_died), Verdict::NoQuorum);
    }
}
