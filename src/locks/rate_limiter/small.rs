//! Units of small limits. Each is a slot of a majority: it is held until it is used, and then left to its ttl.

use std::{sync::PoisonError, time::Duration};

use futures::future::{join_all, try_join_all};

use super::plan::{Plan, Seen, Small};
use crate::{
    Error, Lease,
    base::clock::Tick,
    engine::Engine,
    protocol::{
        ballot::validity::drift,
        rates::words::{Denial, Room},
    },
};

/// The wait of a denial about which nothing better is known.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// How often slots that look free are tried and not granted, before the demand is denied.
const MOST_COLLISIONS: u32 = 3;

/// The outcome of an attempt to take slots.
pub(super) enum Slots {
    /// The slots are held. If this is dropped before they are used, they are free again.
    Held(Held),
    /// Too few are free.
    Denied(Denial),
}

/// Slots of every interval.
pub(super) struct Held {
    /// Each slot, and for how long it was taken.
    leases: Vec<(Lease, Duration)>,
    /// How old the slots may be when they are used.
    age: Duration,
}

impl Held {
    /// No slots, for a quota without small limits.
    pub(super) fn none() -> Self {
        Self {
            leases: Vec::new(),
            age: Duration::ZERO,
        }
    }

    /// Returns true if all slots can still be used.
    pub(super) fn are_fresh(&self) -> bool {
        self.leases.iter().all(|(lease, ttl)| {
            let whole = ttl.saturating_sub(drift(*ttl));
            lease.is_valid() && whole.saturating_sub(lease.validity()) < self.age
        })
    }

    /// Extends all slots to their whole ttl.
    ///
    /// # Errors
    /// `Lost` if one of them was lost.
    pub(super) async fn refresh(&self) -> Result<(), Error> {
        let all = self.leases.iter().map(|(lease, _)| lease.extend());
        try_join_all(all).await.map(drop)
    }

    /// Uses the slots: they are left to their ttl.
    pub(super) fn use_up(self) {
        for (lease, _) in self.leases {
            lease.abandon();
        }
    }
}

impl Plan {
    /// Takes `n` slots of every interval, if they are free now. `age` is how old they may be when they are used.
    pub(super) async fn try_slots(
        &self,
        engine: &Engine,
        n: u32,
        age: Duration,
    ) -> Result<Slots, Error> {
        // All intervals are asked at once, because the first slot must still be fresh when the last one comes.
        let all = self.small.iter().map(async |small| {
            let ttl = small.kept() + age;
            let some = self.try_some(engine, small, n, ttl).await?;
            Ok::<_, Error>(some.map(|some| some.into_iter().map(move |lease| (lease, ttl))))
        });
        let (mut leases, mut denied) = (Vec::new(), None);
        for some in try_join_all(all).await? {
            match some {
                Ok(some) => leases.extend(some),
                Err(denial) => {
                    denied = [denied, Some(denial)]
                        .into_iter()
                        .flatten()
                        .reduce(Denial::longer)
                }
            }
        }
        if let Some(denial) = denied {
            release(leases.into_iter().map(|(lease, _)| lease)).await;
            return Ok(Slots::Denied(denial));
        }
        Ok(Slots::Held(Held { leases, age }))
    }

    /// Returns the wait until `n` slots of every interval are free, and what is free now. It asks the nodes,
    /// unless `may_be_old` is set and a recent look is known.
    pub(super) async fn free_slots(
        &self,
        engine: &Engine,
        n: u32,
        may_be_old: bool,
    ) -> Result<Option<Denial>, Error> {
        let mut least = None;
        for small in &self.small {
            let known = small.known(engine.now(), n).filter(|_| may_be_old);
            let free = match known {
                Some(known) => known,
                None => self.free(engine, small, n).await?,
            };
            least = [least, Some(free)]
                .into_iter()
                .flatten()
                .reduce(Denial::longer);
        }
        Ok(least)
    }

    /// Notes that `n` slots of every interval are used now. Returns what is left, as this process knows it. Asking the
    /// nodes would take time, and the slots have to be used in time.
    pub(super) fn slots_used(&self, now: Tick, n: u32, age: Duration) -> Option<Room> {
        let rooms = self.small.iter().map(|small| small.used(now, n, age));
        rooms.reduce(Room::less)
    }

    /// Waits for `n` slots in the queue of the pool. `age` is how old they may be when they are used.
    pub(super) async fn wait(
        &self,
        engine: &Engine,
        small: &Small,
        n: u32,
        age: Duration,
    ) -> Result<Held, Error> {
        let ttl = small.kept() + age;
        let slots = self.slots(engine, small, ttl);
        let lease = match n {
            1 => slots.acquire().await?,
            _ => slots.acquire_many(n).await?,
        };
        let leases = vec![(lease, ttl)];
        Ok(Held { leases, age })
    }

