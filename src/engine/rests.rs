//! Callers that rest: by the engine's clock, on any runtime.

use std::time::Duration;

use super::{
    net::Net,
    timers::{Key, RestId},
};
use crate::{base::ids::ById, lease::response::Responder};

/// Who rests.
#[derive(Default)]
pub(super) struct Rests {
    under_way: ById<RestId, Responder<()>>,
    last: u64,
}

impl Rests {
    pub(super) fn begin(&mut self, net: &mut Net, time: Duration, reply: Responder<()>) {
        self.last += 1;
        let id = RestId(self.last);
        net.timers.at(Key::Rest(id), net.now.plus(time));
        self.under_way.insert(id, reply);
    }

    pub(super) fn over(&mut self, id: RestId) {
        if let Some(reply) = self.under_way.remove(&id) {
            let _ = reply.send(Ok(()));
        }
    }

    /// The engine ends.
    pub(super) fn clear(&mut self) {
        self.under_way.clear();
    }
}
