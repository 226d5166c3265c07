//! The units of a rate limit as slots, where there are few.

use std::{future::Future, sync::Arc, time::Duration};

use super::Semaphore;
use crate::{
    Error,
    engine::{
        Engine, Event,
        claim::{Family, Pool},
    },
};

/// For so long the right to gather units is held, unless it is renewed.
const GATHERS: Duration = Duration::from_secs(10);

impl Semaphore {
    /// The units of a rate limit as slots: one that was used is left to its ttl.
    pub(crate) fn of_units(
        engine: Engine,
        pool: Pool,
        limit: u32,
        (ttl, max_ttl): (Duration, Duration),
    ) -> Self {
        let units = Some((pool.clone(), ttl));
        Self {
            units,
            ..Self::new(engine, pool.name.as_str().into(), limit, max_ttl)
        }
    }

    /// The same slots, each taken for this long.
    pub(crate) fn lasting(&self, ttl: Duration) -> Self {
        let mut one = self.clone();
        if let Some((_, its)) = &mut one.units {
            *its = ttl;
        }
        one
    }

    /// When each slot is free on a majority of nodes, unless it is renewed: the first first.
    pub(crate) fn free_in(
        &self,
    ) -> impl Future<Output = Result<Vec<Duration>, Error>> + Send + 'static + use<> {
        let (pool, engine) = (self.pool(), self.engine.clone());
        let agreed = Arc::clone(&self.agreed);
        async move {
            let pool = pool?;
            let free = engine.call(|reply| Event::Available {
                pool,
                agreed,
                reply,
            });
            free.await
        }
    }

    pub(super) fn family(&self) -> Family {
        let units = self.units.as_ref();
        units.map_or(Family::Permits, |(pool, _)| pool.family)
    }

    /// Held for as long as it gathers, and not for as long as a unit counts.
    pub(super) fn gathers_units(&mut self) {
        if let Some((_, ttl)) = &mut self.units {
            *ttl = (*ttl).min(self.hold.max_ttl).min(GATHERS);
        }
    }
}
