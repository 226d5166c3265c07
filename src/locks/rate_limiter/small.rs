//! Units of small limits: each is a slot of a majority, held until it is used and then left to its time.

use std::{sync::PoisonError, time::Duration};

use futures::future::{join_all, try_join_all};

use super::plan::{Plan, Seen, Small, longer};
use crate::{Error, Lease, base::clock::Tick, engine::Engine, protocol::ballot::validity::drift};

/// The wait that a denial states if nothing better is known.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// Attempts at slots that look free and are not granted, before the demand is denied.
const MOST_COLLISIONS: u32 = 3;

/// What was said of the slots.
pub(super) enum Slots {
    /// They are held. When this is dropped before they are used, they are free again.
    Held(Held),
    /// Some are taken, for so long.
    Taken(Duration, u32),
}

/// Slots of every interval.
pub(super) struct Held {
    /// And for how long each was taken.
    leases: Vec<(Lease, Duration)>,
    /// How old they may be when they are used.
    age: Duration,
}

impl Held {
    /// Of no interval.
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

    /// Extends them to the whole time.
    ///
    /// # Errors
    /// `Lost` where one was lost.
    pub(super) async fn refresh(&self) -> Result<(), Error> {
        let all = self.leases.iter().map(|(lease, _)| lease.extend());
        try_join_all(all).await.map(drop)
    }

    /// They are used.
    pub(super) fn use_up(self) {
        for (lease, _) in self.leases {
            lease.abandon();
        }
    }
}

impl Plan {
    /// Takes `n` slots of every interval, if they are free now. `age`: how old they may be when they are used.
    pub(super) async fn try_slots(
        &self,
        engine: &Engine,
        n: u32,
        age: Duration,
    ) -> Result<Slots, Error> {
        // At once: the first has to be used before it is too old, as the last has.
        let all = self.small.iter().map(async |small| {
            let ttl = small.kept + age;
            let some = small.try_some(engine, n, ttl).await?;
            Ok::<_, Error>(some.map(|some| some.into_iter().map(move |lease| (lease, ttl))))
        });
        let (mut leases, mut denied) = (Vec::new(), None);
        for some in try_join_all(all).await? {
            match some {
                Ok(some) => leases.extend(some),
                Err(denial) => denied = [denied, Some(denial)].into_iter().flatten().reduce(longer),
            }
        }
        if let Some((wait, free)) = denied {
            release(leases.into_iter().map(|(lease, _)| lease)).await;
            return Ok(Slots::Taken(wait, free));
        }
        Ok(Slots::Held(Held { leases, age }))
    }

    /// Until when `n` slots of every interval are free, and how many are now. Asks the nodes, unless it was just done and that
    /// is good enough.
    pub(super) async fn free_slots(
        &self,
        engine: &Engine,
        n: u32,
        may_be_old: bool,
    ) -> Result<Option<(Duration, u32)>, Error> {
        let mut least = None;
        for small in &self.small {
            let known = small.known(engine.now(), n).filter(|_| may_be_old);
            let (wait, free) = match known {
                Some(known) => known,
                None => small.free(engine, n).await?,
            };
            least = [least, Some((wait, free))]
                .into_iter()
                .flatten()
                .reduce(longer);
        }
        Ok(least)
    }

    /// `n` slots of every interval are used now. How many are left, as far as this process knows: to ask the nodes would
    /// take time, and what was taken has to be used in time.
    pub(super) fn slots_used(&self, now: Tick, n: u32, age: Duration) -> u32 {
        let left = self.small.iter().map(|small| small.used(now, n, age));
        left.min().unwrap_or(u32::MAX)
    }
}

impl Small {
    /// Waits for `n` slots in the line of the pool. `age`: how old they may be when they are used.
    pub(super) async fn wait(&self, n: u32, age: Duration) -> Result<Held, Error> {
        let ttl = self.kept + age;
        let slots = self.slots.lasting(ttl);
        let lease = match n {
            1 => slots.acquire().await?,
            _ => slots.acquire_many(n).await?,
        };
        let leases = vec![(lease, ttl)];
        Ok(Held { leases, age })
    }

