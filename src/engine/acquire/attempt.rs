//! One attempt: one owner, one round of votes, and the raise if the tokens are unequal (protocol §3, client steps 1 to
//! 5).

use std::{mem, time::Duration};

use uuid::Uuid;

use super::patience::Past;
use crate::{
    Error, Report, Silence,
    base::{clock::Tick, owner::Entry, rules::Rule},
    engine::{
        cluster::{Cluster, Outstanding},
        event::Acquisition,
        grant::Won,
        rollback::roll_back,
        round,
        timers::Key,
    },
    lease::upkeep::Good,
    node::{
        answer::Answer,
        request::{Release, Side, Target, Verb, Waiting},
        session::{Purpose, RoundId, Tag},
    },
    protocol::ballot::{
        acquire::{Ballot, Failure, Tokens, Verdict},
        answers::Heard,
        validity::{notice, valid_until},
    },
};

pub(super) struct Attempt {
    pub(super) round: RoundId,
    target: Target,
    pub(super) entry: Entry,
    pub(super) t0: Tick,
    ttl: Duration,
    /// The ttl on the nodes: `ttl` and the lock-delay.
    node_ttl: Duration,
    ballot: Ballot,
    /// The nodes that were asked.
    pub(super) asked: Vec<usize>,
    rolled_back: bool,
    /// With unequal tokens: the time at which to stop waiting for the other answers and to raise.
    settle_at: Option<Tick>,
    /// The time from which nodes may be late.
    deadline: Tick,
    /// The time by which the caller must have its answer. The votes that have come by then decide.
    end: Option<Tick>,
    cut_short: bool,
}

/// The state of an attempt, or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Open,
    /// The lock is held on a majority, with this token.
    Won(u64),
    /// The attempt was not won, and was taken back.
    Failed(Failure),
}

impl Attempt {
    /// Asks the nodes that vote, if they are a majority. `floor` is the least value for the counters. `wait` says how
    /// the nodes know a caller that waits for a read-write lock; it is the same for all its attempts.
    pub(super) fn begin(
        cluster: &mut Cluster,
        acquisition: &Acquisition,
        target: &Target,
        floor: u64,
        wait: Waiting,
    ) -> Result<Self, Error> {
        let entry = new_owner(cluster, acquisition)?;
        let acquire = Verb::Acquire {
            ttl: acquisition.node_ttl(),
            floor,
            wait,
        };
        let operation = target.operation(&entry, acquire);
        let round = cluster.new_round();
        let tokens = match target.side() {
            Some(Side::Reader) => Tokens::Epochs,
            Some(Side::Writer) | None => Tokens::Minted,
        };
        let mut ballot = Ballot::new(
            cluster.total(),
            cluster.needed,
            tokens,
            cluster.settings.rules,
        );
        let mut asked = Vec::with_capacity(cluster.total());
        // Without a majority no node is asked, so that nothing has to be taken back.
        let enough = cluster.has_a_majority();
        let end = acquisition.attempt_end();
        let too_late = end.is_some_and(|end| end <= cluster.now);
        for (node, state) in cluster.states().enumerate() {
            match state.silence() {
                Some(silence) => drop(ballot.vote(node, Err(silence))),
                None if too_late => drop(ballot.vote(node, Err(Silence::WaitOver))),
                None if enough => asked.push(node),
                None => {}
            }
        }
        debug_assert!(
            asked.is_empty() || asked.len() >= cluster.needed,
            "fewer than a majority are asked"
        );
        let tag = Purpose::Acquire.of(round);
        for (node, silence) in round::ask(cluster, tag, &operation, asked.iter().copied()) {
            ballot.vote(node, Err(silence));
        }
        Ok(Self {
            round,
            target: target.clone(),
            entry,
            t0: cluster.now,
            ttl: acquisition.request.ttl,
            node_ttl: acquisition.node_ttl(),
            ballot,
            asked,
            rolled_back: false,
            settle_at: None,
            deadline: round::arm(cluster, tag),
            end,
            cut_short: too_late,
        })
    }

    /// The tag under which its deadline rings, for the raise too.
    pub(super) fn tag(&self) -> Tag {
        Purpose::Acquire.of(self.round)
    }

    /// A node's answer.
    pub(super) fn heard(
        &mut self,
        cluster: &mut Cluster,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        let late = self.ballot.vote(node, answer);
        if let Some(token) = late.filter(|_| !self.rolled_back) {
            // A late grant while others are being raised: this node is raised too.
            self.raise(cluster, token, [node]);
        }
    }

