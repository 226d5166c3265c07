//! Operations on a semaphore as a whole: counting free slots, changing the limit, and evicting the holder of a slot.

use std::{future::Future, sync::Arc};

use tracing::Instrument;

use super::{Semaphore, check_limit};
use crate::{Error, base::logs, engine::Event};

impl Semaphore {
    /// How many slots a majority of nodes says are free: a snapshot, which may be over when you read it.
    ///
    /// # Errors
    /// `NoQuorum`, `Quarantined`, `Invalid`, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub fn available(&self) -> impl Future<Output = Result<u32, Error>> + Send + 'static + use<> {
        let free = self.free_in();
        async move {
            let free = free.await?;
            let now = free.iter().filter(|wait| wait.is_zero()).count();
            Ok(u32::try_from(now).unwrap_or(u32::MAX))
        }
    }

    /// Changes the limit, for all clients: those that hold a handle with the old limit follow.
    ///
    /// A smaller limit takes nothing away: who holds a slot keeps it, and who asks afterwards gets one when it fits. A
    /// limit is forgotten when nobody has used the semaphore for four `max_ttl`: start the programs with the new one.
    /// Of two resizes at once the smaller limit stands.
    ///
    /// # Errors
    /// - `NoQuorum` when not every node has answered: it names who is missing. (A node in quarantine counts: it knows no
    ///   limit.) The new limit may be in force then, and spread: say it again.
    /// - `LimitConflict` when another resize at the same time has won.
    /// - `Invalid`, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not.
    pub fn resize(
        &self,
        limit: u32,
    ) -> impl Future<Output = Result<(), Error>> + Send + 'static + use<> {
        let (pool, engine) = (self.pool(), self.engine.clone());
        let agreed = Arc::clone(&self.agreed);
        async move {
            let pool = pool?;
            check_limit(limit)?;
            let span = logs::span!("resize", name = pool.name.as_str(), limit);
            let resize = |reply| Event::Resize {
                pool,
                agreed,
                to: limit,
                reply,
            };
            engine.call(resize).instrument(span).await
        }
    }

    /// Frees a slot on every voting node, no matter who holds it: for operators. The first in line gets it. Returns whether
    /// anybody had it. [`Quorum::inspect`](crate::Quorum::inspect) says who has which.
    ///
    /// The holder learns of it at its next renewal, without renewal only when its validity ends. Until then two may believe
    /// that they hold the slot, and only the token tells them apart. A lease of several slots is lost as a whole.
    ///
    /// A holder that renews at this moment may put the slot back, if it reaches a node that this call does not reach. So look
    /// afterwards, and call it again if the same holder is still there.
    ///
    /// # Errors
    /// - `NoQuorum` or `Quarantined` when fewer than a majority answered, or confirmed it.
    /// - `Invalid` when nobody knows who has the slot: each node names the holders of its first 100 slots that are taken.
    /// - `Invalid` for a bad name, `Closed`.
    ///
    /// # Cancel safety
    /// May be dropped; it may have happened or not.
    pub fn evict(
        &self,
        slot: u32,
    ) -> impl Future<Output = Result<bool, Error>> + Send + 'static + use<> {
        let (pool, engine) = (self.pool(), self.engine.clone());
        async move {
            let pool = pool?;
            let span = logs::span!("evict", name = pool.name.as_str(), slot);
            engine
                .call(|reply| Event::EvictSlot { pool, slot, reply })
                .instrument(span)
                .await
        }
    }
}
