//! Rounds: one request put to the nodes. Here alone every node is asked.

use std::sync::Arc;

use super::{
    net::{Late, Net, Outstanding},
    timers::Key,
};
use crate::{
    Silence,
    base::clock::Tick,
    node::{
        Operation,
        session::{DutyId, RoundId, Tag},
    },
};

/// Which request of a round an answer belongs to: by it the core finds the room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Request {
    /// ACQUIRE of an attempt.
    Acquire,
    /// RAISE of an attempt.
    Raise,
    /// EXTEND of a lease.
    Extend,
    /// REPAIR of a lease.
    Repair,
    /// JOIN of one who waits in line.
    Join,
    /// YIELD of one who waits in line.
    GiveWay,
    /// TAKE of one who wants a slot.
    Take,
    /// YIELD of one who wants a slot.
    GiveBack,
    /// RELEASE that somebody waits for.
    Release,
    /// What an operator asks about a name.
    Question,
    /// The same, of the semaphore of that name.
    QuestionOfSlots,
    /// The same, of the read-write lock of that name.
    QuestionOfRwlock,
    /// Who holds what of a semaphore.
    Look,
    /// Another limit for a semaphore.
    Resize,
    /// RELEASE of an evicted slot, with its holder's entry.
    EvictSlot,
    /// SPEND of units of a rate limit.
    Spend,
    /// LOOK at what is taken of a rate limit.
    Meter,
    /// REFUND of units of a rate limit.
    Refund,
    /// A step of a bootstrap.
    Bootstrap,
}

impl Request {
    const ALL: [Self; 19] = [
        Self::Acquire,
        Self::Raise,
        Self::Extend,
        Self::Repair,
        Self::Join,
        Self::GiveWay,
        Self::Take,
        Self::GiveBack,
        Self::Release,
        Self::Question,
        Self::QuestionOfSlots,
        Self::QuestionOfRwlock,
        Self::Look,
        Self::Resize,
        Self::EvictSlot,
        Self::Spend,
        Self::Meter,
        Self::Refund,
        Self::Bootstrap,
    ];

    pub(super) fn of(self, round: RoundId) -> Tag {
        let request = self as u8;
        Tag { round, request }
    }

    pub(super) fn from(tag: Tag) -> Option<Self> {
        let is = |request: &Self| *request as u8 == tag.request;
        Self::ALL.into_iter().find(is)
    }
}

/// Asks these nodes for their votes. Returns those that cannot be asked now, and why.
pub(super) fn ask(
    net: &mut Net,
    tag: Tag,
    operation: &Arc<Operation>,
    nodes: impl IntoIterator<Item = usize>,
) -> Vec<(usize, Silence)> {
    let mut unasked = Vec::new();
    for node in nodes {
        let asked = net.session(node, |session, step| session.ask(step, tag, operation));
        if let Some(Err(silence)) = asked {
            unasked.push((node, silence));
        }
    }
    unasked
}

/// Puts to every node what is meant for it, whether it votes or not. One that is not met is not asked.
pub(super) fn put_to_all(net: &mut Net, tag: Tag, operation: impl Fn(usize) -> Arc<Operation>) {
    for node in 0..net.total() {
        let operation = operation(node);
        net.session(node, |session, step| {
            session.ask_unvoting(step, tag, &operation)
        });
    }
}

/// Takes back on these nodes what the operation frees: it is sent until it is answered, or until the end.
pub(super) fn release(
    net: &mut Net,
    tag: Option<Tag>,
    operation: &Arc<Operation>,
    nodes: impl IntoIterator<Item = usize>,
    until: Tick,
) -> Vec<(usize, DutyId)> {
    let mut sent = Vec::with_capacity(net.total());
    for node in nodes {
        let duty = net.session(node, |session, step| {
            session.release(step, operation, until, tag)
        });
        sent.extend(duty.map(|duty| (node, duty)));
    }
    sent
}

/// The time has come when answers are due. Returns who is waited for no more; for the others the timer is set
/// again.
pub(super) fn due(
    net: &mut Net,
    tag: Tag,
    outstanding: impl IntoIterator<Item = Outstanding>,
) -> Vec<(usize, Silence)> {
    let Late { silent, until } = net.late(outstanding);
    if let Some(at) = until {
        net.timers.at(Key::of(tag), at);
    }
    silent
}

/// Answers to what was just asked are due after the node timeout.
pub(super) fn arm(net: &mut Net, tag: Tag) -> Tick {
    let at = net.now.plus(net.settings.node_timeout);
    net.timers.at(Key::of(tag), at);
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_its_request() {
        for request in Request::ALL {
            let tag = request.of(RoundId(7));
            assert_eq!((tag.round, Request::from(tag)), (RoundId(7), Some(request)));
        }
        let (round, request) = (RoundId(7), 200);
        assert_eq!(Request::from(Tag { round, request }), None);
    }
}
