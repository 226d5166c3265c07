//! The requests that are on their way to a node, in the order in which they are answered, and how long the node has
//! owed an answer.
//!
//! At most [`MOST`] requests are unanswered on a connection. Further votes and releases wait here, where they cost less
//! and can be taken back.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    duty::DutyId,
    rtt::RoundTrip,
    step::{ClientId, Tag},
};
use crate::{
    base::{clock::Tick, owner::Entry, shrink::Shrink as _},
    node::{Operation, request::Request, settings::Settings},
};

/// Maximum number of unanswered requests on a connection.
pub(super) const MOST: usize = 65_536;

pub(super) struct InFlight {
    /// Requests that were given to the connection and are unanswered, oldest first.
    sent: VecDeque<Sent>,
    /// The number of these that have left. They are the first ones.
    left: usize,
    /// Requests that wait because [`MOST`] are unanswered, in order.
    waiting: VecDeque<Sent>,
    /// Requests of which only one may be on its way at a time.
    under_way: Vec<What>,
    /// The last time at which the node sent anything on this connection.
    heard_at: Tick,
    round_trip: RoundTrip,
    /// The node has owed an answer since this time, for longer than the node timeout. It is set when time is looked at,
    /// after the answers that had arrived were read, and never from the clock alone.
    stalled: Option<Tick>,
}

/// One request.
pub(super) struct Sent {
    pub(super) operation: Arc<Operation>,
    pub(super) what: What,
    /// The time at which it left. Before that, the time at which it was asked for.
    pub(super) at: Tick,
    /// It is sent for the second time.
    pub(super) again: bool,
}

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Vote(Tag),
    Release(DutyId),
    Handshake,
    Load,
    Kill(ClientId),
}

/// The requests that a lost connection leaves.
pub(super) struct Lost {
    /// The node may have done these, or may still do them.
    pub(super) sent: VecDeque<Sent>,
    /// The connection was never given these.
    pub(super) waiting: VecDeque<Sent>,
}

impl InFlight {
    pub(super) fn new(now: Tick) -> Self {
        Self {
            sent: VecDeque::new(),
            left: 0,
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            heard_at: now,
            round_trip: RoundTrip::default(),
            stalled: None,
        }
    }

    // ---- what comes and goes ----------------------------------------------------------------

    /// Adds a request behind all earlier ones. Returns the operation if it has to be sent now.
    pub(super) fn add(&mut self, sent: Sent) -> Option<Arc<Operation>> {
        // A request that waits must not be overtaken: a RELEASE comes after its ACQUIRE. The other kinds are not held
        // back. There is at most one of each, and waiting requests may depend on it.
        if sent.what.is_in_order() {
            if !self.waiting.is_empty() || self.is_full() {
                self.waiting.push_back(sent);
                return None;
            }
        } else {
            debug_assert!(!self.is_under_way(sent.what), "one is under way");
            self.under_way.push(sent.what);
        }
        Some(self.fly(sent))
    }

    /// The next request that waits, if there is room for it. Returns the operation, which has to be sent now.
    pub(super) fn next_waiting(&mut self, now: Tick) -> Option<Arc<Operation>> {
        if self.is_full() {
            return None;
        }
        let Some(mut sent) = self.waiting.pop_front() else {
            self.waiting.shrink_if_empty();
            return None;
        };
        sent.at = now;
        Some(self.fly(sent))
    }

    fn fly(&mut self, sent: Sent) -> Arc<Operation> {
        let operation = Arc::clone(&sent.operation);
        self.sent.push_back(sent);
        operation
    }

    fn is_full(&self) -> bool {
        self.sent.len() >= MOST
    }

    /// The requests that were sent have left. The time that the node may take begins now.
    pub(super) fn mark_written(&mut self, now: Tick) {
        for sent in self.sent.range_mut(self.left..) {
            sent.at = now;
        }
        self.left = self.sent.len();
    }

    /// The number of requests that were sent since the last [`mark_written`](Self::mark_written).
    pub(super) fn unwritten(&self) -> usize {
        self.sent.len().saturating_sub(self.left)
    }

    /// The node answered the oldest request.
    pub(super) fn answered(&mut self, now: Tick) -> Option<Sent> {
        let sent = self.sent.pop_front()?;
        self.sent.shrink_if_empty();
        self.left = self.left.saturating_sub(1);
        self.ended(sent.what);
        self.heard_at = now;
        if !sent.again {
            self.round_trip.answered(sent.at, now);
        }
        Some(sent)
    }

