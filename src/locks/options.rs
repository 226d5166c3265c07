//! The settings that the handles of all leases share, and their checks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    Error, Renewal,
    base::{logs, owner::Label},
    engine::{AcquireRequest, Wait, wants::Wants},
};

const SHORTEST_TTL: Duration = Duration::from_millis(100);
const DEFAULT_TTL: Duration = Duration::from_secs(10);

/// How a lease is acquired and held.
#[derive(Clone, Debug)]
pub(crate) struct LeaseOptions {
    /// The fleet's longest ttl.
    pub(crate) max_ttl: Duration,
    pub(crate) ttl: Option<Duration>,
    pub(crate) lock_delay: Duration,
    pub(crate) wait_timeout: Option<Duration>,
    pub(crate) renewal: Renewal,
    /// The holder's label, or the reason why it is not valid. `None`: the label of the quorum.
    pub(crate) label: Result<Option<Label>, Error>,
}

impl LeaseOptions {
    pub(crate) fn new(max_ttl: Duration) -> Self {
        Self {
            max_ttl,
            ttl: None,
            lock_delay: Duration::ZERO,
            wait_timeout: None,
            renewal: Renewal::auto(),
            label: Ok(None),
        }
    }

    /// A ttl that no lock can have is told before the first lock fails, which may be hours later. Once in a process,
    /// because handles are made for each request too.
    pub(crate) fn set_ttl(&mut self, ttl: Duration) {
        static TOLD: AtomicBool = AtomicBool::new(false);
        self.ttl = Some(ttl);
        if ttl > self.max_ttl && !TOLD.swap(true, Relaxed) {
            logs::warn!(
                ttl_ms = logs::ms(ttl),
                max_ttl_ms = logs::ms(self.max_ttl),
                "a ttl is above max_ttl: every lock with it is Invalid"
            );
        }
    }

    /// Returns the ttl and the label if all settings are valid.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn check(&self) -> Result<(Duration, Option<Label>), Error> {
        let ttl = self.ttl.unwrap_or(DEFAULT_TTL.min(self.max_ttl));
        if ttl < SHORTEST_TTL {
            return Err(Error::Invalid(format!(
                "ttl must be at least {SHORTEST_TTL:?} (got {ttl:?})"
            )));
        }
        if ttl.saturating_add(self.lock_delay) > self.max_ttl {
            let delay = match self.lock_delay.is_zero() {
                true => String::new(),
                false => format!(" and lock_delay {:?} together", self.lock_delay),
            };
            return Err(Error::Invalid(format!(
                "ttl {ttl:?}{delay} is more than the max_ttl of {:?}: lower it, or raise max_ttl \
                 for all clients",
                self.max_ttl
            )));
        }
        self.renewal.check()?;
        Ok((ttl, self.label.clone()?))
    }

    /// The request for a lease with these settings. `seen` is the greatest counter that the handle has seen.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn request(
        &self,
        wants: Wants,
        wait: Wait,
        seen: &Arc<AtomicU64>,
    ) -> Result<AcquireRequest, Error> {
        let (ttl, label) = self.check()?;
        Ok(AcquireRequest {
            wants,
            ttl,
            lock_delay: self.lock_delay,
            renewal: self.renewal,
            label,
            wait,
            seen: Arc::clone(seen),
        })
    }
}
