//! The words that the session and its parts share: what a step works with, and what it says.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::fleet::Fleet;
use crate::{
    Silence,
    base::{
        clock::{Clock, Tick},
        owner::Chance,
    },
    node::{Guard, Operation, Push, Reply, settings::Settings},
};

/// What a session needs of its surroundings for one step.
pub(crate) struct Step<'a> {
    pub(crate) now: Tick,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) settings: &'a Settings,
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) chance: &'a mut Chance,
    pub(crate) effects: &'a mut VecDeque<Effect>,
    pub(crate) heard: &'a mut VecDeque<Heard>,
}

/// What the driver has to do to a node's connection.
#[derive(Debug)]
pub(crate) enum Effect {
    Dial(usize),
    /// The operation, and the guard of this node.
    Send(usize, Arc<Operation>, Arc<Guard>),
    Withdraw(usize),
    Close(usize),
}

/// One round: what the engine put to the nodes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RoundId(pub(crate) u64);

/// Which request of which round an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tag {
    pub(crate) round: RoundId,
    /// The round's own number for it.
    pub(crate) request: u8,
}

/// What is on its way up, in its order.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An answer.
    Answer {
        tag: Tag,
        node: usize,
        answer: Result<Reply, Silence>,
    },
    /// What a node said unasked.
    Push { node: usize, push: Push },
}

/// The server's number for one of our connections (`CLIENT ID`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientId(pub(super) u64);

impl Step<'_> {
    /// A random time of at most `most`, so that clients do not act at the same moment.
    pub(super) fn jitter(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.chance.up_to(most))
    }
}
