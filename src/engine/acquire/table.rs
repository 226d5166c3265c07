//! The table of acquisitions, and the stage of each. No other file changes a stage.

use std::{hash::RandomState, mem};

use super::{attempt::Attempt, queued::Queued, waiter::Waiter};
use crate::{
    base::{ids::ById, owner::Entry, shrink::Shrink as _},
    engine::{cluster::Cluster, event::AcquisitionId, timers::Key},
    node::session::RoundId,
};

#[derive(Default)]
pub(super) struct Table {
    all: ById<AcquisitionId, Row>,
    /// The acquisition that expects the answers of a round.
    rounds: ById<RoundId, AcquisitionId>,
    /// The queued acquisitions, by the owner that pushes name. The owners in pushes come from outside, so the hash
    /// function is one that resists chosen keys.
    owners: hashbrown::HashMap<Entry, AcquisitionId, RandomState>,
    /// The number of attempts.
    attempts: usize,
}

pub(super) struct Row {
    pub(super) waiter: Box<Waiter>,
    stage: Stage,
}

pub(super) enum Stage {
    /// It asks the nodes next, within the same step of the engine.
    Begins,
    /// Too many acquisitions of its target are asking, or the nodes have enough to answer.
    Throttled,
    Attempt(Box<Attempt>),
    /// It rests between two attempts.
    Rest,
    /// It is in the queue of a mutex, or looks for a slot. A search for a slot may be for a caller that does not wait.
    Queued(Queued),
}

impl Row {
    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Its waiter, and its stage to work on. Only [`Table::set`] moves it to another stage.
    pub(super) fn parts(&mut self) -> (&mut Box<Waiter>, &mut Stage) {
        (&mut self.waiter, &mut self.stage)
    }

    pub(super) fn into_attempt(self) -> Option<(Box<Waiter>, Box<Attempt>)> {
        match self.stage {
            Stage::Attempt(attempt) => Some((self.waiter, attempt)),
            _ => None,
        }
    }
}

impl Table {
    /// Inserts a new acquisition, which begins.
    pub(super) fn insert(&mut self, waiter: Box<Waiter>) {
        let stage = Stage::Begins;
        self.all
            .insert(waiter.acquisition.id, Row { waiter, stage });
    }

    pub(super) fn get(&self, id: AcquisitionId) -> Option<&Row> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: AcquisitionId) -> Option<&mut Row> {
        self.all.get_mut(&id)
    }

    /// Moves an acquisition to this stage.
    pub(super) fn set(&mut self, cluster: &mut Cluster, id: AcquisitionId, stage: Stage) {
        if let Some(one) = self.all.get_mut(&id) {
            let before = mem::replace(&mut one.stage, stage);
            self.stage_left(cluster, id, &before);
            self.stage_entered(id);
        }
    }

    /// Removes an acquisition that is over.
    pub(super) fn remove(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Row> {
        let one = self.all.remove(&id)?;
        self.stage_left(cluster, id, &one.stage);
        self.all.shrink_if_empty();
        self.rounds.shrink_if_empty();
        self.owners.shrink_if_empty();
        Some(one)
    }

    /// Takes back everything that the nodes know of a queued acquisition. From now on they know it under this owner.
    pub(super) fn set_owner(&mut self, cluster: &mut Cluster, id: AcquisitionId, owner: Entry) {
        if let Some(one) = self.all.get_mut(&id)
            && let Stage::Queued(queued) = &mut one.stage
        {
            queued.roll_back(cluster, &one.waiter);
            cluster.timers.cancel(Key::of(queued.common().tag()));
            self.rounds.remove(&queued.common().round);
            self.owners.remove(&queued.common().owner);
            queued.set_owner(cluster, &mut one.waiter, owner);
            self.stage_entered(id);
        }
    }

    fn stage_entered(&mut self, id: AcquisitionId) {
        match self.all.get(&id).map(Row::stage) {
            Some(Stage::Attempt(attempt)) => {
                self.attempts += 1;
                self.rounds.insert(attempt.round, id);
            }
            Some(Stage::Queued(queued)) => {
                let common = queued.common();
                self.rounds.insert(common.round, id);
                self.owners.insert(common.owner.clone(), id);
            }
            _ => {}
        }
    }

    fn stage_left(&mut self, cluster: &mut Cluster, id: AcquisitionId, stage: &Stage) {
        match stage {
            Stage::Begins => {}
            Stage::Throttled | Stage::Rest => cluster.timers.cancel(Key::Acquisition(id)),
            Stage::Attempt(attempt) => {
                self.attempts -= 1;
                cluster.timers.cancel(Key::of(attempt.tag()));
                self.rounds.remove(&attempt.round);
            }
            Stage::Queued(queued) => {
                cluster.timers.cancel(Key::Acquisition(id));
                cluster.timers.cancel(Key::of(queued.common().tag()));
                self.rounds.remove(&queued.common().round);
                self.owners.remove(&queued.common().owner);
            }
        }
    }

    pub(super) fn by_round(&self, round: RoundId) -> Option<AcquisitionId> {
        self.rounds.get(&round).copied()
    }

    pub(super) fn by_owner(&self, owner: &Entry) -> Option<AcquisitionId> {
        self.owners.get(owner).copied()
    }

    /// The number of attempts.
    pub(super) fn attempts(&self) -> usize {
        self.attempts
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Row> {
        self.all.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (AcquisitionId, &mut Row)> {
        self.all.iter_mut().map(|(id, one)| (*id, one))
    }

    /// All acquisitions, oldest first.
    pub(super) fn ids(&self) -> Vec<AcquisitionId> {
        let mut ids: Vec<AcquisitionId> = self.all.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The number of acquisitions, and of entries that lead to them.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> [usize; 2] {
        [
            self.all.len(),
            self.rounds.len() + self.owners.len() + self.attempts,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquisition_takes_three_words() {
        assert_eq!(size_of::<Row>(), 3 * size_of::<usize>());
    }
}
