//! The last answers to a queued acquisition. They say if a majority hears it, and when its wait is over.

use std::time::Duration;

use super::{last::Last, waiter::Waiter};
use crate::{
    Error, Report,
    base::{clock::Tick, name::Name, rules::Rule},
    engine::cluster::Cluster,
    node::status::NodeState,
    protocol::ballot::acquire::Failure,
};

/// How often the state of the nodes is looked at while there is no majority.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Reach {
    /// The last answer of each node.
    pub(super) last: Last,
    /// The time at which it lost its majority. `None` while a majority hears it.
    alone_since: Option<Tick>,
    /// The time of the next look for a majority.
    pub(super) look_at: Option<Tick>,
}

impl Reach {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            last: Last::new(nodes),
            alone_since: None,
            look_at: None,
        }
    }

    /// Returns true if no majority votes. It then asks no node, because grants from a minority must expire.
    pub(super) fn check_alone(&mut self, cluster: &Cluster) -> bool {
        let has_a_majority = cluster.has_a_majority();
        if has_a_majority && self.is_heard(cluster) || !cluster.rule_holds(Rule::StandAside) {
            self.alone_since = None;
            return false;
        }
        self.alone_since.get_or_insert(cluster.now);
        !has_a_majority
    }

    /// Returns true if the last call of [`check_alone`](Self::check_alone) found that fewer than Q nodes both vote and
    /// hear this waiter.
    pub(super) fn is_unheard(&self) -> bool {
        self.alone_since.is_some()
    }

    /// Returns true if at least Q of the nodes that vote have answered the last request, or have still to answer it.
    fn is_heard(&self, cluster: &Cluster) -> bool {
        if !self.last.is_any_silent() {
            return true;
        }
        let states = cluster.states().enumerate();
        let hear = states
            .filter(|(node, state)| *state == NodeState::Voting && !self.last.is_silent(*node));
        hear.count() >= cluster.needed
    }

    /// The time at which this waiter leaves the nodes that know it. `None` while a majority hears it. (It does not
    /// leave at once. After all connections were cut, no majority hears it for a moment, because the nodes do not come
    /// back at the same time.)
    pub(super) fn aside_at(&self, term: Duration) -> Option<Tick> {
        Some(self.alone_since?.plus(term / 2))
    }

    /// The error that ends the wait, if its time is over, or if there has been no majority for too long.
    pub(super) fn check_over(
        &mut self,
        cluster: &mut Cluster,
        waiter: &mut Waiter,
    ) -> Option<Error> {
        let of = |wanted: fn(&NodeState) -> bool| cluster.states().filter(wanted).count();
        let voting = of(|state| *state == NodeState::Voting);
        let name = waiter.acquisition.name();
        if cluster.has_a_majority() {
            self.look_at = None;
            waiter.patience.found_majority();
            let ends = waiter.patience.is_over(cluster.now);
            return ends.then(|| {
                let name = waiter.acquisition.name();
                Error::Held(self.report(cluster, name, self.last.free_in()))
            });
        }
        let (failure, error) = self.no_majority(cluster, name, voting);
        self.look_at = Some(cluster.now.plus(LOOK));
        let goes_on = waiter.goes_on(cluster, failure, &error);
        (!goes_on).then_some(error)
    }

    /// The error that ends the wait, if its time is over before a majority has answered. It is the error of an attempt
    /// that was cut short.
    pub(super) fn check_cut_short(
        &mut self,
        cluster: &Cluster,
        waiter: &mut Waiter,
    ) -> Option<Error> {
        if !waiter.patience.is_over(cluster.now) || self.last.answered() >= cluster.needed {
            return None;
        }
        self.last.end();
        let unheard = || {
            self.no_majority(cluster, waiter.acquisition.name(), self.last.answered())
                .1
        };
        Some(waiter.last.take().map_or_else(unheard, |last| *last))
    }

    /// The error if too few nodes are heard. It is `Quarantined` if the nodes in quarantine would make up the majority.
    fn no_majority(&self, cluster: &Cluster, name: &Name, heard: usize) -> (Failure, Error) {
        let is_quarantined = |state: &NodeState| matches!(state, NodeState::Quarantined(_));
        let quarantined = cluster.states().filter(is_quarantined).count();
        let report = self.report(cluster, name, Some(cluster.try_again(cluster.needed)));
        match heard + quarantined >= cluster.needed {
            true => (Failure::Quarantined, cluster.quarantined(report)),
            false => (Failure::NoQuorum, Error::NoQuorum(report)),
        }
    }

    /// The evidence: the last answer of each node, or the reason why it does not answer.
    pub(super) fn report(
        &self,
        cluster: &Cluster,
        name: &Name,
        retry_after: Option<Duration>,
    ) -> Report {
        let mut answers = self.last.answers();
        for (node, state) in cluster.states().enumerate() {
            if let Some(silence) = state.silence() {
                answers.set(node, Err(silence));
            }
        }
        answers.report(
            name.as_str(),
            cluster.needed,
            &cluster.settings.nodes,
            retry_after,
        )
    }
}
