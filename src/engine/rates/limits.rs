//! The table of all limits that this process knows, from which those that nobody uses are forgotten.

use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Weak},
};

use hashbrown::HashTable;

use super::limit::{Limit, Shape};
use crate::{
    base::{
        ids::ById,
        quota::Window,
        sweep::{CROWD, TICK, is_too_wide, part},
    },
    engine::{
        cluster::Cluster,
        timers::{Key, LimitId},
    },
    protocol::rates::words::{Crowd, Limited},
};

#[derive(Default)]
pub(super) struct Limits {
    all: ById<LimitId, Box<Limit>>,
    /// The same limits by their names and intervals. Names come from outside, so the hash function is one that resists
    /// chosen keys.
    ids: HashTable<LimitId>,
    hasher: RandomState,
    last: u64,
    shapes: Vec<Alike>,
    /// The maps of limiters of keys that have many entries.
    crowds: Vec<Weak<dyn Crowd>>,
    /// The timer of the next sweep is set.
    is_sweeping: bool,
}

/// The limits with the same intervals.
struct Alike {
    shape: Arc<Shape>,
    /// Each limit, the one that was looked at last at the end.
    limits: VecDeque<LimitId>,
}

impl Limits {
    pub(super) fn get(&self, id: LimitId) -> Option<&Limit> {
        self.all.get(&id).map(|limit| &**limit)
    }

    pub(super) fn get_mut(&mut self, id: &LimitId) -> Option<&mut Limit> {
        self.all.get_mut(id).map(|limit| &mut **limit)
    }

    pub(super) fn find(&self, limited: &Limited) -> Option<LimitId> {
        let hash = self.hasher.hash_one(limited);
        let same = |id: &LimitId| self.get(*id).is_some_and(|it| *it.limited == *limited);
        self.ids.find(hash, same).copied()
    }

    /// The limits for which callers wait, in the order in which they were made. A simulation can be repeated only if
    /// the order comes from the seed, not from a hash.
    pub(super) fn waited_for(&self) -> Vec<LimitId> {
        let waited_for = self.all.iter().filter(|(_, limit)| limit.is_waited_for());
        let mut ids: Vec<LimitId> = waited_for.map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// The limit, which is used now. It is made if it is not known.
    pub(super) fn used(&mut self, cluster: &mut Cluster, limited: &Limited) -> LimitId {
        if let Some(id) = self.find(limited) {
            if let Some(limit) = self.get_mut(&id) {
                limit.used_at = cluster.now;
            }
            return id;
        }
        self.last += 1;
        let id = LimitId(self.last);
        let shape = self.shape_of(cluster, &limited.windows, id);
        // The intervals are kept once for all keys.
        let limited = Arc::new(Limited {
            name: limited.name.clone(),
            windows: Arc::clone(&shape.windows),
        });
        let hash = self.hasher.hash_one(&*limited);
        let limit = Limit::new(limited, shape, cluster.now);
        self.all.insert(id, Box::new(limit));
        let (all, hasher) = (&self.all, &self.hasher);
        self.ids
            .insert_unique(hash, id, |id| hash_of(all, hasher, id));
        self.will_sweep(cluster);
        id
    }

    fn shape_of(&mut self, cluster: &Cluster, windows: &Arc<[Window]>, id: LimitId) -> Arc<Shape> {
        let mut shapes = self.shapes.iter_mut();
        if let Some(alike) = shapes.find(|alike| alike.shape.windows == *windows) {
            alike.limits.push_back(id);
            return Arc::clone(&alike.shape);
        }
        let shape = Arc::new(Shape::new(cluster, Arc::clone(windows)));
        self.shapes.push(Alike {
            shape: Arc::clone(&shape),
            limits: VecDeque::from([id]),
        });
        shape
    }

    // ---- crowds of keys ----------------------------------------------------------------------

    /// From now on this map is looked through as well.
    pub(super) fn join_crowd(&mut self, cluster: &mut Cluster, crowd: Weak<dyn Crowd>) {
        self.crowds.push(crowd);
        self.will_sweep(cluster);
    }

    /// Sets the timer of the next sweep if there is a crowd. A few limits are never forgotten.
    fn will_sweep(&mut self, cluster: &mut Cluster) {
        let is_crowded = self.all.len() >= CROWD || !self.crowds.is_empty();
        if is_crowded && !self.is_sweeping {
            self.is_sweeping = true;
            cluster.timers.at(Key::Sweep, cluster.now.plus(TICK));
        }
    }

    /// Forgets the limits that were not used for a while, except for these. Each sweep looks at a part of them, so that
    /// no call waits until a million are looked at.
    pub(super) fn sweep(&mut self, cluster: &mut Cluster, needed: &HashSet<LimitId>) {
        self.is_sweeping = false;
        let now = cluster.now;
        self.crowds
            .retain(|crowd| crowd.upgrade().is_some_and(|crowd| crowd.forget(now)));
        for alike in &mut self.shapes {
            for _ in 0..part(alike.limits.len(), alike.shape.idle) {
                let Some(id) = alike.limits.pop_front() else {
                    break;
                };
                let Some(limit) = self.all.get_mut(&id) else {
                    continue;
                };
                if !limit.is_over(now) || needed.contains(&id) {
                    limit.drop_idle_queue();
                    alike.limits.push_back(id);
                    continue;
                }
                let hash = self.hasher.hash_one(&*limit.limited);
                if let Ok(entry) = self.ids.find_entry(hash, |other| *other == id) {
                    entry.remove();
                }
                self.all.remove(&id);
            }
            if is_too_wide(alike.limits.len(), alike.limits.capacity()) {
                alike.limits.shrink_to(2 * alike.limits.len());
            }
        }
        self.shapes.retain(|alike| !alike.limits.is_empty());
        if is_too_wide(self.all.len(), self.all.capacity()) {
            let most = 2 * self.all.len();
            self.all.shrink_to(most);
            let (all, hasher) = (&self.all, &self.hasher);
            self.ids.shrink_to(most, |id| hash_of(all, hasher, id));
        }
        self.will_sweep(cluster);
    }
}

fn hash_of(all: &ById<LimitId, Box<Limit>>, hasher: &RandomState, id: &LimitId) -> u64 {
    all.get(id)
        .map_or(0, |limit| hasher.hash_one(&*limit.limited))
}
