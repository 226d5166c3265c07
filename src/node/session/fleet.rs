//! A client's knowledge of all its nodes together (protocol §2, "The client"). This file is pure.

use std::{sync::Arc, time::Duration};

use crate::{
    base::{
        clock::Tick,
        printable::printable,
        rules::{Rule, Rules},
        text::counted,
    },
    node::{
        admission::{BootRecord, Terms, Vouch, is_mine},
        settings::Settings,
    },
};

/// The fleet as last read on living connections: which nodes vote, for which fleet, and on what terms.
pub(crate) struct Fleet {
    settings: Arc<Settings>,
    /// By node: the record that is in sight.
    sights: Vec<Option<BootRecord>>,
    /// The greatest terms of the voting nodes in sight. While none is in sight, the last that were known.
    terms: Option<Terms>,
    /// u: this client has met a voting node of its fleet.
    used: bool,
    /// An operator forces a bootstrap, so this client vouches.
    forced: bool,
    /// Since when a majority of nodes with records of this fleet has been in sight, and no foreign voter.
    majority_since: Option<Tick>,
    /// The terms with which a voting node counts: the fleet's, if they are enough for this client.
    counted: Option<Terms>,
    /// The reason why no node is counted at all.
    stop: Option<Arc<str>>,
    /// The last time at which the terms, the reason to stop or a record changed.
    moved_at: Tick,
    /// They changed, and [`take_moved`](Self::take_moved) has not been called since.
    moved: bool,
    /// By node: the server process behind it.
    runs: Vec<Option<String>>,
    /// By node: the id of the record that was read last.
    ids: Vec<Option<String>>,
    /// The node that logs in again now.
    logging_in: Option<usize>,
}

impl Fleet {
    pub(crate) fn new(settings: Arc<Settings>) -> Self {
        let total = settings.total();
        Self {
            sights: vec![None; total],
            terms: None,
            used: false,
            forced: false,
            majority_since: None,
            counted: None,
            stop: None,
            moved_at: Tick::default(),
            moved: false,
            runs: vec![None; total],
            ids: vec![None; total],
            logging_in: None,
            settings,
        }
    }

    // ---- logins -----------------------------------------------------------------------------

    /// Takes the turn to log in. Returns false if another node has it.
    pub(crate) fn begin_login(&mut self, node: usize) -> bool {
        let free = self.logging_in.is_none() || !self.rules().hold(Rule::OneLoginAtATime);
        if free {
            self.logging_in = Some(node);
        }
        free
    }

    /// Gives the turn back, if this node has it.
    pub(crate) fn end_login(&mut self, node: usize) {
        self.logging_in.take_if(|turn| *turn == node);
    }

    // ---- what it says -----------------------------------------------------------------------

    /// v: what a handshake of this client may vouch for.
    pub(crate) fn vouch(&self) -> Vouch {
        let voters = self.mine().filter(|record| record.votes()).count();
        // For servers that are thrown away nobody vouches, so that a wrong setting replaces no record of another fleet.
        if self.foreign().is_some() || self.settings.is_throwaway() {
            Vouch::Stranger
        } else if self.forced || self.is_majority(voters) {
            Vouch::Majority
        } else if voters > 0 {
            Vouch::Voter
        } else {
            Vouch::Stranger
        }
    }

    /// u: returns true if this client has met a voting node of its fleet.
    pub(crate) fn was_used(&self) -> bool {
        self.used
    }

    /// The terms that a handshake brings. They are the fleet's if this client vouches for them, and otherwise the
    /// greater of the fleet's and its own.
    pub(crate) fn terms_to_bring(&self) -> Terms {
        let own = self.settings.terms;
        let terms = match (self.terms, self.vouch()) {
            (Some(terms), Vouch::Voter | Vouch::Majority) if !self.forced => terms,
            (Some(terms), _) => terms.join(own),
            (None, _) => own,
        };
        match self.rules().hold(Rule::MarginInRecord) {
            true => terms,
            false => Terms {
                margin: own.margin,
                ..terms
            },
        }
    }

