//! The votes for one waiter: which nodes have handed over, by which request, and until when each vote is good.
//!
//! A vote counts from when the request with its number was sent, never from when the vote was received.

use std::time::Duration;

use super::terms::good_for;
use crate::base::{
    clock::Tick,
    rules::{Rule, Rules},
};

/// How many of the last requests are remembered. A hand-over by an older one does not count.
const REMEMBERED: u64 = 8;

/// A node's hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vote {
    node: usize,
    /// The number of the request that it answers.
    seq: u64,
    token: u64,
    /// The time until which it is good.
    end: Tick,
    /// The time at which its loss would be announced.
    lost_at: Tick,
    /// It has to be confirmed, because the node keeps it for a term and not for the ttl.
    is_provisional: bool,
}

impl Vote {
    /// A node's grant, which lasts for `granted` from `t0` on and has to be confirmed.
    fn new(node: usize, seq: u64, token: u64, t0: Tick, granted: Duration) -> Self {
        let (good, notice) = good_for(granted);
        let end = t0.plus(good);
        Self {
            node,
            seq,
            token,
            end,
            lost_at: end.minus(notice),
            is_provisional: true,
        }
    }
}

/// The votes of all nodes for one waiter.
#[derive(Debug)]
pub(crate) struct Votes {
    /// In the order of the nodes. A waiter has no votes for nearly all of the time, and then this takes no memory.
    given: Vec<Vote>,
    /// By node: grants by requests up to this number were given back. Nodes at the end may be missing, as long as they
    /// gave nothing back.
    yielded: Vec<u64>,
    needed: usize,
    /// The times at which the last requests were sent, by number.
    sent: [Option<Tick>; REMEMBERED as usize],
    last_seq: u64,
    /// T, once the raise has begun.
    raised_to: Option<u64>,
    rules: Rules,
}

/// The result of the votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Open,
    /// A majority, with unequal tokens.
    Split,
    Won(Won),
}

/// A majority with one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Won {
    pub(crate) token: u64,
    /// The time until which it is good.
    pub(crate) end: Tick,
    /// How long before that end its loss is announced.
    pub(crate) notice: Duration,
    /// It has to be confirmed to be good for its ttl.
    pub(crate) is_provisional: bool,
}

impl Votes {
    pub(crate) fn new(needed: usize, rules: Rules) -> Self {
        Self {
            given: Vec::new(),
            yielded: Vec::new(),
            needed,
            sent: [None; REMEMBERED as usize],
            last_seq: 0,
            raised_to: None,
            rules,
        }
    }

    /// The number of votes that make a majority.
    pub(crate) fn needed(&self) -> usize {
        self.needed
    }

    /// The number of a request that is sent now.
    pub(crate) fn request(&mut self, now: Tick) -> u64 {
        self.last_seq += 1;
        if let Some(sent) = self.sent.get_mut(place_of(self.last_seq)) {
            *sent = Some(now);
        }
        self.last_seq
    }

    /// A node hands over by a push, by the request with this number, for the term that every request brings. Returns
    /// true if that counts.
    pub(crate) fn pushed(
        &mut self,
        node: usize,
        seq: u64,
        token: u64,
        term: Duration,
        now: Tick,
    ) -> bool {
        let Some(mut t0) = self.sent_at(seq) else {
            return false;
        };
        if !self.rules.hold(Rule::PushFromItsRequest) {
            t0 = now;
        }
        self.count(Vote::new(node, seq, token, t0, term))
    }

    /// A node answers a request that was sent at `t0`. It grants the ttl from then on. The grant belongs to the request
    /// with this number, which may be an earlier one. Returns true if that counts.
    pub(crate) fn taken(
        &mut self,
        node: usize,
        seq: u64,
        token: u64,
        t0: Tick,
        ttl: Duration,
    ) -> bool {
        self.count(Vote {
            is_provisional: false,
            ..Vote::new(node, seq, token, t0, ttl)
        })
    }

    fn count(&mut self, vote: Vote) -> bool {
        let ignores_old = self.rules.hold(Rule::YieldedIsOver);
        if self.was_yielded(vote.node, vote.seq) && ignores_old {
            return false;
        }
        match self.given.iter_mut().find(|known| known.node == vote.node) {
            // The same grant is heard of twice. The later end is true as well.
            Some(known) if known.seq == vote.seq => {
                known.token = known.token.max(vote.token);
                if known.lost_at < vote.lost_at {
                    (known.end, known.lost_at) = (vote.end, vote.lost_at);
                    known.is_provisional = vote.is_provisional;
                }
            }
            Some(known) => *known = vote,
            None => {
                let place = self.given.partition_point(|other| other.node < vote.node);
                self.given.insert(place, vote);
            }
        }
        true
    }

