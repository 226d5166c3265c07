//! One search for units: what was asked of whom, and what was said.

use std::time::Duration;

use crate::{
    Silence,
    base::clock::Tick,
    base::quota::Stamp,
    engine::{event::Spending, net::Net, timers::LimitId},
    lease::response::Responder,
    node::status::NodeState,
    protocol::rates::words::{Amount, Grace, Outcome, Part},
};

/// So often a search waits for scripts that are given to nodes again.
const MOST_FLUSHED: usize = 16;
/// The nodes count as too slow after this number of rounds in which answers came too late.
const MOST_LATE: u32 = 5;

/// For whom.
pub(super) enum For {
    One(Spending),
    /// Those who wait, from the first on.
    Line,
    /// One who only looks.
    Peek(Responder<Outcome>),
}

pub(super) struct Search {
    pub(super) limit: LimitId,
    pub(super) whom: For,
    pub(super) amount: Amount,
    pub(super) grace: Grace,
    /// For how long what was asked for last may be used.
    pub(super) age: Duration,
    /// Who may not be asked, as was looked at last, and who did not answer it.
    pub(super) silent: Vec<Option<Silence>>,
    /// Who did not answer it.
    pub(super) failed: Vec<(usize, Silence)>,
    pub(super) asked: Vec<Asked>,
    /// Since when it knows what is taken everywhere.
    pub(super) looked_at: Option<Tick>,
    /// How often it has asked in vain.
    pub(super) tries: u32,
    /// It got units of some nodes, and others came before it to the rest: perhaps one that wants many too, and gives back as
    /// well.
    pub(super) collided: bool,
    /// How often it asked what is taken.
    pub(super) looks: u32,
    /// How often what was given came too late.
    pub(super) late: u32,
    /// How often a node's scripts were flushed.
    pub(super) flushed: usize,
    /// Until when it waits for nodes that are being met.
    pub(super) parked: Option<Tick>,
}

/// What one node was asked for.
pub(super) struct Asked {
    pub(super) node: usize,
    pub(super) units: u32,
    pub(super) sent_at: Tick,
    /// How long the answer took.
    pub(super) took: Duration,
    pub(super) said: Option<Said>,
}

pub(super) enum Said {
    Spent(Box<[Stamp]>),
    Full,
    Nothing,
}

impl Search {
    pub(super) fn new(limit: LimitId, whom: For, amount: Amount, grace: Grace) -> Self {
        Self {
            limit,
            whom,
            amount,
            grace,
            age: grace.least,
            silent: Vec::new(),
            failed: Vec::new(),
            asked: Vec::new(),
            looked_at: None,
            tries: 0,
            collided: false,
            looks: 0,
            late: 0,
            flushed: 0,
            parked: None,
        }
    }

    /// Whether nodes are being met, and were not waited for yet.
    pub(super) fn may_park(&self, net: &Net) -> bool {
        let is_met = |state| state == NodeState::Connecting;
        self.parked.is_none_or(|until| net.now < until) && net.states().any(is_met)
    }

    /// Who may not be asked now.
    pub(super) fn look_at_nodes(&mut self, silences: Vec<Option<Silence>>) {
        self.silent = silences;
        for (node, silence) in &self.failed {
            if let Some(silent) = self.silent.get_mut(*node) {
                *silent = Some(silence.clone());
            }
        }
    }

    /// A node did not answer it. One whose scripts were flushed has done nothing, and is given them again before it is asked
    /// again.
    pub(super) fn found_silent(&mut self, node: usize, silence: Silence) {
        match silence {
            Silence::ScriptsFlushed if self.flushed < MOST_FLUSHED => self.flushed += 1,
            silence => self.failed.push((node, silence)),
        }
    }

    /// Asks the nodes again that gave units too late, if it has not done so too often: one pause of this process makes all
    /// answers late. False if there is none to be asked again.
    pub(super) fn asks_the_late_again(&mut self) -> bool {
        let failed = self.failed.len();
        if self.late < MOST_LATE {
            let is_late = |silence: &Silence| matches!(silence, Silence::OutOfReach(_));
            self.failed.retain(|(_, silence)| !is_late(silence));
        }
        self.failed.len() < failed
    }

    /// The nodes that gave units too late to be used, and how long their answers took.
    pub(super) fn late_nodes(&self) -> Vec<(usize, Silence)> {
        let gave = |asked: &&Asked| matches!(asked.said, Some(Said::Spent(_)));
        let given = self.asked.iter().filter(gave);
        let late = given.filter(|asked| asked.took >= self.age);
        late.map(|asked| (asked.node, Silence::OutOfReach(asked.took)))
            .collect()
    }

    /// Nobody may be asked.
    pub(super) fn is_in_vain(&self) -> bool {
        self.silent.iter().all(Option::is_some)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.asked.iter().all(|asked| asked.said.is_some())
    }

    /// Who has not answered.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = usize> + '_ {
        let open = self.asked.iter().filter(|asked| asked.said.is_none());
        open.map(|asked| asked.node)
    }

    pub(super) fn asked_of(&mut self, node: usize) -> Option<&mut Asked> {
        let mut asked = self.asked.iter_mut();
        asked.find(|asked| asked.node == node && asked.said.is_none())
    }

    /// What was given, and when the first of it was asked for. None is left here.
    pub(super) fn take_given(&mut self) -> (Vec<Part>, Option<Tick>) {
        let mut since: Option<Tick> = None;
        let mut parts = Vec::with_capacity(self.asked.len());
        for asked in self.asked.drain(..) {
            if let Some(Said::Spent(stamps)) = asked.said {
                since = Some(since.map_or(asked.sent_at, |since| since.min(asked.sent_at)));
                parts.push(Part {
                    node: asked.node,
                    units: asked.units,
                    stamps,
                });
            }
        }
        (parts, since)
    }
}

/// So many of these units; the others stay.
pub(super) fn split(parts: &mut Vec<Part>, mut units: u32) -> Vec<Part> {
    let mut some = Vec::new();
    while units > 0 {
        let Some(part) = parts.last_mut() else { break };
        let taken = part.units.min(units);
        units -= taken;
        part.units -= taken;
        some.push(Part {
            units: taken,
            ..part.clone()
        });
        if part.units == 0 {
            parts.pop();
        }
    }
    some
}

/// How many these are.
pub(super) fn count(parts: &[Part]) -> u32 {
    parts
        .iter()
        .fold(0, |sum, part| sum.saturating_add(part.units))
}
