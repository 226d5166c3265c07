//! One who stands in line: what the nodes have said to it last, whether a majority hears it, and when its wait is over.

use std::time::Duration;

use super::{last::Last, waiter::Waiter};
use crate::{
    Error, Report,
    base::{clock::Tick, name::Name, rules::Rule},
    engine::{net::Net, patience::Failure},
    node::status::NodeState,
};

/// While there is no majority it is looked after this often.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Standing {
    /// What each node has said last.
    pub(super) last: Last,
    /// Since when no majority hears it, while none does.
    alone_since: Option<Tick>,
    /// When to look next whether there is one.
    pub(super) look_at: Option<Tick>,
}

impl Standing {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            last: Last::new(nodes),
            alone_since: None,
            look_at: None,
        }
    }

    /// Whether no majority votes. It asks nobody then: what a minority has handed to it shall end.
    pub(super) fn check_alone(&mut self, net: &Net) -> bool {
        let has_a_majority = net.has_a_majority();
        if has_a_majority && self.is_heard(net) || !net.holds(Rule::StandAside) {
            self.alone_since = None;
            return false;
        }
        self.alone_since.get_or_insert(net.now);
        !has_a_majority
    }

    /// True if the last call of [`check_alone`](Self::check_alone) found that fewer than Q nodes vote and hear this waiter.
    pub(super) fn is_unheard(&self) -> bool {
        self.alone_since.is_some()
    }

    /// Whether Q of those that vote have not refused it.
    fn is_heard(&self, net: &Net) -> bool {
        if !self.last.is_any_silent() {
            return true;
        }
        let states = net.states().enumerate();
        let hear = states
            .filter(|(node, state)| *state == NodeState::Voting && !self.last.is_silent(*node));
        hear.count() >= net.needed
    }

    /// Until when nodes may know it, while it is alone. (For a moment it is when all connections were cut: the nodes are
    /// not back at once.)
    pub(super) fn aside_at(&self, term: Duration) -> Option<Tick> {
        Some(self.alone_since?.plus(term / 2))
    }

    /// Why it waits no more: its time is over, or there has been no majority for too long.
    pub(super) fn check_over(&mut self, net: &mut Net, waiter: &mut Waiter) -> Option<Error> {
        let of = |wanted: fn(&NodeState) -> bool| net.states().filter(wanted).count();
        let voting = of(|state| *state == NodeState::Voting);
        let name = waiter.wish.name();
        if net.has_a_majority() {
            self.look_at = None;
            waiter.patience.found_majority();
            let ends = waiter.patience.is_over(net.now);
            return ends.then(|| {
                let name = waiter.wish.name();
                Error::Held(self.report(net, name, self.last.free_in()))
            });
        }
        let (failure, error) = self.no_majority(net, name, voting);
        self.look_at = Some(net.now.plus(LOOK));
        let goes_on = waiter.goes_on(net, failure, &error);
        (!goes_on).then_some(error)
    }

    /// Why it waits no more, where its time is over before a majority has said whether it stands in line: as of an attempt that is cut
    /// short.
    pub(super) fn check_cut_short(&mut self, net: &Net, waiter: &mut Waiter) -> Option<Error> {
        if !waiter.patience.is_over(net.now) || self.last.answered() >= net.needed {
            return None;
        }
        self.last.end();
        let unheard = || {
            self.no_majority(net, waiter.wish.name(), self.last.answered())
                .1
        };
        Some(waiter.last.take().map_or_else(unheard, |last| *last))
    }

    /// So many are heard, and these are too few: for the time of a quarantine, or not.
    fn no_majority(&self, net: &Net, name: &Name, heard: usize) -> (Failure, Error) {
        let is_quarantined = |state: &NodeState| matches!(state, NodeState::Quarantined(_));
        let quarantined = net.states().filter(is_quarantined).count();
        let report = self.report(net, name, Some(net.try_again(net.needed)));
        match heard + quarantined >= net.needed {
            true => (Failure::Quarantined, Error::Quarantined(report)),
            false => (Failure::NoQuorum, Error::NoQuorum(report)),
        }
    }

    /// The evidence: what each node has said last, or why it says nothing.
    pub(super) fn report(&self, net: &Net, name: &Name, retry_after: Option<Duration>) -> Report {
        let mut answers = self.last.answers();
        for (node, state) in net.states().enumerate() {
            if let Some(silence) = state.silence() {
                answers.set(node, Err(silence));
            }
        }
        answers.report(name.as_str(), net.needed, &net.settings.nodes, retry_after)
    }
}
