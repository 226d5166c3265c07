//! The table of acquisitions, and the stage of each. Only an [`Index`] changes a stage.

use std::{hash::RandomState, mem};

use super::{attempt::Attempt, queued::Queued, waiter::Waiter};
use crate::{
    base::{clock::Tick, ids::ById, owner::Entry, shrink::Shrink as _},
    engine::{cluster::Cluster, event::AcquisitionId, timers::Key},
    node::session::RoundId,
};

#[derive(Default)]
pub(super) struct Table {
    all: ById<AcquisitionId, Row>,
    index: Index,
}

/// The ways to an acquisition according to its stage, and the changes of stages with their timers.
#[derive(Default)]
pub(super) struct Index {
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

/// The stage of an acquisition. It may stay in one that [`lasts`](Self::lasts), and passes through the others at once.
pub(super) enum Stage {
    /// It is for a slot, or needs a permit to ask.
    Enters,
    /// It makes an attempt, or joins the queue at once if others were queued there a moment ago.
    Begins,
    /// It asks the nodes.
    Asks,
    /// It takes a place in the queue of a mutex. `counter` is the greatest counter that was seen.
    Joins {
        counter: u64,
    },
    /// It takes a place only behind all others, because no node has named them yet.
    JoinsLast,
    /// Too many acquisitions of its target are asking, or the nodes have enough to answer.
    Throttled,
    Attempt(Box<Attempt>),
    /// It rests between two attempts, until this time at most.
    Rest(Tick),
    /// It is in the queue of a mutex, or looks for a slot. A search for a slot may be for a caller that does not wait.
    Queued(Queued),
    /// A writer waits for its turn, which is an acquisition of its own.
    AwaitsTurn,
}

/// From each stage to those that may follow. The table in `mod.rs` says the same.
const ARROWS: [(&str, &[&str]); 10] = [
    ("Enters", &["Queued", "Begins", "Throttled"]),
    ("Throttled", &["Begins"]),
    ("Begins", &["Asks", "JoinsLast", "AwaitsTurn"]),
    ("Asks", &["Attempt"]),
    ("Attempt", &["Rest", "Joins", "AwaitsTurn"]),
    ("Rest", &["Begins"]),
    ("JoinsLast", &["Queued"]),
    ("Joins", &["Queued"]),
    ("Queued", &["Joins", "Asks"]),
    ("AwaitsTurn", &["Begins", "Enters"]),
];

fn may_follow(from: &Stage, to: &Stage) -> bool {
    #[cfg(test)]
    taken::note(from.name(), to.name());
    let arrows = ARROWS.iter().find(|(stage, _)| *stage == from.name());
    arrows.is_some_and(|(_, next)| next.contains(&to.name()))
}

impl Stage {
    fn name(&self) -> &'static str {
        match self {
            Self::Enters => "Enters",
            Self::Begins => "Begins",
            Self::Asks => "Asks",
            Self::Joins { .. } => "Joins",
            Self::JoinsLast => "JoinsLast",
            Self::Throttled => "Throttled",
            Self::Attempt(_) => "Attempt",
            Self::Rest(_) => "Rest",
            Self::Queued(_) => "Queued",
            Self::AwaitsTurn => "AwaitsTurn",
        }
    }

    /// Returns true if an acquisition may stay in it.
    fn lasts(&self) -> bool {
        match self {
            Self::Enters | Self::Begins | Self::Asks | Self::Joins { .. } | Self::JoinsLast => {
                false
            }
            Self::Throttled
            | Self::Attempt(_)
            | Self::Rest(_)
            | Self::Queued(_)
            | Self::AwaitsTurn => true,
        }
    }
}

impl Row {
    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Its waiter, and its stage to work on. Only [`Index::set`] moves it to another stage.
    pub(super) fn parts(&mut self) -> (&mut Waiter, &mut Stage) {
        (&mut self.waiter, &mut self.stage)
    }
}

impl Table {
    pub(super) fn insert(&mut self, waiter: Box<Waiter>, stage: Stage) {
        debug_assert!(!stage.lasts(), "it has to be advanced");
        let before = self
            .all
            .insert(waiter.acquisition.id, Row { waiter, stage });
        debug_assert!(before.is_none(), "its number is taken");
    }

    pub(super) fn get(&self, id: AcquisitionId) -> Option<&Row> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: AcquisitionId) -> Option<&mut Row> {
        self.all.get_mut(&id)
    }

    /// The acquisition, and the index that has to hear of each change of its stage.
    pub(super) fn row(&mut self, id: AcquisitionId) -> Option<(&mut Row, &mut Index)> {
        Some((self.all.get_mut(&id)?, &mut self.index))
    }

    /// Removes an acquisition that is over.
    pub(super) fn remove(&mut self, cluster: &mut Cluster, id: AcquisitionId) -> Option<Row> {
        let one = self.all.remove(&id)?;
        self.index.left(cluster, id, &one.stage);
        debug_assert!(
            self.index.attempts <= self.all.len(),
            "more attempts than acquisitions"
        );
        self.all.shrink_if_empty();
        self.index.rounds.shrink_if_empty();
        self.index.owners.shrink_if_empty();
        Some(one)
    }

    pub(super) fn by_round(&self, round: RoundId) -> Option<AcquisitionId> {
        self.index.rounds.get(&round).copied()
    }

    pub(super) fn by_owner(&self, owner: &Entry) -> Option<AcquisitionId> {
        self.index.owners.get(owner).copied()
    }

    /// The number of attempts.
    pub(super) fn attempts(&self) -> usize {
        self.index.attempts
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
        let Index {
            rounds,
            owners,
            attempts,
        } = &self.index;
        [self.all.len(), rounds.len() + owners.len() + attempts]
    }
}