    /// The greater of the fleet's terms and this client's.
    pub(crate) fn greatest_terms(&self) -> Terms {
        let own = self.settings.terms;
        self.terms.map_or(own, |terms| terms.join(own))
    }

    /// The longest lease of the fleet.
    pub(crate) fn max_ttl(&self) -> Duration {
        self.terms.unwrap_or(self.settings.terms).max_ttl
    }

    /// Since when this client may count the time for which it watches a node. Since then it has seen a majority of the
    /// fleet, including this node, and no voting node of another fleet. `None` if it does not.
    pub(crate) fn witnesses_since(&self, node: usize) -> Option<Tick> {
        if !self.rules().hold(Rule::MajorityInSight) {
            return Some(Tick::default());
        }
        let record = self.sights.get(node)?.as_ref()?;
        self.majority_since.filter(|_| self.is_mine(record))
    }

    /// Returns true if this client's next handshake makes a node with this record vote: the servers are thrown away after
    /// this run, and a majority of them is in sight.
    pub(crate) fn admits_at_once(&self, record: &BootRecord) -> bool {
        self.settings.is_throwaway() && self.is_mine(record) && self.majority_since.is_some()
    }

    /// Returns true if a node of this fleet has smaller terms than this client asks for, and will not learn them from a
    /// handshake. That is so if it votes, or if it was vouched for and will vote on the terms that it has.
    pub(crate) fn has_less(&self) -> bool {
        let mut fixed = self
            .mine()
            .filter(|record| record.votes() || record.vouched);
        fixed.any(|record| self.settings.terms.exceed(record.terms))
    }

    /// The reason why no node is counted, if there is one.
    pub(crate) fn stop(&self) -> Option<&Arc<str>> {
        self.stop.as_ref()
    }

    /// Returns true if a voting node with these terms counts.
    pub(crate) fn counts(&self, terms: Terms) -> bool {
        self.counted == Some(terms)
    }

    pub(crate) fn is_mine(&self, record: &BootRecord) -> bool {
        let Settings { nodes, list, .. } = &*self.settings;
        is_mine(record, nodes.len() as u64, list, self.rules())
    }

    /// The last time at which the terms, the reason to stop or a record changed.
    pub(crate) fn moved_at(&self) -> Tick {
        self.moved_at
    }

    /// Returns true if the terms, the reason to stop or a record changed since the last call. Then every node has to be
    /// met again.
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    // ---- what is said to it -----------------------------------------------------------------

    /// A node's record was read. `None` if the node is out of sight.
    pub(crate) fn see(&mut self, now: Tick, node: usize, record: Option<&BootRecord>) {
        if let Some(sight) = self.sights.get_mut(node) {
            *sight = record.cloned();
        }
        // If one memory is new, the other records may be out of date: the terms may have been raised in between, and
        // this client must vouch for the present terms. So all nodes are met again.
        if let (Some(record), Some(id)) = (record, self.ids.get_mut(node))
            && id.as_ref() != Some(&record.id)
        {
            *id = Some(record.id.clone());
            (self.moved, self.moved_at) = (true, now);
        }
        let terms_of = |records: &mut dyn Iterator<Item = &BootRecord>| {
            records.map(|record| record.terms).reduce(Terms::join)
        };
        let voters = terms_of(&mut self.mine().filter(|record| record.votes()));
        let taught = match self.rules().hold(Rule::OnlyVotersTeach) {
            true => voters,
            false => terms_of(&mut self.mine()),
        };
        self.used |= voters.is_some();
        let sees_majority = self.foreign().is_none() && self.is_majority(self.mine().count());
        self.majority_since = match sees_majority {
            true => self.majority_since.or(Some(now)),
            false => None,
        };
        let (terms, stop) = (taught.or(self.terms), self.reason_to_stop());
        if terms != self.terms || stop != self.stop {
            (self.terms, self.stop) = (terms, stop);
            (self.moved, self.moved_at) = (true, now);
            let any = !self.rules().hold(Rule::RaiseBeforeUse);
            let enough = |terms: &Terms| any || !self.settings.terms.exceed(*terms);
            self.counted = self.terms.filter(enough).filter(|_| self.stop.is_none());
        }
    }

