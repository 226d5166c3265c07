//! One attempt: one owner, one round of votes, and the raise where tokens are unequal (protocol §3, client
//! steps 1 to 5).

use std::time::Duration;

use uuid::Uuid;

use super::{
    event::{Wish, WishId},
    grant::Grant,
    net::Net,
    patience::{Failure, Past},
    rollback::roll_back,
    round,
    timers::Key,
};
use crate::{
    Error, Report, Silence,
    base::{clock::Tick, owner::Entry, rules::Rule},
    lease::upkeep::Good,
    node::{
        answer::Answer,
        request::{Release, Side, Target, Verb, Waiting},
        session::{Purpose, RoundId, Tag},
    },
    protocol::ballot::{
        acquire::{Ballot, Outcome, Tokens, Verdict},
        answers::Heard,
        validity::{notice, valid_until},
    },
};

/// An attempt under way.
pub(super) struct Attempt {
    pub(super) round: RoundId,
    target: Target,
    pub(super) entry: Entry,
    pub(super) t0: Tick,
    ttl: Duration,
    /// With the lock-delay.
    node_ttl: Duration,
    ballot: Ballot,
    /// The nodes that were asked.
    pub(super) asked: Vec<usize>,
    rolled_back: bool,
    /// Unequal tokens: when to stop waiting for the rest and raise.
    settle_at: Option<Tick>,
    /// When the nodes may be late.
    deadline: Tick,
    /// When the caller has to be told: what was heard by then decides.
    end: Option<Tick>,
    cut_short: bool,
}

/// What became of it so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Open,
    /// Held on a majority, with this token.
    Won(u64),
    /// Not won, and taken back.
    Failed(Failure),
}

impl Attempt {
    /// Asks the nodes that vote, if they are a majority. `floor`: where the counters should at least be. `wait`: who
    /// waits for a read-write lock, over all attempts.
    pub(super) fn begin(
        net: &mut Net,
        wish: &Wish,
        target: &Target,
        floor: u64,
        wait: Waiting,
    ) -> Result<Self, Error> {
        let entry = new_owner(net, wish.id)?;
        let acquire = Verb::Acquire {
            ttl: wish.node_ttl(),
            floor,
            wait,
        };
        let operation = target.ask(&entry, acquire);
        let round = net.new_round();
        let tokens = match target.side() {
            Some(Side::Reader) => Tokens::Epochs,
            Some(Side::Writer) | None => Tokens::Minted,
        };
        let mut ballot = Ballot::new(net.total(), net.needed, tokens, net.settings.rules);
        let mut asked = Vec::with_capacity(net.total());
        // Where no majority can be asked nobody is: nothing has to be taken back then.
        let enough = net.has_a_majority();
        let end = wish.attempt_end();
        let too_late = end.is_some_and(|end| end <= net.now);
        for (node, state) in net.states().enumerate() {
            match state.silence() {
                Some(silence) => drop(ballot.vote(node, Err(silence))),
                None if too_late => drop(ballot.vote(node, Err(Silence::WaitOver))),
                None if enough => asked.push(node),
                None => {}
            }
        }
        let tag = Purpose::Acquire.of(round);
        for (node, silence) in round::ask(net, tag, &operation, asked.iter().copied()) {
            ballot.vote(node, Err(silence));
        }
        Ok(Self {
            round,
            target: target.clone(),
            entry,
            t0: net.now,
            ttl: wish.ttl,
            node_ttl: wish.node_ttl(),
            ballot,
            asked,
            rolled_back: false,
            settle_at: None,
            deadline: round::arm(net, tag),
            end,
            cut_short: too_late,
        })
    }

    /// Under this its deadline rings, of the raise too.
    pub(super) fn tag(&self) -> Tag {
        Purpose::Acquire.of(self.round)
    }

    /// A node's answer.
    pub(super) fn heard(&mut self, net: &mut Net, node: usize, answer: Result<Answer, Silence>) {
        let late = self.ballot.vote(node, answer);
        if let Some(token) = late.filter(|_| !self.rolled_back) {
            // A late grant while others are being raised: it is raised too.
            self.raise(net, token, [node]);
        }
    }

    /// Its timer rings: who is late, or has not answered by the end of the wait, is waited for no more. That end is
    /// the caller's own clock, and asks for no evidence.
    pub(super) fn due(&mut self, net: &mut Net) {
        if self.end.is_some_and(|end| end <= net.now) {
            return self.cut_short();
        }
        if self.deadline > net.now {
            return;
        }
        let late = net.late(self.outstanding());
        for (node, silence) in late.silent {
            self.ballot.vote(node, Err(silence));
        }
        if let Some(at) = late.until {
            self.deadline = at;
        }
    }

    /// Looks at the votes, and does what follows.
    pub(super) fn look(&mut self, net: &mut Net) -> Progress {
        let verdict = match self.ballot.verdict() {
            // The RELEASEs are on their way: what is granted late is granted to nobody.
            Verdict::Won(_) | Verdict::Split if self.rolled_back => Verdict::Over(Outcome::Held),
            verdict => verdict,
        };
        match verdict {
            Verdict::Open => self.wait(net, self.deadline),
            Verdict::Won(token) => {
                // Looked at after the last vote that counts, never before.
                let end = valid_until(self.t0, self.ttl).minus(notice(self.ttl));
                if net.now < end || !net.holds(Rule::ValidityAfterVote) {
                    return Progress::Won(token);
                }
                self.failed(net, Failure::TooSlow)
            }
            Verdict::Split => self.split(net),
            Verdict::Lost => {
                self.roll_back(net);
                self.wait(net, self.deadline)
            }
            Verdict::Over(Outcome::Held) => self.failed(net, Failure::Held),
            Verdict::Over(Outcome::NoQuorum) => self.failed(net, Failure::NoQuorum),
            Verdict::Over(Outcome::Quarantined) => self.failed(net, Failure::Quarantined),
        }
    }