    /// The connection took back `taken` operations of which no byte was written. `behind` more were asked for since,
    /// which it has not been given yet.
    pub(super) fn withdrawn(&mut self, taken: usize, behind: usize) -> VecDeque<Sent> {
        let end = self.sent.len().saturating_sub(behind);
        let mut kept = self.sent.split_off(end);
        let taken = self.sent.split_off(end.saturating_sub(taken));
        self.left = self.left.min(self.sent.len());
        self.sent.append(&mut kept);
        for sent in &taken {
            self.ended(sent.what);
        }
        taken
    }

    /// The connection is over.
    pub(super) fn lost(&mut self) -> Lost {
        let Self { sent, waiting, .. } = std::mem::replace(self, Self::new(self.heard_at));
        Lost { sent, waiting }
    }

    /// A new connection was opened. The node's silence counts from now on at the earliest.
    pub(super) fn connected(&mut self, now: Tick) {
        self.heard_at = now;
    }

    fn ended(&mut self, what: What) {
        self.under_way.retain(|other| *other != what);
    }

    /// Returns true if a request of this kind was sent and is neither answered nor taken back. It is for kinds of which
    /// there is only one.
    pub(super) fn is_under_way(&self, what: What) -> bool {
        self.under_way.contains(&what)
    }

    /// The time within which nearly every answer comes. `None` before the first answer.
    pub(super) fn round_trip(&self, settings: &Settings) -> Option<Duration> {
        self.round_trip.estimate(settings.node_timeout)
    }

    /// The average time of an answer. `None` before the first answer.
    pub(super) fn measured_round_trip(&self) -> Option<Duration> {
        self.round_trip.measured()
    }

    /// The number of unanswered requests.
    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    // ---- what is owed -----------------------------------------------------------------------

    /// Since when the node has been stalled. `None` if it is not.
    pub(super) fn stalled(&self) -> Option<Tick> {
        self.stalled
    }

    /// Marks the node as stalled if its oldest request was late at `seen` and it was not stalled before. Returns the
    /// requests that waited, which are not sent any more.
    pub(super) fn stall(&mut self, seen: Tick, settings: &Settings) -> Option<VecDeque<Sent>> {
        if self.stalled.is_some() || !self.is_late(seen, settings) {
            return None;
        }
        self.stalled = self.sent.front().map(|sent| sent.at);
        Some(std::mem::take(&mut self.waiting))
    }

    /// Ends the stall if no request has been unanswered for too long. Returns true if that is a change.
    pub(super) fn recover(&mut self, now: Tick, settings: &Settings) -> bool {
        let recovers = self.stalled.is_some() && !self.is_late(now, settings);
        if recovers {
            self.stalled = None;
        }
        recovers
    }

    fn is_late(&self, now: Tick, settings: &Settings) -> bool {
        self.late_at(settings).is_some_and(|at| at <= now)
    }

    /// When the oldest request will have been unanswered for too long. A node that answers ever more slowly is late as
    /// well.
    pub(super) fn late_at(&self, settings: &Settings) -> Option<Tick> {
        let oldest = self.sent.front()?;
        Some(oldest.at.plus(settings.node_timeout))
    }

    /// For how long the node has owed an answer and sent nothing.
    pub(super) fn silence(&self, seen: Tick) -> Duration {
        self.silent_since()
            .map_or(Duration::ZERO, |at| seen.since(at))
    }

    /// The next time at which the node's silence changes its state: it becomes stalled, or its connection counts as
    /// dead.
    pub(super) fn next_look(&self, settings: &Settings) -> Option<Tick> {
        match self.stalled {
            None => self.late_at(settings),
            Some(_) => Some(self.silent_since()?.plus(settings.silence_limit())),
        }
    }

    fn silent_since(&self) -> Option<Tick> {
        let oldest = self.sent.front()?;
        Some(oldest.at.max(self.heard_at))
    }
}

impl Lost {
    /// The entries for which a request that takes a lock may be on its way.
    pub(super) fn may_take(&self) -> BTreeSet<Entry> {
        let takes = |sent: &Sent| sent.operation.command().entry_that(Request::takes).cloned();
        self.sent.iter().filter_map(takes).collect()
    }
}