    /// Takes `n` slots if as many are free. Otherwise returns the wait until they are, and what is free now.
    async fn try_some(
        &self,
        engine: &Engine,
        small: &Small,
        n: u32,
        ttl: Duration,
    ) -> Result<Result<Vec<Lease>, Denial>, Error> {
        let slots = self.slots(engine, small, ttl);
        let mut tries = 0;
        loop {
            let some = try_join_all((0..n).map(|_| slots.try_acquire())).await?;
            let some: Vec<Lease> = some.into_iter().flatten().collect();
            if some.len() == n as usize {
                return Ok(Ok(some));
            }
            // The release is awaited before the look, so that the look finds these slots free.
            release(some).await;
            let denial = self.free(engine, small, n).await?;
            tries += 1;
            if denial.room.left < n {
                return Ok(Err(denial));
            }
            // Other callers took some of the slots at the same time and gave them back as well, or they wait for them.
            if tries == MOST_COLLISIONS {
                return Ok(Err(Denial {
                    wait: PAUSE.min(small.trust()),
                    room: denial.room.below(n),
                }));
            }
        }
    }

    /// Asks the nodes when `n` slots are free, and what is free now. If many callers come at once, two of them ask
    /// and the others share the answer.
    async fn free(&self, engine: &Engine, small: &Small, n: u32) -> Result<Denial, Error> {
        let called = engine.now();
        let _looks = small.looks.lock().await;
        {
            let seen = small.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(failed) = seen.failed.as_ref().filter(|failed| failed.0 > called) {
                return Err(failed.1.clone());
            }
            if seen.looked_at.is_some_and(|at| at > called) {
                return Ok(seen.free(engine.now(), n, small.window.limit));
            }
        }
        let looked_at = engine.now();
        let found = self.slots(engine, small, small.kept()).free_in().await;
        let now = engine.now();
        let mut seen = small.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let free_in = match found {
            Ok(free_in) => free_in,
            Err(error) => {
                seen.failed = Some(Box::new((looked_at, error.clone())));
                return Err(error);
            }
        };
        // A slot that is held and not used yet may come back sooner, but it cannot be told from one that was used.
        let longest = small.kept() + Duration::from_millis(small.window.ahead());
        let free_at = free_in.iter().map(|wait| now.plus((*wait).min(longest)));
        let found = Seen {
            free_at: free_at.take(small.window.limit as usize).collect(),
            looked_at: Some(looked_at),
            ..Seen::new(0)
        };
        let answer = found.free(now, n, small.window.limit);
        // Slots that were used since the look began may still look free in it.
        if seen.used_at.is_none_or(|used| used < looked_at) {
            *seen = found;
        }
        Ok(answer)
    }
}

impl Small {
    /// The wait until `n` slots are free and what is free now, if the slots were looked at a moment ago.
    pub(super) fn known(&self, now: Tick, n: u32) -> Option<Denial> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |at: Tick| now < at.plus(self.trust());
        seen.looked_at
            .is_some_and(is_new)
            .then(|| seen.free(now, n, self.window.limit))
    }

    /// Notes that `n` slots are used now. Returns what is left.
    fn used(&self, now: Tick, n: u32, age: Duration) -> Room {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in seen.free_at.iter_mut().take(n as usize) {
            *slot = now.plus(age).plus(self.kept());
        }
        seen.free_at.sort_unstable();
        seen.used_at = Some(now);
        seen.free(now, 1, self.window.limit).room
    }
}

async fn release(leases: impl IntoIterator<Item = Lease>) {
    join_all(leases.into_iter().map(Lease::release)).await;
}

impl Seen {
    /// Nothing is known yet, so all slots may be free.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            free_at: vec![Tick::default(); limit as usize],
            looked_at: None,
            used_at: None,
            failed: None,
        }
    }

    /// The wait until `n` slots are free, and what is free now.
    fn free(&self, now: Tick, n: u32, limit: u32) -> Denial {
        let free = self.free_at.partition_point(|at| *at <= now);
        let last = self.free_at.get((n as usize).saturating_sub(1));
        let last = last.or(self.free_at.last());
        let wait = last.map_or(Duration::ZERO, |at| at.since(now));
        let room = Room {
            left: u32::try_from(free).unwrap_or(u32::MAX),
            limit,
            free_at: self.free_at.last().copied().unwrap_or(now).max(now),
        };
        Denial { wait, room }
    }
}
