//! Types that the session and its parts share: what one step works with, and what it puts out.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::fleet::Fleet;
use crate::{
    Silence,
    base::{
        clock::{Clock, Tick},
        owner::Chance,
    },
    node::{Guard, Operation, Push, answer::Answer, settings::Settings},
};

/// Everything that a session needs from its surroundings for one step.
pub(crate) struct Step<'a> {
    pub(crate) now: Tick,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) settings: &'a Settings,
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) chance: &'a mut Chance,
    pub(crate) effects: &'a mut VecDeque<Effect>,
    pub(crate) heard: &'a mut VecDeque<Heard>,
}

/// An action of the driver on a node's connection.
#[derive(Debug)]
pub(crate) enum Effect {
    Dial(usize),
    /// The operation, and the guard of this node.
    Send(usize, Arc<Operation>, Arc<Guard>),
    Withdraw(usize),
    Close(usize),
    /// Log in with new credentials.
    LogIn(usize),
}

/// One round: one request that the engine put to the nodes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RoundId(pub(crate) u64);

/// The round and the purpose of the request to which an answer belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag {
    pub(crate) round: RoundId,
    pub(crate) purpose: Purpose,
}

/// The purpose of a request. The engine routes the answer by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Purpose {
    /// ACQUIRE of an attempt.
    Acquire,
    /// RAISE of an attempt.
    Raise,
    /// EXTEND of a lease.
    Extend,
    /// REPAIR of a lease.
    Repair,
    /// JOIN of a waiter in a queue.
    Join,
    /// YIELD of a waiter in a queue.
    GiveWay,
    /// TAKE of a search for a slot.
    Take,
    /// YIELD of a search for a slot.
    GiveBack,
    /// RELEASE that a caller waits for.
    Release,
    /// One of the questions of a survey, by its number.
    Survey(u8),
    /// RESIZE by the first holder of a slot, which sends the limit to all nodes.
    SettleLimit,
    /// SPEND of units of a rate limit.
    Spend,
    /// LOOK at which units of a rate limit are taken.
    Meter,
    /// REFUND of units of a rate limit.
    Refund,
    /// A step of a bootstrap.
    Bootstrap,
}

impl Purpose {
    pub(crate) fn of(self, round: RoundId) -> Tag {
        let purpose = self;
        Tag { round, purpose }
    }
}

/// Input for the engine, in its order.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An answer.
    Answer {
        tag: Tag,
        node: usize,
        answer: Result<Answer, Silence>,
    },
    /// A push of a node.
    Push { node: usize, push: Push },
}

/// The server's number for a connection of this client (`CLIENT ID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientId(pub(super) u64);

impl Step<'_> {
    /// A random time of at most `most`, so that clients do not act at the same moment.
    pub(super) fn jitter(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.chance.up_to(most))
    }
}