impl Sent {
    pub(super) fn new(operation: Arc<Operation>, what: What, at: Tick) -> Self {
        Self {
            operation,
            what,
            at,
            again: false,
        }
    }

    /// The same request, sent once more.
    pub(super) fn again(self, at: Tick) -> Self {
        Self {
            at,
            again: true,
            ..self
        }
    }

    /// Returns true if it may leave something on the node.
    pub(super) fn takes(&self) -> bool {
        self.operation
            .command()
            .entry_that(Request::takes)
            .is_some()
    }

    /// Returns true if its answer says that such an entry has a slot, and another request may give that slot up.
    pub(super) fn holds(&self, is: impl FnOnce(&Entry) -> bool) -> bool {
        self.operation
            .command()
            .entry_that(Request::holds)
            .is_some_and(is)
    }

    /// Returns true if it frees what such an entry may have left on the node.
    pub(super) fn frees(&self, is: impl FnOnce(&Entry) -> bool) -> bool {
        self.operation
            .command()
            .entry_that(Request::frees)
            .is_some_and(is)
    }
}

impl What {
    fn is_in_order(self) -> bool {
        matches!(self, Self::Vote(_) | Self::Release(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{
        server,
        session::step::{Purpose, RoundId},
    };

    fn vote(round: u64) -> What {
        let round = RoundId(round);
        What::Vote(Purpose::Acquire.of(round))
    }

    fn add(inflight: &mut InFlight, what: What) -> bool {
        let operation = Operation::new(server::Command::LoadScripts);
        let sent = Sent::new(operation, what, Tick::default());
        inflight.add(sent).is_some()
    }

    fn rounds(taken: &VecDeque<Sent>) -> Vec<u64> {
        let round = |sent: &Sent| match sent.what {
            What::Vote(tag) => Some(tag.round.0),
            _ => None,
        };
        taken.iter().filter_map(round).collect()
    }

    #[test]
    fn later_requests_stay_when_earlier_ones_are_withdrawn() {
        let mut inflight = InFlight::new(Tick::default());
        for round in 1..=2 {
            add(&mut inflight, vote(round));
        }
        inflight.mark_written(Tick::default());
        for round in 3..=5 {
            add(&mut inflight, vote(round));
        }
        let taken = inflight.withdrawn(2, 1);
        assert_eq!(rounds(&taken), [3, 4]);
        assert_eq!(inflight.unwritten(), 1, "the fifth");
        assert_eq!(rounds(&inflight.lost().sent), [1, 2, 5]);
        assert_eq!(inflight.unwritten(), 0);
    }

    #[test]
    fn no_more_requests_are_withdrawn_than_there_are() {
        let mut inflight = InFlight::new(Tick::default());
        add(&mut inflight, vote(1));
        assert_eq!(rounds(&inflight.withdrawn(3, 0)), [1]);
        assert!(inflight.withdrawn(1, 1).is_empty());
    }

    #[test]
    fn a_request_is_under_way_until_answered_withdrawn_or_lost() {
        let now = Tick::default();
        let mut inflight = InFlight::new(now);
        let kill = |client| What::Kill(ClientId(client));
        for what in [kill(7), kill(8), What::Load, What::Handshake] {
            add(&mut inflight, what);
        }
        inflight.answered(now);
        assert!(!inflight.is_under_way(kill(7)));
        assert!(inflight.is_under_way(kill(8)));
        inflight.withdrawn(1, 0);
        assert!(!inflight.is_under_way(What::Handshake));
        assert!(inflight.is_under_way(What::Load));
        inflight.lost();
        assert!(!inflight.is_under_way(What::Load));
    }

    #[test]
    fn waiting_requests_are_sent_in_order_as_answers_arrive() {
        let now = Tick::default();
        let mut inflight = InFlight::new(now);
        for round in 0..MOST as u64 {
            assert!(add(&mut inflight, vote(round)));
        }
        assert!(!add(&mut inflight, vote(MOST as u64)));
        assert!(add(&mut inflight, What::Handshake), "it waits for nothing");
        inflight.answered(now);
        assert!(inflight.next_waiting(now).is_none(), "its place is taken");
        inflight.answered(now);
        assert!(!add(&mut inflight, vote(0)), "it must not overtake");
        assert!(inflight.next_waiting(now).is_some());
        assert!(inflight.next_waiting(now).is_none(), "the window is full");
        assert_eq!(rounds(&inflight.lost().waiting), [0]);
    }
}