    /// Its timer rings. Nodes that are late are not waited for any more. At the end of the caller's wait, no node is.
    /// The end of the wait is a matter of the caller's own clock, so it needs no evidence from the nodes.
    pub(super) fn due(&mut self, cluster: &mut Cluster) {
        if self.end.is_some_and(|end| end <= cluster.now) {
            return self.cut_short();
        }
        if self.deadline > cluster.now {
            return;
        }
        let late = cluster.late(self.outstanding());
        for (node, silence) in late.silent {
            self.ballot.vote(node, Err(silence));
        }
        if let Some(at) = late.until {
            self.deadline = at;
        }
    }

    /// Counts the votes, and does what follows from them.
    pub(super) fn look(&mut self, cluster: &mut Cluster) -> Progress {
        loop {
            let verdict = match self.ballot.verdict() {
                // The RELEASEs are on their way, so a late grant goes to nobody.
                Verdict::Won(_) | Verdict::Split if self.rolled_back => {
                    Verdict::Over(Failure::Held)
                }
                verdict => verdict,
            };
            return match verdict {
                Verdict::Open => self.wait(cluster, self.deadline),
                Verdict::Won(token) => {
                    // The validity is looked at after the last vote that counts, never before (protocol §3, client step
                    // 4).
                    let end = valid_until(self.t0, self.ttl).minus(notice(self.ttl));
                    if cluster.now < end || !cluster.rule_holds(Rule::ValidityAfterVote) {
                        return Progress::Won(token);
                    }
                    self.failed(cluster, Failure::TooSlow)
                }
                Verdict::Split => match self.settle(cluster) {
                    Some(progress) => progress,
                    None => continue,
                },
                Verdict::Lost => {
                    self.roll_back(cluster);
                    self.wait(cluster, self.deadline)
                }
                Verdict::Over(failure) => self.failed(cluster, failure),
            };
        }
    }

    /// Takes back what the attempt may have left on the nodes. It does so once, because a second RELEASE would not come
    /// earlier.
    pub(super) fn roll_back(&mut self, cluster: &mut Cluster) {
        if !self.rolled_back {
            self.rolled_back = true;
            let granted = self.ballot.granted().map(|(node, _)| node);
            let answers = self.ballot.answers();
            let is_refused =
                |node| matches!(answers.get(node), Some(Heard::Said(Answer::Held { .. })));
            let asked = self.asked.iter().copied();
            // This RELEASE opens no window for readers. A writer that won only a minority would otherwise let readers
            // in there again and again, before all writers. It does not notify waiters either, because the lock was
            // never held.
            let release = Verb::Release(Release {
                floor: cluster.floor(self.ballot.largest_counter()),
                ..Release::default()
            });
            let release = self.target.operation(&self.entry, release);
            let asked = asked.filter(|node| !is_refused(*node));
            roll_back(cluster, &release, self.node_ttl, asked, granted);
        }
    }

    /// Returns true if the caller's wait ended before all answers had come.
    pub(super) fn was_cut_short(&self) -> bool {
        self.cut_short
    }

    /// A summary of the failed attempt.
    pub(super) fn past(&self, now: Tick, failure: Failure) -> Past {
        let stale = |heard: &Heard<Answer>| {
            matches!(
                heard,
                Heard::Silent(Silence::NotAdmitted | Silence::ScriptsFlushed)
            )
        };
        Past {
            failure,
            took: now.since(self.t0),
            known: self.ballot.retry_after(),
            is_stale: self.ballot.answers().iter().any(stale),
        }
    }

    /// The answers of the nodes, as evidence.
    pub(super) fn report(&self, cluster: &Cluster, retry_after: Option<Duration>) -> Report {
        let (name, nodes) = (self.target.name().as_str(), &cluster.settings.nodes);
        let answers = self.ballot.answers();
        answers.report(name, cluster.needed, nodes, retry_after)
    }

    /// The greatest counter in any answer.
    pub(super) fn largest_counter(&self) -> u64 {
        self.ballot.largest_counter()
    }

