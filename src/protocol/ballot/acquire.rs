//! The vote on a lock and on its token (protocol §3, client steps 2 and 3).

use std::time::Duration;

use super::answers::{Answers, Heard};
use crate::{
    Silence,
    base::rules::{Rule, Rules},
    node::answer::Answer,
};

/// The result of the votes so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Q nodes hold the lock for this entry, and their counter is this token.
    Won(u64),
    /// Q nodes granted with unequal tokens: wait a little for the others, then raise.
    Split,
    /// Not decided yet.
    Open,
    /// Q grants are out of reach, so roll back at once. The caller is not told yet.
    Lost,
    /// Q grants are out of reach, and enough is known to say why.
    Over(Failure),
}

/// How the counters of the nodes that grant are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    /// Each node has made a new token for this attempt. Q of them must be the same, and then no other holder has it.
    Minted,
    /// Each node tells its newest counter. Q of them must have reached the same value. Other readers may have it too.
    Epochs,
}

/// The reason why an attempt was not won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Q nodes answered, refusals among them.
    Held,
    /// Too few nodes answered.
    NoQuorum,
    /// Too few nodes answered, but those in quarantine would have made up Q.
    Quarantined,
    /// Q nodes granted it, but its validity had run out by then. The votes alone never say so.
    TooSlow,
}

/// The votes of all nodes on one attempt.
#[derive(Debug)]
pub(crate) struct Ballot {
    answers: Answers<Answer>,
    needed: usize,
    /// T, once the raise has begun.
    raised_to: Option<u64>,
    largest_counter: u64,
    tokens: Tokens,
    rules: Rules,
}

impl Ballot {
    pub(crate) fn new(nodes: usize, needed: usize, tokens: Tokens, rules: Rules) -> Self {
        Self {
            answers: Answers::new(nodes),
            needed,
            raised_to: None,
            largest_counter: 0,
            tokens,
            rules,
        }
    }

    /// Counts a node's answer to ACQUIRE or to RAISE. Returns T if the node has to be sent RAISE(T): it granted late
    /// with a smaller token, while others are being raised.
    pub(crate) fn vote(&mut self, node: usize, answer: Result<Answer, Silence>) -> Option<u64> {
        let was_raised = matches!(answer, Ok(Answer::Raised(_)));
        let answer = match (answer, self.raised_to) {
            (Ok(Answer::Raised(counter)), Some(t)) => {
                // Only exactly T counts: a greater counter belongs to another owner's token. An epoch belongs to
                // nobody.
                let exact = self.is_vote(counter, t) || !self.rules.hold(Rule::ExactAck);
                self.largest_counter = self.largest_counter.max(counter);
                Ok(Answer::Granted(if exact { t } else { counter }))
            }
            (Err(Silence::Failed(_)), _) if !self.rules.hold(Rule::ErrorIsNoAnswer) => {
                Ok(Answer::Held {
                    which: None,
                    remaining: None,
                    counter: 0,
                    holder: None,
                    ticket: 0,
                })
            }
            (answer, _) => answer,
        };
        if let Ok(Answer::Granted(counter) | Answer::Held { counter, .. }) = &answer {
            self.largest_counter = self.largest_counter.max(*counter);
        }
        let late = match (&answer, self.raised_to) {
            // A node that was raised and is still behind is not raised again. It will not follow, for example because T
            // came from a damaged counter.
            (Ok(Answer::Granted(counter)), Some(t)) if *counter < t && !was_raised => Some(t),
            _ => None,
        };
        self.answers.set(node, answer);
        if late.is_some() {
            self.answers.wait_again(node);
        }
        late
    }

    /// Starts the raise. Returns T and the nodes to be raised.
    pub(crate) fn raise(&mut self) -> (u64, Vec<usize>) {
        let t = self.reachable_token();
        debug_assert!(self.raised_to.is_none(), "the token is raised twice");
        self.raised_to = Some(t);
        let smaller = |h: &Heard<Answer>| matches!(h, Heard::Said(Answer::Granted(c)) if *c < t);
        let behind: Vec<usize> = (0..self.answers.len())
            .filter(|&n| self.answers.get(n).is_some_and(smaller))
            .collect();
        for &node in &behind {
            self.answers.wait_again(node);
        }
        (t, behind)
    }

