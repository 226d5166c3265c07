//! Units of which there are fewer than masters: each is a slot, held until it is used and then left to its time.

use std::{sync::PoisonError, time::Duration};

use futures::future::try_join_all;

use super::plan::{Plan, Small};
use crate::{Error, Lease, ballot::validity::drift, clock::Tick};

/// What was said of the slots.
pub(super) enum Slots {
    /// They are held. When this is dropped before they are used, they are free again.
    Held(Held),
    /// Some are taken, for so long.
    Taken(Duration, u32),
}

/// Slots of every interval.
#[derive(Default)]
pub(super) struct Held(Vec<(Lease, Duration)>);

impl Held {
    /// Whether all can still be used, if they may be so old.
    pub(super) fn are_fresh(&self, age: Duration) -> bool {
        self.0.iter().all(|(lease, ttl)| {
            let whole = ttl.saturating_sub(drift(*ttl));
            lease.is_valid() && whole.saturating_sub(lease.validity()) < age
        })
    }

    /// Takes them anew, for the whole time.
    ///
    /// # Errors
    /// `Lost` where one was lost.
    pub(super) async fn refresh(&self) -> Result<(), Error> {
        for (lease, _) in &self.0 {
            lease.extend().await?;
        }
        Ok(())
    }

    /// They are used.
    pub(super) fn use_up(self) {
        for (lease, _) in self.0 {
            lease.abandon();
        }
    }
}

impl Plan {
    /// Takes `n` slots of every interval, if they are free now.
    pub(super) async fn try_slots(&self, n: u32) -> Result<Slots, Error> {
        let mut held = Held::default();
        for small in &self.small {
            let some = try_join_all((0..n).map(|_| small.slots.try_acquire())).await?;
            let some: Vec<Lease> = some.into_iter().flatten().collect();
            let is_all = some.len() == n as usize;
            held.0
                .extend(some.into_iter().map(|lease| (lease, small.ttl)));
            if !is_all {
                // What was held of it is free again when it is looked at.
                for (lease, _) in held.0 {
                    let _ = lease.release().await;
                }
                let (wait, free) = small.free(n).await?;
                return Ok(Slots::Taken(wait, free));
            }
        }
        Ok(Slots::Held(held))
    }

    /// Waits for `n` slots of every interval.
    pub(super) async fn slots(&self, n: u32) -> Result<Held, Error> {
        let mut held = Held::default();
        for small in &self.small {
            let lease = match n {
                1 => small.slots.acquire().await?,
                _ => small.slots.acquire_many(n).await?,
            };
            held.0.push((lease, small.ttl));
        }
        Ok(held)
    }

    /// How many slots are free in each interval, and until when `n` are.
    pub(super) async fn free_slots(&self, n: u32) -> Result<Option<(Duration, u32)>, Error> {
        let mut least: Option<(Duration, u32)> = None;
        for small in &self.small {
            let (wait, free) = small.free(n).await?;
            least = Some(least.map_or((wait, free), |(w, f)| (w.max(wait), f.min(free))));
        }
        Ok(least)
    }

    /// `n` slots of every interval are used now. How many are left, as far as this process knows: to ask the nodes would
    /// take time, and what was taken has to be used in time.
    pub(super) fn slots_used(&self, now: Tick, n: u32) -> u32 {
        let left = self.small.iter().map(|small| small.used(now, n));
        left.min().unwrap_or(u32::MAX)
    }
}

impl Small {
    fn used(&self, now: Tick, n: u32) -> u32 {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.retain(|at| now.since(*at) < self.ttl);
        used.extend((0..n).map(|_| now));
        let used = u32::try_from(used.len()).unwrap_or(u32::MAX);
        self.window.limit.saturating_sub(used)
    }

    async fn free(&self, n: u32) -> Result<(Duration, u32), Error> {
        let free_in = self.slots.free_in().await?;
        let free = free_in.iter().filter(|wait| wait.is_zero()).count();
        let wait = free_in.get((n as usize).saturating_sub(1)).copied();
        let wait = wait.unwrap_or(self.ttl).min(self.ttl);
        Ok((wait, u32::try_from(free).unwrap_or(u32::MAX)))
    }
}
