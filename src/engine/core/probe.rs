//! What the simulation and tests look at.

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
    /// What is kept though nothing goes on: all of it zero after quiet time.
    pub(crate) fn leftovers(&self) -> [(&'static str, usize); 8] {
        let [wishes, line] = self.wishes.len();
        let [leases, rounds] = self.holdings.len();
        let sessions = self.net.sessions().iter();
        [
            ("wishes", wishes),
            ("line", line),
            ("leases", leases),
            ("rounds", rounds + self.questions.len() + self.pools.len()),
            ("timers", self.net.timers.len()),
            ("early requests", self.early.len()),
            ("callers", self.ready.len()),
            ("releases", sessions.filter(|s| !s.is_idle()).count()),
        ]
    }

    /// How many requests are unanswered at the node that owes the most.
    pub(crate) fn most_in_flight(&self) -> usize {
        let in_flight = self.net.sessions().iter().map(Session::in_flight);
        in_flight.max().unwrap_or(0)
    }

    pub(crate) fn states(&self, now: Tick) -> Vec<NodeState> {
        self.net.states_at(now).collect()
    }

    /// Answers and nothing else.
    #[cfg(test)]
    pub(crate) fn answered(
        &mut self,
        node: usize,
        answers: impl IntoIterator<Item = Answered>,
    ) -> bool {
        self.came(node, answers.into_iter().map(Incoming::Answer))
    }

    /// One alone.
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
        self.net.chance = chance;
    }
}