impl Index {
    /// Moves an acquisition to this stage.
    pub(super) fn set(&mut self, cluster: &mut Cluster, row: &mut Row, stage: Stage) {
        debug_assert!(
            may_follow(&row.stage, &stage),
            "{} does not follow {}",
            stage.name(),
            row.stage.name()
        );
        let id = row.waiter.acquisition.id;
        let before = mem::replace(&mut row.stage, stage);
        self.left(cluster, id, &before);
        self.entered(cluster, row);
    }

    /// Checks that a row may stay where it is, and is found when something happens.
    pub(super) fn check(&self, row: &Row) {
        debug_assert!(row.stage.lasts(), "it has to go on");
        let id = Some(&row.waiter.acquisition.id);
        match &row.stage {
            Stage::Attempt(attempt) => {
                debug_assert!(self.rounds.get(&attempt.round) == id, "no answer finds it");
            }
            Stage::Queued(queued) => {
                let common = queued.common();
                debug_assert!(self.rounds.get(&common.round) == id, "no answer finds it");
                debug_assert!(self.owners.get(&common.owner) == id, "no push finds it");
            }
            _ => {}
        }
    }

    /// Takes back everything that the nodes know of a queued acquisition. From now on they know it under this owner.
    pub(super) fn set_owner(&mut self, cluster: &mut Cluster, row: &mut Row, owner: Entry) {
        debug_assert!(matches!(row.stage, Stage::Queued(_)), "it has no owner");
        if let Stage::Queued(queued) = &mut row.stage {
            queued.roll_back(cluster, &row.waiter);
            cluster.timers.cancel(Key::of(queued.common().tag()));
            self.rounds.remove(&queued.common().round);
            self.owners.remove(&queued.common().owner);
            queued.set_owner(cluster, &mut row.waiter, owner);
            self.entered(cluster, row);
        }
    }

    fn entered(&mut self, cluster: &mut Cluster, row: &Row) {
        let id = row.waiter.acquisition.id;
        match &row.stage {
            Stage::Throttled => {
                if let Some(end) = row.waiter.acquisition.end() {
                    cluster.timers.at(Key::Acquisition(id), end);
                }
            }
            Stage::Rest(at) => cluster.timers.at(Key::Acquisition(id), *at),
            Stage::Attempt(attempt) => {
                self.attempts += 1;
                let before = self.rounds.insert(attempt.round, id);
                debug_assert!(before.is_none(), "two acquisitions of one round");
            }
            Stage::Queued(queued) => {
                let common = queued.common();
                let before = self.rounds.insert(common.round, id);
                debug_assert!(before.is_none(), "two acquisitions of one round");
                let before = self.owners.insert(common.owner.clone(), id);
                debug_assert!(before.is_none(), "two acquisitions of one owner");
            }
            _ => {}
        }
    }

    fn left(&mut self, cluster: &mut Cluster, id: AcquisitionId, stage: &Stage) {
        match stage {
            Stage::Enters
            | Stage::Begins
            | Stage::Asks
            | Stage::Joins { .. }
            | Stage::JoinsLast
            | Stage::AwaitsTurn => {}
            Stage::Throttled | Stage::Rest(_) => cluster.timers.cancel(Key::Acquisition(id)),
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
}

/// The arrows that were taken since the process began.
#[cfg(test)]
pub(in crate::engine) mod taken {
    use std::{collections::BTreeSet, sync::Mutex};

    use super::ARROWS;

    type Arrow = (&'static str, &'static str);

    static SEEN: Mutex<BTreeSet<Arrow>> = Mutex::new(BTreeSet::new());

    pub(super) fn note(from: &'static str, to: &'static str) {
        SEEN.lock().unwrap().insert((from, to));
    }

    /// The arrows that were not taken yet.
    pub(in crate::engine) fn not_yet() -> Vec<Arrow> {
        let all = ARROWS
            .iter()
            .flat_map(|(from, next)| next.iter().map(move |to| (*from, *to)));
        let seen = SEEN.lock().unwrap();
        all.filter(|arrow| !seen.contains(arrow)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquisition_takes_three_words() {
        assert_eq!(size_of::<Row>(), 3 * size_of::<usize>());
    }

    #[test]
    fn the_table_in_the_module_is_that_of_the_arrows() {
        let module = include_str!("mod.rs");
        let rows = module.lines().filter(|line| line.starts_with("//! | `"));
        let rows: Vec<Vec<&str>> = rows
            .map(|row| row.split('`').skip(1).step_by(2).collect())
            .collect();
        let arrows: Vec<Vec<&str>> = ARROWS
            .iter()
            .map(|(from, next)| [&[*from], *next].concat())
            .collect();
        assert_eq!(rows, arrows);
    }
}