    /// A forced bootstrap begins or ends.
    pub(crate) fn force(&mut self, forced: bool) {
        self.forced = forced;
    }

    /// Notes the process behind this node. The error is the index of another node that leads to the same process.
    pub(crate) fn claim_run(&mut self, node: usize, run: &str) -> Result<(), usize> {
        let process = run.split('/').next().unwrap_or(run);
        let same = |other: &Option<String>| other.as_deref() == Some(process);
        if let Some(other) = self
            .runs
            .iter()
            .enumerate()
            .position(|(i, r)| i != node && same(r))
        {
            return Err(other);
        }
        if let Some(slot) = self.runs.get_mut(node) {
            *slot = Some(process.to_owned());
        }
        Ok(())
    }

    pub(crate) fn forget_run(&mut self, node: usize) {
        if let Some(slot) = self.runs.get_mut(node) {
            *slot = None;
        }
    }

    // ---- for people -------------------------------------------------------------------------

    /// Describes both sides, if a record is of another fleet.
    pub(crate) fn difference(&self, record: &BootRecord) -> String {
        format!(
            "{}, fleet id {:?}; this client: {}, fleet id {:?}",
            counted(record.masters, "master"),
            printable(record.list.clone()),
            counted(self.settings.total() as u64, "master"),
            self.settings.list,
        )
    }

    /// The command by which an operator makes a node forget its record.
    pub(crate) fn forget_hint(&self) -> String {
        let prefix = &self.settings.prefix;
        format!("DEL {prefix}:boot {prefix}:open there")
    }

    // ---- inside -----------------------------------------------------------------------------

    fn is_majority(&self, nodes: usize) -> bool {
        2 * nodes > self.settings.total()
    }

    fn rules(&self) -> Rules {
        self.settings.rules
    }

    fn mine(&self) -> impl Iterator<Item = &BootRecord> + Clone {
        let in_sight = self.sights.iter().flatten();
        in_sight.filter(|record| self.is_mine(record))
    }

    /// A voting node of another fleet, if one is in sight.
    fn foreign(&self) -> Option<(usize, &BootRecord)> {
        if !self.rules().hold(Rule::OtherFleetStops) {
            return None;
        }
        let in_sight = self.sights.iter().enumerate();
        let mut in_sight = in_sight.filter_map(|(node, record)| Some((node, record.as_ref()?)));
        in_sight.find(|(_, record)| record.votes() && !self.is_mine(record))
    }

    fn reason_to_stop(&self) -> Option<Arc<str>> {
        if let Some((node, _)) = self.foreign() {
            let node = self.settings.nodes.get(node)?;
            let why = format!(
                "not counted while {node} votes for another fleet: see the reason given for {node}"
            );
            return Some(why.into());
        }
        let less = self
            .less()
            .filter(|_| self.rules().hold(Rule::RaiseBeforeUse))?;
        Some(ask_for_less(self.settings.terms, less).into())
    }

    /// The terms of a voting node whose terms are smaller than those that this client asks for.
    fn less(&self) -> Option<Terms> {
        let own = self.settings.terms;
        let mut voters = self.mine().filter(|record| record.votes());
        let less = voters.find(|record| own.exceed(record.terms));
        less.map(|record| record.terms)
    }
}

/// The advice if this client asks for more than the fleet has.
fn ask_for_less(own: Terms, fleet: Terms) -> String {
    let mut both = Vec::new();
    for (what, flag, here, there) in [
        ("max_ttl", "--max-ttl", own.max_ttl, fleet.max_ttl),
        (
            "restart_margin",
            "--restart-margin",
            own.margin,
            fleet.margin,
        ),
    ] {
        if here > there {
            let (here, there) = (exactly(here), exactly(there));
            both.push(format!(
                "{what} is {here} here and {there} in the fleet: lower it, or raise it everywhere \
                 with `quorate raise-terms {flag}`"
            ));
        }
    }
    both.join("; ")
}

/// A duration with one decimal, such as `86400.0 s`. Two settings that differ by a second have to look different.
fn exactly(d: Duration) -> String {
    format!("{}.{} s", d.as_secs(), d.subsec_millis() / 100)
}

#[cfg(test)]
mod tests;