    /// Takes back what it may leave behind, once: a second RELEASE would only come later.
    pub(super) fn roll_back(&mut self, net: &mut Net) {
        if !self.rolled_back {
            self.rolled_back = true;
            let granted = self.ballot.granted().map(|(node, _)| node);
            let answers = self.ballot.answers();
            let is_refused =
                |node| matches!(answers.get(node), Some(Heard::Said(Answer::Held { .. })));
            let asked = self.asked.iter().copied();
            // A writer that got some nodes in vain opens no window: readers would come in there again and again, before all
            // writers. And nobody is told of what was never held.
            let release = Verb::Release(Release {
                floor: net.floor(self.ballot.largest_counter()),
                ..Release::default()
            });
            let release = self.target.ask(&self.entry, release);
            let asked = asked.filter(|node| !is_refused(*node));
            roll_back(net, &release, self.node_ttl, asked, granted);
        }
    }

    /// Whether its caller could not wait for the answers that were still to come.
    pub(super) fn was_cut_short(&self) -> bool {
        self.cut_short
    }

    /// What is to be known of it once it failed. `is_stale`: some node said that it is not what it was.
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

    /// The evidence.
    pub(super) fn report(&self, net: &Net, retry_after: Option<Duration>) -> Report {
        let (name, nodes) = (self.target.name().as_str(), &net.settings.nodes);
        let answers = self.ballot.answers();
        answers.report(name, net.needed, nodes, retry_after)
    }

    /// The greatest counter in any answer.
    pub(super) fn largest_counter(&self) -> u64 {
        self.ballot.largest_counter()
    }

    /// The largest ticket in any answer: of those who wait, or of who holds.
    pub(super) fn largest_ticket(&self) -> u64 {
        let ticket = |heard: &Heard<Answer>| match heard {
            Heard::Said(Answer::Held { ticket, .. }) => *ticket,
            _ => 0,
        };
        self.ballot.answers().iter().map(ticket).max().unwrap_or(0)
    }

    /// What it has won for this wish, with this token. `waited`: who did, over all attempts.
    pub(super) fn grant(self, wish: Wish, token: u64, waited: Option<Entry>) -> Grant {
        let good = Good {
            until: valid_until(self.t0, self.ttl),
            notice: notice(self.ttl),
            is_provisional: false,
            is_partial: false,
        };
        Grant {
            wish,
            stands_for: self.node_ttl,
            round: self.round,
            token,
            since: self.t0,
            good,
            waited,
            held: self.granted().collect(),
            raising: self.raising().collect(),
            lacking: Vec::new(),
            target: self.target,
            entry: self.entry,
            asked: self.asked,
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

    fn outstanding(&self) -> impl Iterator<Item = super::net::Outstanding> + '_ {
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

    /// Looks again then, or at the end of the wait.
    fn wait(&self, net: &mut Net, until: Tick) -> Progress {
        let at = self.end.map_or(until, |end| end.min(until));
        net.timers.at(Key::of(self.tag()), at);
        Progress::Open
    }

    fn failed(&mut self, net: &mut Net, failure: Failure) -> Progress {
        self.roll_back(net);
        Progress::Failed(failure)
    }

    /// A majority granted, with unequal tokens: waits for the outstanding replies for about one
    /// more reply time, then raises.
    fn split(&mut self, net: &mut Net) -> Progress {
        let took = net.now.since(self.t0);
        let settle_at = *self.settle_at.get_or_insert_with(|| net.now.plus(took));
        if self.ballot.answers().waiting() > 0 && net.now < settle_at {
            return self.wait(net, settle_at);
        }
        if self.cut_short {
            // Q nodes have answered, and there is no time to make their tokens equal.
            return self.failed(net, Failure::Held);
        }
        let (token, behind) = self.ballot.raise();
        self.deadline = round::arm(net, self.tag());
        self.raise(net, token, behind);
        self.look(net)
    }

    fn raise(&mut self, net: &mut Net, token: u64, nodes: impl IntoIterator<Item = usize>) {
        let operation = self.target.ask(&self.entry, Verb::Raise { seq: 0, token });
        let tag = Purpose::Raise.of(self.round);
        for (node, silence) in round::ask(net, tag, &operation, nodes) {
            self.ballot.vote(node, Err(silence));
        }
    }
}

/// Every attempt has a new owner, and every place in line. With the rule off, those of one wish have the same: the simulation's labels
/// keep it apart from other clients'.
pub(super) fn new_owner(net: &mut Net, wish: WishId) -> Result<Entry, Error> {
    let owner = match net.holds(Rule::FreshOwner) {
        true => net.chance.owner()?,
        false => Uuid::from_u128(wish.0.into()),
    };
    Ok(Entry::new(owner, &net.settings.label))
}
