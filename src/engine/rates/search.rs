//! One search for units: which nodes were asked for how many, and what they answered.

use std::time::Duration;

use crate::{
    Silence,
    base::clock::Tick,
    base::quota::Stamp,
    engine::{cluster::Cluster, event::Spending, timers::LimitId},
    lease::response::Responder,
    node::status::NodeState,
    protocol::rates::words::{Amount, Grace, Outcome, Part},
};

/// How often a search waits for a node to get its scripts again.
const MOST_FLUSHED: usize = 16;
/// After this number of rounds with late answers the nodes count as too slow.
const MOST_LATE: u32 = 5;

/// The callers for which a search is made.
pub(super) enum For {
    One(Spending),
    /// The callers that wait, from the first one on.
    Line,
    /// A caller that only looks.
    Peek(Responder<Outcome>),
}

pub(super) struct Search {
    pub(super) limit: LimitId,
    pub(super) whom: For,
    pub(super) amount: Amount,
    pub(super) grace: Grace,
    /// For how long the units of the last attempt may be used.
    pub(super) age: Duration,
    /// For each node, the reason why it cannot be asked, as of the last check. It includes the nodes in `failed`.
    pub(super) silent: Vec<Option<Silence>>,
    /// The nodes that did not answer this search.
    pub(super) failed: Vec<(usize, Silence)>,
    pub(super) asked: Vec<Asked>,
    /// Since when it knows which units are taken everywhere.
    pub(super) looked_at: Option<Tick>,
    /// The number of failed attempts.
    pub(super) tries: u32,
    /// Some nodes gave units, but other units had been taken by another search. It may be another search for many
    /// units, which gives its part back too.
    pub(super) collided: bool,
    /// The number of LOOKs.
    pub(super) looks: u32,
    /// How often units came too late.
    pub(super) late: u32,
    /// How often a node's scripts were flushed.
    pub(super) flushed: usize,
    /// Until when it waits for nodes that are being met.
    pub(super) parked: Option<Tick>,
}

/// A request for units to one node.
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

    /// Returns true if nodes are being met, and the search has not waited for them to the end yet.
    pub(super) fn may_park(&self, cluster: &Cluster) -> bool {
        let is_met = |state| state == NodeState::Connecting;
        self.parked.is_none_or(|until| cluster.now < until) && cluster.states().any(is_met)
    }

    /// Updates the reasons why nodes cannot be asked.
    pub(super) fn look_at_nodes(&mut self, silences: Vec<Option<Silence>>) {
        self.silent = silences;
        for (node, silence) in &self.failed {
            if let Some(silent) = self.silent.get_mut(*node) {
                *silent = Some(silence.clone());
            }
        }
    }

    /// A node did not answer. A node whose scripts were flushed has done nothing, and gets the scripts before it is
    /// asked again.
    pub(super) fn found_silent(&mut self, node: usize, silence: Silence) {
        match silence {
            Silence::ScriptsFlushed if self.flushed < MOST_FLUSHED => self.flushed += 1,
            silence => self.failed.push((node, silence)),
        }
    }

    /// Allows the nodes that gave units too late to be asked again, unless that has happened too often. (One pause of
    /// this process makes all answers late.) Returns false if there is no such node.
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

    /// Returns true if no node may be asked.
    pub(super) fn is_in_vain(&self) -> bool {
        self.silent.iter().all(Option::is_some)
    }

    pub(super) fn is_answered(&self) -> bool {
        self.asked.iter().all(|asked| asked.said.is_some())
    }

    /// The nodes that have not answered.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = usize> + '_ {
        let open = self.asked.iter().filter(|asked| asked.said.is_none());
        open.map(|asked| asked.node)
    }

    pub(super) fn asked_of(&mut self, node: usize) -> Option<&mut Asked> {
        let mut asked = self.asked.iter_mut();
        asked.find(|asked| asked.node == node && asked.said.is_none())
    }

    /// Takes out the units that were given, and the time at which the first of them was asked for.
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

/// Takes this number of units out of the parts. The others stay.
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

/// The number of units in these parts.
pub(super) fn count(parts: &[Part]) -> u32 {
    parts
        .iter()
        .fold(0, |sum, part| sum.saturating_add(part.units))
}
