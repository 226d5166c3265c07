//! A lease as others see it.

use std::{sync::Arc, time::Duration};

use super::shared::Shared;
use crate::{FencingToken, LossReason};

/// A view of a [`Lease`](crate::Lease) that other tasks may keep. It does not keep the lease: a
/// lease that is released or dropped is lost (`Released`) for its watches.
#[derive(Clone, Debug)]
pub struct LeaseWatch(Arc<Shared>);

impl LeaseWatch {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        self.0.token
    }

    /// What is left by this process's own clock. Zero once the lease is over.
    pub fn validity(&self) -> Duration {
        self.0.validity()
    }

    /// Whether any validity is left. Once false, it stays false.
    pub fn is_valid(&self) -> bool {
        !self.validity().is_zero()
    }

    /// Waits until the lease is over.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub async fn lost(&self) -> LossReason {
        self.0.lost().await
    }
}
