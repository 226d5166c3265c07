//! The settings that the handles of all leases share, and their checks.

use std::time::Duration;

use crate::{Error, Renewal, base::owner::Label};

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
}