    /// The node answers the request with this number that another owner has it. Grants by earlier requests are over.
    pub(crate) fn lost(&mut self, node: usize, asked: u64) {
        self.given
            .retain(|vote| vote.node != node || vote.seq >= asked);
    }

    /// Forgets votes that are over. Returns their nodes.
    pub(crate) fn lapse(&mut self, now: Tick) -> Vec<usize> {
        let lapsed = |vote: &Vote| vote.lost_at <= now;
        let over = self.given.iter().filter(|vote| lapsed(vote));
        let over = over.map(|vote| vote.node).collect();
        self.given.retain(|vote| !lapsed(vote));
        over
    }

    /// The time at which the next vote is over.
    pub(crate) fn next_lapse(&self) -> Option<Tick> {
        self.given.iter().map(|vote| vote.lost_at).min()
    }

    pub(crate) fn has(&self, node: usize) -> bool {
        self.of(node).is_some()
    }

    /// Returns true if any node has handed over.
    pub(crate) fn is_any_given(&self) -> bool {
        !self.given.is_empty()
    }

    /// The nodes that have handed over, and their tokens.
    pub(crate) fn held(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.given.iter().map(|vote| (vote.node, vote.token))
    }

    /// Returns true if this grant was given back.
    pub(crate) fn was_yielded(&self, node: usize, seq: u64) -> bool {
        seq <= self.yielded.get(node).copied().unwrap_or(0)
    }

    /// Gives up all votes. Returns the nodes, each with the number of the request by which it granted.
    pub(crate) fn give_way(&mut self) -> Vec<(usize, u64)> {
        self.raised_to = None;
        let given = std::mem::take(&mut self.given);
        if let Some(last) = given.last() {
            let nodes = self.yielded.len().max(last.node + 1);
            self.yielded.resize(nodes, 0);
        }
        for vote in &given {
            if let Some(yielded) = self.yielded.get_mut(vote.node) {
                *yielded = vote.seq.max(*yielded);
            }
        }
        given.iter().map(|vote| (vote.node, vote.seq)).collect()
    }

    /// Starts the raise. T is the smallest token that enough nodes can be raised to. Returns T and the nodes to raise,
    /// each with the number of the request by which it granted.
    pub(crate) fn raise(&mut self) -> (u64, Vec<(usize, u64)>) {
        let mut tokens: Vec<u64> = self.given.iter().map(|vote| vote.token).collect();
        tokens.sort_unstable();
        let reachable = tokens.get(self.needed.saturating_sub(1));
        let token = reachable.copied().unwrap_or(0);
        self.raised_to = Some(token);
        (token, self.behind(token))
    }

    /// If this node granted a smaller token while others are being raised: T, and the number of the request by which it
    /// granted.
    pub(crate) fn is_late(&self, node: usize) -> Option<(u64, u64)> {
        let token = self.raised_to?;
        let vote = self.of(node)?;
        (vote.token < token).then_some((token, vote.seq))
    }

    /// A node's answer to a raise.
    pub(crate) fn raised(&mut self, node: usize, counter: u64) {
        let exact = self.raised_to == Some(counter) || !self.rules.hold(Rule::ExactAck);
        let vote = self.given.iter_mut().find(|vote| vote.node == node);
        if let (true, Some(token), Some(vote)) = (exact, self.raised_to, vote) {
            vote.token = token;
        }
    }

    /// There is no longer a majority to be raised.
    pub(crate) fn end_raise(&mut self) {
        self.raised_to = None;
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised_to.is_some()
    }

    pub(crate) fn verdict(&self, now: Tick) -> Verdict {
        let good = |vote: &&Vote| now < vote.lost_at;
        let votes: Vec<&Vote> = self.given.iter().filter(good).collect();
        if votes.len() < self.needed {
            return Verdict::Open;
        }
        for token in votes.iter().map(|vote| vote.token) {
            let equal = !self.rules.hold(Rule::EqualTokens);
            let is_one = |vote: &&&Vote| vote.token == token || equal;
            let mut one: Vec<&Vote> = votes.iter().filter(is_one).copied().collect();
            one.sort_unstable_by_key(|vote| std::cmp::Reverse(vote.lost_at));
            if let Some(last) = one.get(self.needed.saturating_sub(1)) {
                return Verdict::Won(Won {
                    token: one.iter().map(|vote| vote.token).max().unwrap_or(token),
                    end: last.end,
                    notice: last.end.since(last.lost_at),
                    is_provisional: last.is_provisional,
                });
            }
        }
        Verdict::Split
    }

    fn of(&self, node: usize) -> Option<&Vote> {
        self.given.iter().find(|vote| vote.node == node)
    }

    /// The time at which the request with this number was sent, if it is one of the last.
    fn sent_at(&self, seq: u64) -> Option<Tick> {
        let is_known = seq <= self.last_seq && self.last_seq - seq < REMEMBERED;
        let sent = self.sent.get(place_of(seq)).filter(|_| is_known)?;
        *sent
    }