    /// The greatest ticket in any answer: of the last waiter, or of the holder.
    pub(super) fn largest_ticket(&self) -> u64 {
        let ticket = |heard: &Heard<Answer>| match heard {
            Heard::Said(Answer::Held { ticket, .. }) => *ticket,
            _ => 0,
        };
        self.ballot.answers().iter().map(ticket).max().unwrap_or(0)
    }

    /// The thing that the attempt has won, with this token. `waited` is the owner under which the nodes registered the
    /// wait.
    pub(super) fn won(&mut self, token: u64, waited: Option<Entry>) -> Won {
        debug_assert!(!self.rolled_back, "it is taken back");
        debug_assert!(!self.asked.is_empty(), "it is won twice");
        let good = Good {
            until: valid_until(self.t0, self.ttl),
            notice: notice(self.ttl),
            is_provisional: false,
            is_partial: false,
        };
        Won {
            stands_for: self.node_ttl,
            round: self.round,
            token,
            since: self.t0,
            good,
            waited,
            held: self.granted().collect(),
            raising: self.raising().collect(),
            lacking: Vec::new(),
            limit: None,
            target: self.target.clone(),
            entry: self.entry.clone(),
            asked: mem::take(&mut self.asked),
        }
    }

    /// The nodes that granted, and their counters.
    fn granted(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.ballot.granted()
    }

    /// The nodes that were asked to raise their counters, or to grant, and have not answered.
    fn raising(&self) -> impl Iterator<Item = usize> + '_ {
        let raises = self.ballot.is_raised();
        self.ballot.answers().outstanding().filter(move |_| raises)
    }

    // ---- inside -----------------------------------------------------------------------------

    fn outstanding(&self) -> impl Iterator<Item = Outstanding> + '_ {
        let nodes = self.ballot.answers().outstanding();
        nodes.map(|node| (node, None))
    }

    fn cut_short(&mut self) {
        self.cut_short = true;
        let outstanding: Vec<usize> = self.ballot.answers().outstanding().collect();
        for node in outstanding {
            self.ballot.vote(node, Err(Silence::WaitOver));
        }
    }

    /// Sets the timer for `until`, or for the end of the wait if that is earlier.
    fn wait(&self, cluster: &mut Cluster, until: Tick) -> Progress {
        let at = self.end.map_or(until, |end| end.min(until));
        cluster.timers.at(Key::of(self.tag()), at);
        Progress::Open
    }

    fn failed(&mut self, cluster: &mut Cluster, failure: Failure) -> Progress {
        self.roll_back(cluster);
        Progress::Failed(failure)
    }

    /// A majority granted, with unequal tokens. Waits for the outstanding answers for about as long as it has taken so
    /// far, then raises. Returns `None` if the nodes are being raised now, which may have changed the votes.
    fn settle(&mut self, cluster: &mut Cluster) -> Option<Progress> {
        let took = cluster.now.since(self.t0);
        let settle_at = *self.settle_at.get_or_insert_with(|| cluster.now.plus(took));
        if self.ballot.answers().waiting() > 0 && cluster.now < settle_at {
            return Some(self.wait(cluster, settle_at));
        }
        if self.cut_short {
            // Q nodes have answered, and no time is left to make their tokens equal.
            return Some(self.failed(cluster, Failure::Held));
        }
        let (token, behind) = self.ballot.raise();
        self.deadline = round::arm(cluster, self.tag());
        self.raise(cluster, token, behind);
        None
    }

    fn raise(&mut self, cluster: &mut Cluster, token: u64, nodes: impl IntoIterator<Item = usize>) {
        debug_assert!(!self.rolled_back, "it is taken back");
        let operation = self
            .target
            .operation(&self.entry, Verb::Raise { seq: 0, token });
        let tag = Purpose::Raise.of(self.round);
        for (node, silence) in round::ask(cluster, tag, &operation, nodes) {
            self.ballot.vote(node, Err(silence));
        }
    }
}

/// Every attempt and every place in a queue has a new owner. With the rule off, all owners of one acquisition are the
/// same; the labels in the simulation keep them apart from those of other clients.
pub(super) fn new_owner(cluster: &mut Cluster, acquisition: &Acquisition) -> Result<Entry, Error> {
    let owner = match cluster.rule_holds(Rule::FreshOwner) {
        true => cluster.chance.owner()?,
        false => Uuid::from_u128(acquisition.id.number().into()),
    };
    let label = acquisition.request.label.as_ref();
    Ok(Entry::new(owner, label.unwrap_or(&cluster.settings.label)))
}
