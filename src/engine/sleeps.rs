//! Callers that sleep. They use the engine's clock, so they can sleep on any runtime.

use std::time::Duration;

use super::{
    cluster::Cluster,
    timers::{Key, SleepId},
};
use crate::{base::ids::ById, lease::response::Responder};

#[derive(Default)]
pub(super) struct Sleeps {
    under_way: ById<SleepId, Responder<()>>,
    last: u64,
}

impl Sleeps {
    pub(super) fn begin(&mut self, cluster: &mut Cluster, time: Duration, reply: Responder<()>) {
        self.last += 1;
        let id = SleepId(self.last);
        cluster.timers.at(Key::Sleep(id), cluster.now.plus(time));
        self.under_way.insert(id, reply);
    }

    pub(super) fn over(&mut self, id: SleepId) {
        if let Some(reply) = self.under_way.remove(&id) {
            let _ = reply.send(Ok(()));
        }
    }

    /// The engine ends.
    pub(super) fn clear(&mut self) {
        self.under_way.clear();
    }
}