    /// Takes `n` slots if as many are free. Otherwise returns the wait until they are, and how many are free now.
    async fn try_some(
        &self,
        engine: &Engine,
        n: u32,
        ttl: Duration,
    ) -> Result<Result<Vec<Lease>, (Duration, u32)>, Error> {
        let slots = self.slots.lasting(ttl);
        let mut tries = 0;
        loop {
            let some = try_join_all((0..n).map(|_| slots.try_acquire())).await?;
            let some: Vec<Lease> = some.into_iter().flatten().collect();
            if some.len() == n as usize {
                return Ok(Ok(some));
            }
            // Their release ends before the look, so that the look finds them free.
            release(some).await;
            let (wait, free) = self.free(engine, n).await?;
            tries += 1;
            if free < n {
                return Ok(Err((wait, free)));
            }
            // Others took some of them at the same time, and gave them back as well; or they wait for them.
            if tries == MOST_COLLISIONS {
                return Ok(Err((PAUSE.min(self.trust()), n.saturating_sub(1))));
            }
        }
    }

    /// Until when `n` slots are free and how many are now, if they were looked at a moment ago.
    pub(super) fn known(&self, now: Tick, n: u32) -> Option<(Duration, u32)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |at: Tick| now < at.plus(self.trust());
        seen.looked_at
            .is_some_and(is_new)
            .then(|| seen.free(now, n))
    }

    /// `n` slots are used now. How many are left.
    fn used(&self, now: Tick, n: u32, age: Duration) -> u32 {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in seen.free_at.iter_mut().take(n as usize) {
            *slot = now.plus(age).plus(self.kept);
        }
        seen.free_at.sort_unstable();
        seen.used_at = Some(now);
        seen.free(now, 1).1
    }

    /// Asks the nodes until when `n` slots are free, and how many are now. Of many callers at once two ask.
    async fn free(&self, engine: &Engine, n: u32) -> Result<(Duration, u32), Error> {
        let called = engine.now();
        let _looks = self.looks.lock().await;
        {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, error)) = &seen.failed
                && *at > called
            {
                return Err(error.clone());
            }
            if seen.looked_at.is_some_and(|at| at > called) {
                return Ok(seen.free(engine.now(), n));
            }
        }
        let looked_at = engine.now();
        let found = self.slots.free_in().await;
        let now = engine.now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let free_in = match found {
            Ok(free_in) => free_in,
            Err(error) => {
                seen.failed = Some((looked_at, error.clone()));
                return Err(error);
            }
        };
        // One that is held, and not used yet, may come back sooner: nobody can tell.
        let longest = self.kept + Duration::from_millis(self.window.ahead());
        let free_at = free_in.iter().map(|wait| now.plus((*wait).min(longest)));
        let found = Seen {
            free_at: free_at.take(self.window.limit as usize).collect(),
            looked_at: Some(looked_at),
            ..Seen::new(0)
        };
        let answer = found.free(now, n);
        // Slots that were used since may still look free in it.
        if seen.used_at.is_none_or(|used| used < looked_at) {
            *seen = found;
        }
        Ok(answer)
    }
}

async fn release(leases: impl IntoIterator<Item = Lease>) {
    join_all(leases.into_iter().map(Lease::release)).await;
}

impl Seen {
    /// Nothing is known, so all may be free.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            free_at: vec![Tick::default(); limit as usize],
            looked_at: None,
            used_at: None,
            failed: None,
        }
    }

    /// Until when `n` slots are free, and how many are now.
    fn free(&self, now: Tick, n: u32) -> (Duration, u32) {
        let free = self.free_at.partition_point(|at| *at <= now);
        let last = self.free_at.get((n as usize).saturating_sub(1));
        let last = last.or(self.free_at.last());
        let wait = last.map_or(Duration::ZERO, |at| at.since(now));
        (wait, u32::try_from(free).unwrap_or(u32::MAX))
    }
}
