//! The settings of how a lease is renewed.

use std::time::Duration;

use crate::Error;

const SHORTEST: Duration = Duration::from_millis(100);

/// How a lease is renewed in the background, and for how long.
///
/// The default, [`auto`](Self::auto), renews at every third of the ttl for as long as the lease is held. It has no
/// bound, on purpose. A lease that was held for 60 ttl is warned about once.
///
/// # A hung holder
/// The renewal runs beside the work, so it goes on when the work hangs. The table
/// has the price of each choice, and when others get the lock after the last sign of life:
///
/// | choice | others get the lock | price |
/// | --- | --- | --- |
/// | `auto()` | never, while its runtime lives | none: right for work that ends by itself |
/// | `auto().heartbeat(d)` | d + ttl later, at the latest | the work calls [`beat`](crate::LeaseWatch::beat) in each d |
/// | `auto().max_hold(d)` | d + ttl after the grant, at the latest | all work has to end within d |
/// | `off()`, and `extend().await` in the loop | ttl later | a round trip for each step, and a ttl longer than a step; after `NoQuorum` the lease is still held: try again |
///
/// A loop that extended its lock with another library was watched in the last way. Take the second one: it also
/// survives an outage of some seconds. If the lease is lost, [`run`](crate::Mutex::run) and
/// [`guard`](crate::Lease::guard) drop the work at its next await. Work that blocks its thread is not stopped: check
/// [tokens](crate::docs::fencing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Renewal {
    pub(crate) auto: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_renewals: Option<u32>,
    pub(crate) heartbeat: Option<Duration>,
}

impl Renewal {
    /// Renews until the lease is released, dropped or lost.
    pub const fn auto() -> Self {
        Self {
            auto: true,
            max_hold: None,
            max_renewals: None,
            heartbeat: None,
        }
    }

    /// Never renews: the lease ends with its first ttl unless [`Lease::extend`](crate::Lease::extend) is called.
    pub const fn off() -> Self {
        Self {
            auto: false,
            ..Self::auto()
        }
    }

    /// The lease is lost (`MaxHold`) after this long, even if all is well. At least 100 ms. Default: no bound.
    pub const fn max_hold(mut self, d: Duration) -> Self {
        self.max_hold = Some(d);
        self
    }

    /// Renews at most `n` times. Default: no bound.
    pub const fn max_renewals(mut self, n: u32) -> Self {
        self.max_renewals = Some(n);
        self
    }

    /// The lease is lost (`NoHeartbeat`) unless [`Lease::beat`](crate::Lease::beat) or
    /// [`LeaseWatch::beat`](crate::LeaseWatch::beat) is called at least once within each period of this length. At
    /// least 100 ms. Default: no heartbeat is needed.
    pub const fn heartbeat(mut self, d: Duration) -> Self {
        self.heartbeat = Some(d);
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        for (what, d) in [("max_hold", self.max_hold), ("heartbeat", self.heartbeat)] {
            if d.is_some_and(|d| d < SHORTEST) {
                return Err(Error::Invalid(format!(
                    "{what} must be at least {SHORTEST:?}"
                )));
            }
        }
        Ok(())
    }
}

impl Default for Renewal {
    fn default() -> Self {
        Self::auto()
    }
}
