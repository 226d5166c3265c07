//! The view of the core for the simulation and for tests.

use super::Core;
use crate::{
    base::clock::Tick,
    node::{session::Session, status::NodeState},
};
#[cfg(test)]
use crate::{
    base::owner::Chance,
    engine::Event,
    lease::keeper::LeaseId,
    node::{Answered, Incoming},
};

impl Core {
    /// Everything that is kept while nothing is going on. All of it is zero after a quiet time.
    pub(crate) fn leftovers(&self) -> [(&'static str, usize); 8] {
        let [acquisitions, tables] = self.acquisitions.len();
        let [leases, rounds] = self.holdings.len();
        let sessions = self.cluster.sessions().iter();
        [
            ("acquisitions", acquisitions),
            ("tables of acquisitions", tables),
            ("leases", leases),
            ("rounds", rounds + self.surveys.len()),
            ("timers", self.cluster.timers.len()),
            ("early requests", self.startup.len()),
            ("callers", self.ready.len()),
            ("releases", sessions.filter(|s| !s.is_idle()).count()),
        ]
    }

    /// The greatest number of unanswered requests of any node.
    pub(crate) fn most_in_flight(&self) -> usize {
        let in_flight = self.cluster.sessions().iter().map(Session::in_flight);
        in_flight.max().unwrap_or(0)
    }

    pub(crate) fn states(&self, now: Tick) -> Vec<NodeState> {
        self.cluster.states_at(now).collect()
    }

    /// Feeds in answers only.
    #[cfg(test)]
    pub(crate) fn answered(
        &mut self,
        node: usize,
        answers: impl IntoIterator<Item = Answered>,
    ) -> bool {
        self.came(node, answers.into_iter().map(Incoming::Answer))
    }

    /// Feeds in a single event.
    #[cfg(test)]
    pub(crate) fn event(&mut self, event: Event) {
        self.events([event]);
    }

    #[cfg(test)]
    pub(crate) fn first_lease(&self) -> Option<LeaseId> {
        self.holdings.first()
    }

    #[cfg(test)]
    pub(crate) fn set_chance(&mut self, chance: Chance) {
        self.cluster.chance = chance;
    }
}