    fn behind(&self, token: u64) -> Vec<(usize, u64)> {
        let behind = self.given.iter().filter(|vote| vote.token < token);
        behind.map(|vote| (vote.node, vote.seq)).collect()
    }
}

/// The index under which the time of this request is kept.
fn place_of(seq: u64) -> usize {
    (seq % REMEMBERED) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    /// S. Its drift is 12 ms, its notice 50 ms.
    const TERM: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(1_000_000_000 + ms * 1_000_000)
    }

    /// Three nodes. Request 1 was sent at 0.
    fn votes() -> Votes {
        let mut votes = Votes::new(2, Rules::ALL);
        assert_eq!(votes.request(at(0)), 1);
        votes
    }

    fn won(votes: &Votes, now: u64) -> Won {
        match votes.verdict(at(now)) {
            Verdict::Won(won) => won,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_hand_over_counts_from_the_registering_request() {
        let mut votes = votes();
        assert_eq!(votes.request(at(400)), 2);
        assert!(votes.pushed(0, 1, 7, TERM, at(450)));
        assert!(votes.pushed(1, 2, 7, TERM, at(450)));
        let won = won(&votes, 450);
        assert_eq!((won.token, won.is_provisional), (7, true));
        assert_eq!(won.end, at(1_000 - 12), "the earlier of the two");
        assert_eq!(won.notice, Duration::from_millis(50));
        assert_eq!(votes.verdict(at(1_000 - 62)), Verdict::Open, "too late");
    }

    #[test]
    fn an_answer_counts_from_its_own_request_and_for_the_ttl() {
        let mut votes = votes();
        assert!(votes.pushed(0, 1, 7, TERM, at(50)));
        assert!(votes.taken(0, 1, 7, at(200), TTL), "it was prolonged");
        assert!(votes.taken(2, 2, 7, at(300), TTL));
        let won = won(&votes, 310);
        assert_eq!(won.end, at(200 + 10_000 - 102));
        assert!(!won.is_provisional);
        // A hand-over of an earlier time does not shorten it.
        assert!(votes.pushed(0, 1, 7, TERM, at(320)));
        assert_eq!(self::won(&votes, 320).end, won.end);
    }

    #[test]
    fn a_hand_over_for_an_unknown_request_is_not_a_vote() {
        let mut votes = votes();
        assert!(!votes.pushed(0, 9, 7, TERM, at(1)));
        for n in 0..REMEMBERED {
            votes.request(at(n));
        }
        assert!(!votes.pushed(0, 1, 7, TERM, at(1)), "forgotten");
        assert!(!votes.is_any_given());
    }

    #[test]
    fn a_yielded_grant_is_over_and_a_later_grant_counts() {
        let mut votes = votes();
        votes.pushed(0, 1, 7, TERM, at(1));
        assert_eq!(votes.give_way(), [(0, 1)]);
        assert!(!votes.pushed(0, 1, 7, TERM, at(2)), "a doubled push");
        assert!(
            !votes.taken(0, 1, 7, at(2), TTL),
            "the node was not told yet"
        );
        assert!(votes.was_yielded(0, 1) && !votes.was_yielded(1, 1));
        let seq = votes.request(at(3));
        assert!(votes.taken(0, seq, 8, at(3), TTL));
        assert!(votes.pushed(1, 1, 8, TERM, at(4)), "another node's");
        assert_eq!(won(&votes, 5).token, 8);
    }

    #[test]
    fn unequal_tokens_are_raised_to_the_smallest_that_enough_can_reach() {
        let mut votes = votes();
        votes.pushed(0, 1, 7, TERM, at(1));
        votes.pushed(1, 1, 9, TERM, at(1));
        assert_eq!(votes.verdict(at(2)), Verdict::Split);
        assert_eq!(votes.raise(), (9, vec![(0, 1)]));
        assert_eq!(votes.is_late(2), None);
        votes.pushed(2, 1, 8, TERM, at(2));
        assert_eq!(votes.is_late(2), Some((9, 1)));
        votes.raised(0, 10);
        assert_eq!(votes.verdict(at(3)), Verdict::Split, "another's counter");
        votes.raised(2, 9);
        assert_eq!(won(&votes, 3).token, 9);
    }

    #[test]
    fn a_vote_that_lapsed_is_named_once() {
        let mut votes = votes();
        votes.pushed(0, 1, 7, TERM, at(1));
        assert_eq!(votes.next_lapse(), Some(at(1_000 - 62)));
        assert!(votes.lapse(at(900)).is_empty());
        assert_eq!(votes.lapse(at(1_000 - 62)), [0]);
        assert!(votes.lapse(at(2_000)).is_empty());
        assert_eq!(votes.next_lapse(), None);
    }
}
