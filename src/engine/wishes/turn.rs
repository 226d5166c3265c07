//! The turn of a read-write lock's writers (protocol §4): a mutex in whose line those stand who were refused, so that one of them at
//! a time asks for the lock. It is about order and speed only. A writer that has lost its turn, or cannot have it, asks all the same.

use std::{sync::Arc, time::Duration};

use super::{
    Wishes,
    waiter::{Counts, Turn, Waiter},
};
use crate::{
    Renewal,
    base::{name::Name, rules::Rule},
    engine::{
        claim::{Lock, Side, Wants},
        event::{Wait, Wish},
        net::Net,
        patience::LONGEST_REST,
    },
    lease::response::Response,
};

/// A writer that could not get its turn asks without it for this long.
const ALONE: Duration = Duration::from_secs(1);
/// The wait for the turn ends at least this long before the writer's own wait. That leaves time for one attempt, whose
/// report says who has the lock then.
const LAST_ATTEMPT: Duration = Duration::from_millis(20);

impl Waiter {
    /// True if this is a writer that should queue for its turn after a refusal.
    pub(super) fn may_queue(&self, net: &Net) -> bool {
        let last = net.now.plus(last_attempt(net) * 2);
        self.wish.wants.side() == Some(Side::Writer)
            && net.holds(Rule::WritersQueue)
            && !self.turn.is_there()
            && self.turn.alone_until <= net.now
            && self.wish.end().is_none_or(|end| last < end)
    }

    /// The wish that stands in line for it.
    pub(super) fn for_turn(mut self: Box<Self>, net: &Net, turn: Name) -> Box<Self> {
        let (reply, lease) = Response::channel();
        self.turn.lease = Some(lease);
        let wait = match self.wish.wait {
            Wait::For(Some(limit)) => Wait::For(Some(limit.saturating_sub(last_attempt(net)))),
            wait => wait,
        };
        let wish = Wish {
            id: self.wish.id,
            wants: Wants::Lock(Lock::Mutex(turn)),
            // As long as the next attempt may take to come. A turn that is lost, or handed over and not heard of, costs no more.
            ttl: (LONGEST_REST + net.settings.node_timeout).min(net.fleet().max_ttl()),
            lock_delay: Duration::ZERO,
            // With a bound that is never reached: nobody is warned that it has been held for long.
            renewal: Renewal::auto().max_renewals(u32::MAX),
            wait,
            asked_at: self.wish.asked_at,
            seen: Arc::default(),
            reply,
        };
        Box::new(Self {
            counts: std::mem::replace(&mut self.counts, Counts::Not),
            writer: Some(self),
            ..Self::new(wish)
        })
    }

    /// The waiter that answers a caller: the writer, if this one only queues for its turn.
    pub(super) fn of_caller(mut self: Box<Self>) -> Box<Self> {
        self.writer.take().unwrap_or(self)
    }
}

impl Wishes {
    /// This writer could not have its turn, or has no time for it any more.
    pub(super) fn asks_alone(&mut self, net: &mut Net, mut writer: Box<Waiter>) {
        writer.turn = Turn {
            lease: None,
            alone_until: net.now.plus(ALONE),
        };
        if writer.is_gone() {
            return self.forget(net, &mut writer);
        }
        match writer.queue() {
            // A crowd that leaves the line at once does not ask at once.
            Some(queue) if writer.counts == Counts::Not => {
                writer.counts = Counts::Asks;
                self.attempt_in_turn(net, &queue, writer);
            }
            _ => self.attempt(net, writer),
        }
    }
}

fn last_attempt(net: &Net) -> Duration {
    (net.round_trip() * 4).max(LAST_ATTEMPT)
}
