//! The shared root of all handles of one Consul.

use std::sync::Arc;

use super::{agent::Agent, place::Places, sessions::Pool};

pub(super) struct Root {
    pub(super) agent: Arc<Agent>,
    pub(super) sessions: Arc<Pool>,
    pub(super) places: Places,
}

impl Root {
    pub(super) fn new(agent: Arc<Agent>) -> Arc<Self> {
        Arc::new(Self {
            sessions: Pool::new(&agent),
            places: Places::new(&agent),
            agent,
        })
    }
}