    /// Returns true if the raise has begun.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised_to.is_some()
    }

    /// The greatest counter in any answer. The next floor has to be beyond it.
    pub(crate) fn largest_counter(&self) -> u64 {
        self.largest_counter
    }

    pub(crate) fn verdict(&self) -> Verdict {
        let grants = self.grants();
        let waiting = self.answers.waiting();
        if let Some(token) = self.agreed() {
            return Verdict::Won(token);
        }
        let votes_for_us = match self.raised_to {
            // A node that granted another token and is not being raised cannot count any more.
            Some(t) => self
                .tokens()
                .filter(|&token| self.is_vote(token, t))
                .count(),
            None => grants,
        };
        if votes_for_us >= self.needed {
            return Verdict::Split;
        }
        if votes_for_us + waiting >= self.needed {
            return Verdict::Open;
        }
        let answered = grants
            + self
                .answers
                .count(|r| matches!(r, Answer::Held { .. } | Answer::Lost));
        if answered >= self.needed {
            Verdict::Over(Failure::Held)
        } else if answered + waiting >= self.needed {
            Verdict::Lost
        } else if answered + waiting + self.answers.quarantined() >= self.needed {
            // A node that has not answered yet is not waited for, because a quarantine ends by itself in either case.
            Verdict::Over(Failure::Quarantined)
        } else {
            Verdict::Over(Failure::NoQuorum)
        }
    }

    /// The time after which another attempt makes sense: enough of the holders' entries will have expired, or enough
    /// quarantines will be over.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let free = self.grants();
        let mut left: Vec<Duration> = self
            .answers
            .iter()
            .filter_map(|heard| match heard {
                Heard::Said(Answer::Held { remaining, .. }) => *remaining,
                _ => None,
            })
            .collect();
        left.sort();
        let held = self
            .needed
            .checked_sub(free + 1)
            .and_then(|n| left.get(n).copied());
        let held_there = self.answers.count(|r| matches!(r, Answer::Held { .. }));
        let answered = free + held_there + self.answers.waiting();
        let quarantine = self
            .needed
            .checked_sub(answered)
            .and_then(|missing| self.answers.quarantine_over_for(missing));
        quarantine.or(held)
    }

    /// The nodes that granted, and their counters.
    pub(crate) fn granted(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let heard = self.answers.iter().enumerate();
        heard.filter_map(|(node, heard)| match heard {
            Heard::Said(Answer::Granted(counter)) => Some((node, *counter)),
            _ => None,
        })
    }

    pub(crate) fn answers(&self) -> &Answers<Answer> {
        &self.answers
    }

    fn grants(&self) -> usize {
        self.answers.count(|r| matches!(r, Answer::Granted(_)))
    }

    fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.answers.iter().filter_map(|heard| match heard {
            Heard::Said(Answer::Granted(counter)) => Some(*counter),
            _ => None,
        })
    }

    fn largest_token(&self) -> Option<u64> {
        self.tokens().max()
    }

    /// The smallest token that Q nodes can be raised to. It is not the greatest of all: if one node's counter is
    /// damaged, the others refuse to follow it, and nobody could ever hold the lock.
    fn reachable_token(&self) -> u64 {
        let mut tokens: Vec<u64> = self.tokens().collect();
        tokens.sort_unstable();
        let nth = self
            .needed
            .saturating_sub(1)
            .min(tokens.len().saturating_sub(1));
        tokens.get(nth).copied().unwrap_or(0)
    }

    /// The token on which Q nodes agree.
    fn agreed(&self) -> Option<u64> {
        let largest = self.largest_token()?;
        let as_it_is = match self.tokens {
            Tokens::Minted => !self.rules.hold(Rule::EqualTokens),
            Tokens::Epochs => !self.rules.hold(Rule::EpochStands),
        };
        if as_it_is {
            return (self.grants() >= self.needed).then_some(largest);
        }
        let votes = |t: u64, is: &dyn Fn(u64) -> bool| {
            let votes = self.tokens().filter(|&token| is(token)).count();
            (votes >= self.needed).then_some(t)
        };
        match self.raised_to {
            Some(t) => votes(t, &|token| self.is_vote(token, t)),
            None => self.tokens().find_map(|t| votes(t, &|token| token == t)),
        }
    }

    /// Returns true if a node with this counter counts for T. The counter of an epoch may be greater than T.
    fn is_vote(&self, counter: u64, t: u64) -> bool {
        match self.tokens {
            Tokens::Minted => counter == t,
            Tokens::Epochs => counter >= t,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(votes: &[Option<Result<Answer, Silence>>]) -> Ballot {
        let n = votes.len();
        let needed = crate::base::majority::majority(n);
        let mut ballot = Ballot::new(n, needed, Tokens::Minted, Rules::ALL);
        for (node, vote) in votes.iter().enumerate() {
            if let Some(vote) = vote {
                ballot.vote(node, vote.clone());
            }
        }
        ballot
    }

    fn granted(token: u64) -> Option<Result<Answer, Silence>> {
        Some(Ok(Answer::Granted(token)))
    }

    fn held(ms: u64) -> Option<Result<Answer, Silence>> {
        Some(Ok(Answer::Held {
            which: None,
            remaining: Some(Duration::from_millis(ms)),
            counter: 9,
            holder: None,
            ticket: 4,
        }))
    }

    fn silent() -> Option<Result<Answer, Silence>> {
        Some(Err(Silence::Stalled))
    }

    fn quarantined(ms: u64) -> Option<Result<Answer, Silence>> {
        Some(Err(Silence::Quarantined(Duration::from_millis(ms))))
    }

    #[test]
    fn won_at_the_deciding_vote_and_not_before() {
        assert_eq!(
            ballot(&[granted(7), granted(7), None, None, None]).verdict(),
            Verdict::Open
        );
        let won = ballot(&[granted(7), None, granted(7), None, granted(7)]);
        assert_eq!(won.verdict(), Verdict::Won(7));
        let granted: Vec<usize> = won.granted().map(|(node, _)| node).collect();
        assert_eq!(granted, [0, 2, 4]);
    }

    #[test]
    fn a_majority_of_grants_with_unequal_tokens_is_split() {
        let split = [granted(7), granted(8), granted(7), None, None];
        assert_eq!(ballot(&split).verdict(), Verdict::Split);
        let later = [granted(7), granted(8), granted(7), None, granted(7)];
        assert_eq!(
            ballot(&later).verdict(),
            Verdict::Won(7),
            "the rest may still settle it"
        );
    }

    /// A damaged counter and one other make a majority before the third node answers. T cannot be reached, and the
    /// attempt ends.
    #[test]
    fn a_node_that_does_not_follow_a_raise_is_not_asked_again() {
        let damaged = 5_000_000_000_000_000;
        let mut ballot = ballot(&[granted(damaged), granted(7), None]);
        assert_eq!(ballot.raise(), (damaged, vec![1]));
        assert_eq!(ballot.vote(1, Ok(Answer::Raised(90))), None);
        assert_eq!(ballot.verdict(), Verdict::Open);
        assert_eq!(
            ballot.vote(2, Ok(Answer::Granted(8))),
            Some(damaged),
            "a late grant"
        );
        assert_eq!(ballot.verdict(), Verdict::Open);
        assert_eq!(ballot.vote(2, Ok(Answer::Raised(91))), None);
        assert_eq!(ballot.verdict(), Verdict::Over(Failure::Held));
    }

    #[test]
    fn an_even_tie_is_lost() {
        let tie = [granted(7), granted(7), held(5), held(5)];
        assert_eq!(ballot(&tie).verdict(), Verdict::Over(Failure::Held));
    }

    #[test]
    fn a_loss_is_known_before_its_reason() {
        let open = [held(5), held(5), None, None, None];
        assert_eq!(ballot(&open).verdict(), Verdict::Open);
        let lost = [held(5), held(5), silent(), None, None];
        assert_eq!(ballot(&lost).verdict(), Verdict::Lost);
        let told = [held(5), held(5), silent(), granted(1), None];
        assert_eq!(ballot(&told).verdict(), Verdict::Over(Failure::Held));
    }

    #[test]
    fn contention_beside_a_dead_minority_is_not_an_outage() {
        let contended = [silent(), silent(), held(5), held(5), granted(3)];
        assert_eq!(ballot(&contended).verdict(), Verdict::Over(Failure::Held));
    }

    #[test]
    fn no_quorum_is_told_as_soon_as_it_is_certain() {
        let dead = [silent(), silent(), silent(), None, None];
        assert_eq!(ballot(&dead).verdict(), Verdict::Over(Failure::NoQuorum));
        let dead = [silent(), silent(), None, None, None];
        assert_eq!(ballot(&dead).verdict(), Verdict::Open);
    }

    #[test]
    fn a_quarantine_is_told_apart_and_has_an_end() {
        let young = ballot(&[
            granted(1),
            quarantined(30),
            quarantined(20),
            quarantined(10),
            silent(),
        ]);
        assert_eq!(young.verdict(), Verdict::Over(Failure::Quarantined));
        assert_eq!(young.retry_after(), Some(Duration::from_millis(20)));
        let early = ballot(&[silent(), silent(), quarantined(30), None, None]);
        assert_eq!(early.verdict(), Verdict::Over(Failure::Quarantined));
        assert_eq!(early.retry_after(), Some(Duration::from_millis(30)));
        let hopeless = [granted(1), quarantined(30), silent(), silent(), silent()];
        assert_eq!(
            ballot(&hopeless).verdict(),
            Verdict::Over(Failure::NoQuorum)
        );
    }

    #[test]
    fn retry_after_is_when_a_majority_will_be_free() {
        let b = ballot(&[granted(1), held(30), held(10), held(20), silent()]);
        assert_eq!(b.retry_after(), Some(Duration::from_millis(20)));
    }

    #[test]
    fn a_raise_goes_no_further_than_q_nodes_need() {
        // The last node's counter is damaged, so the others would not follow it.
        let mut b = ballot(&[granted(7), granted(8), granted(1 << 52)]);
        assert_eq!(b.raise(), (8, vec![0]));
        b.vote(0, Ok(Answer::Raised(8)));
        assert_eq!(b.verdict(), Verdict::Won(8));
        let mut b = ballot(&[granted(9), granted(7), granted(5), granted(6), None]);
        assert_eq!(b.raise(), (7, vec![2, 3]));
    }

    #[test]
    fn a_raise_counts_only_if_exact() {
        let mut b = ballot(&[granted(7), granted(8), granted(6), None, None]);
        assert_eq!(b.raise(), (8, vec![0, 2]));
        assert_eq!(b.verdict(), Verdict::Open);
        assert_eq!(b.vote(0, Ok(Answer::Raised(8))), None);
        assert_eq!(b.verdict(), Verdict::Open);
        assert_eq!(
            b.vote(2, Ok(Answer::Raised(9))),
            None,
            "somebody else's counter"
        );
        assert_eq!(b.verdict(), Verdict::Open, "two may still grant");
        assert_eq!(
            b.vote(3, Ok(Answer::Granted(5))),
            Some(8),
            "a late grant is raised too"
        );
        assert_eq!(b.verdict(), Verdict::Open);
        assert_eq!(b.vote(3, Ok(Answer::Raised(8))), None);
        assert_eq!(b.verdict(), Verdict::Won(8));
    }

    #[test]
    fn an_epoch_counts_where_the_counter_has_gone_further() {
        let mut b = Ballot::new(3, 2, Tokens::Epochs, Rules::ALL);
        b.vote(0, Ok(Answer::Granted(7)));
        b.vote(1, Ok(Answer::Granted(8)));
        assert_eq!(b.verdict(), Verdict::Split, "the last writer's may be 8");
        assert_eq!(b.raise(), (8, vec![0]));
        // Another reader has raised it further in the meantime.
        b.vote(0, Ok(Answer::Raised(9)));
        assert_eq!(b.verdict(), Verdict::Won(8));
        let mut b = Ballot::new(5, 3, Tokens::Epochs, Rules::ALL);
        for (node, counter) in [7, 7, 9, 8].into_iter().enumerate() {
            b.vote(node, Ok(Answer::Granted(counter)));
        }
        // At most two of five nodes are behind the last writer's token.
        assert_eq!(b.raise(), (8, vec![0, 1]));
        b.vote(0, Ok(Answer::Raised(8)));
        assert_eq!(b.verdict(), Verdict::Won(8), "with those of 8 and 9");
    }

    #[test]
    fn a_raise_that_finds_the_lock_gone_does_not_count() {
        let mut b = ballot(&[granted(7), granted(8), held(5)]);
        assert_eq!(b.raise(), (8, vec![0]));
        b.vote(0, Ok(Answer::Lost));
        assert_eq!(b.verdict(), Verdict::Over(Failure::Held));
    }

    #[test]
    fn silence_after_the_timeout_decides() {
        let mut b = ballot(&[granted(7), granted(7), None, None, None]);
        for node in 2..5 {
            b.vote(node, Err(Silence::TimedOut));
        }
        assert_eq!(b.verdict(), Verdict::Over(Failure::NoQuorum));
    }

    #[test]
    fn the_next_proposal_knows_refusals_too() {
        assert_eq!(ballot(&[granted(3), held(1), None]).largest_counter(), 9);
    }
}
