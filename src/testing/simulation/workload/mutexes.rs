//! Mutexes of one name or of several: programs that lock them, and operators who evict.

use std::time::Duration;

use super::{Call, Demand, Stage, nanos, several, some};
use crate::{
    Lease, Mutex, Renewal,
    base::name::Name,
    engine::Event,
    testing::simulation::{profile::MS, world::World},
};

impl World {
    pub(super) fn ask_for_mutexes(&mut self, c: usize, t: usize, ttl: Duration, renewal: Renewal) {
        let mutex = match self.several(c) {
            Some(several) => several,
            None => {
                let mutexes = self.clients[c].tasks[t].mutexes.len();
                self.clients[c].tasks[t].mutexes[self.dice.index(mutexes)].clone()
            }
        };
        let mut mutex = mutex.ttl(ttl).renewal(renewal);
        if let Some(delay) = self.lock_delay(c, ttl) {
            mutex = mutex.lock_delay(delay);
        }
        let hold = self.hold(ttl);
        self.lock(c, t, mutex, hold, false);
    }

    pub(super) fn lock(&mut self, c: usize, t: usize, mutex: Mutex, hold: u64, must: bool) {
        let shown = format!("{mutex:?}");
        let name = several::in_order(shown.split('"').nth(1).unwrap_or_default());
        let (what, call, bound): (_, Call<Option<Lease>>, _) = match self.dice.below(10) {
            _ if must => {
                let call = mutex.wait_timeout(Duration::from_secs(5)).lock();
                ("lock (probe)", some(call), Some(6_000 * MS))
            }
            n if n <= 4 || self.plan.patient => ("lock", some(mutex.lock()), None),
            5..=6 => {
                let wait = Duration::from_millis(self.dice.range(20, 400));
                let call = mutex.wait_timeout(wait).lock();
                ("lock within", some(call), Some(nanos(wait)))
            }
            _ => (
                "try_lock",
                Box::pin(mutex.try_lock()),
                Some(self.one_attempt()),
            ),
        };
        self.ask(c, t, Demand::new(what, &name, call, bound), hold, must);
    }

    pub(super) fn evict(&mut self, c: usize, t: usize) {
        let name = format!("lock-{}", self.dice.index(self.plan.names));
        let engine = self.clients[c].engine.clone();
        let Ok(checked) = Name::new(name.as_str()) else {
            return;
        };
        let answer = engine.call(|reply| Event::Evict {
            name: checked,
            reply,
        });
        let op = self.operation(c, "evict", &name);
        let bound = 2 * nanos(self.plan.node_timeout);
        let pending = self.pending(c, t, op, Box::pin(answer), Some(bound));
        self.clients[c].tasks[t].stage = Stage::Evicting(pending);
    }

    /// A lease that was good when the eviction was asked for cannot be prolonged after its answer.
    pub(super) fn evicted(&mut self, name: &str, asked_at: u64) {
        self.stats.evicted += 1;
        let ttl = self.plan.ttl.1 * MS;
        let over_by = self.now + ttl + ttl / 50;
        self.checks.evicted(name, asked_at, over_by);
    }
}
