//! Beats: when a waiter asks a node again.

use std::time::Duration;

use crate::base::clock::Tick;

/// Two answers about the same end of a lease may differ by this much, because answers sometimes take longer.
const BLUR: Duration = Duration::from_millis(20);
/// A node counts in ms. What ends within a ms is still there during that ms.
pub(crate) const ROUNDING: Duration = Duration::from_millis(2);

/// The holder on a node that this waiter does not have, as known since its first vote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Has {
    #[default]
    Unknown,
    /// A waiter before this one.
    Before,
    /// A waiter behind this one, which will give way; or nobody.
    Behind,
    /// A holder that did not wait.
    Another,
    /// The node does not answer, or this waiter's vote there is over.
    Silent,
}

impl Has {
    /// Returns true if this waiter may soon get the node.
    pub(crate) fn may_be_ours(self) -> bool {
        matches!(self, Self::Unknown | Self::Behind)
    }
}

/// A node's answer to a request for a place behind all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Entered {
    #[default]
    Unknown,
    /// This waiter has a place there, or has the lock there.
    Yes,
    /// Another waiter is there whose ticket is not smaller.
    No,
}

/// The state of one node, for one waiter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beat {
    /// The holder there.
    pub(crate) has: Has,
    pub(crate) entered: Entered,
    /// A number for the holder, to see if two nodes name the same one. It is 0 if the holder did not come through the
    /// queue.
    pub(crate) holder: u32,
    /// The number of the request that is unanswered, and when it was sent. There is one at a time.
    in_flight: Option<(u64, Tick)>,
    /// The node has to be asked once more when that request is answered.
    again: bool,
    /// When to ask next.
    next: Option<Tick>,
    /// When to ask after that. It replaces `next` with the next answer.
    later: Option<Tick>,
    /// Since when this waiter is the first or the next there.
    near_since: Option<Tick>,
    /// The node cannot push to this process, so it is asked more often.
    pub(crate) is_deaf: bool,
    /// The end of the lease of a holder there that did not wait.
    holder_ends: Option<Tick>,
    /// The time at which the last request was sent that the node has answered or may have read.
    asked_at: Option<Tick>,
}

impl Beat {
    /// Asks as soon as possible.
    pub(crate) fn now(&mut self, now: Tick) {
        match self.in_flight {
            Some(_) => self.again = true,
            None => self.next = Some(now),
        }
    }

    /// Asks at this time, or earlier if an earlier time was set.
    pub(crate) fn by(&mut self, at: Tick) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Asks at this time too, after the next answer, or earlier if an earlier time was set.
    pub(crate) fn later(&mut self, at: Tick) {
        self.later = Some(self.later.map_or(at, |later| later.min(at)));
    }

    /// The node may not be asked now. Another event says when it may be.
    pub(crate) fn never(&mut self) {
        (self.next, self.later, self.again) = (None, None, false);
    }

    pub(crate) fn is_due(&self, now: Tick) -> bool {
        self.in_flight.is_none() && self.next.is_some_and(|at| at <= now)
    }

    /// Returns true if the node may know this waiter.
    pub(crate) fn was_asked(&self) -> bool {
        self.in_flight.is_some() || self.asked_at.is_some()
    }

    /// Returns true if the node was asked once at most.
    pub(crate) fn is_first(&self) -> bool {
        self.asked_at.is_none()
    }

    /// The node has refused the request, and knows nothing of this waiter.
    pub(crate) fn never_asked(&mut self) {
        self.asked_at = None;
    }

    /// Returns true if the node has still to answer about the place, and may do so.
    pub(crate) fn is_open(&self) -> bool {
        let is_asked = self.in_flight.is_some() || self.next.is_some();
        is_asked && self.entered == Entered::Unknown && self.has != Has::Silent
    }

    /// Returns true if this waiter is the first or the next there.
    pub(crate) fn is_near(&self) -> bool {
        self.near_since.is_some()
    }

    pub(crate) fn near(&mut self, now: Tick, is_near: bool) {
        let since = *self.near_since.get_or_insert(now);
        self.near_since = is_near.then_some(since);
    }

    /// For how long this waiter has been the first or the next there.
    pub(crate) fn near_for(&self, now: Tick) -> Duration {
        let since = self.near_since.map(|since| now.since(since));
        since.unwrap_or_default()
    }

    /// The node says that this waiter is next. It should hear from the waiter now, unless it did within `fresh`, and
    /// again after `after`.
    pub(crate) fn told_next(&mut self, now: Tick, fresh: Duration, after: Duration) {
        self.near(now, true);
        let again = now.plus(after).plus(ROUNDING);
        match self.asked_at.map(|at| at.plus(fresh)) {
            // The request that is on its way serves the same purpose.
            _ if self.in_flight.is_some() => {}
            Some(stale) if again <= stale => return self.by(again),
            Some(stale) if now < stale => self.by(stale),
            _ => self.next = Some(now),
        }
        self.later(again);
    }

    /// The time of the next request, if it is known.
    pub(crate) fn due(&self) -> Option<Tick> {
        self.next.filter(|_| self.in_flight.is_none())
    }

    /// Replaces the end of the lease of a holder that did not wait. Returns true if that holder has renewed since the
    /// last answer. A mere attempt never renews.
    pub(crate) fn replace_end(&mut self, end: Option<Tick>) -> bool {
        let before = std::mem::replace(&mut self.holder_ends, end);
        matches!((before, end), (Some(before), Some(end)) if end > before.plus(BLUR))
    }

    /// The node is asked now.
    pub(crate) fn sent(&mut self, now: Tick, seq: u64) {
        self.in_flight = Some((seq, now));
        (self.next, self.again) = (None, false);
    }

    /// The node could not be asked, and nothing was sent.
    pub(crate) fn unsent(&mut self) {
        self.in_flight = None;
        self.never();
    }

    /// The request was answered, or will not be. Returns its number, and when it was sent. If another request was
    /// wanted in the meantime, it is due now.
    pub(crate) fn ended(&mut self, now: Tick) -> Option<(u64, Tick)> {
        let sent = self.in_flight.take();
        if let Some((_, at)) = sent {
            self.asked_at = Some(at);
        }
        if let Some(at) = self.later.take() {
            self.by(at);
        }
        if std::mem::take(&mut self.again) {
            self.next = Some(now);
        }
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_at_a_time_and_a_call_meanwhile_asks_again() {
        let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        let mut beat = Beat::default();
        beat.now(at(1));
        assert!(beat.is_due(at(1)));
        beat.sent(at(1), 7);
        assert!(!beat.is_due(at(9)) && beat.due().is_none() && beat.was_asked());
        beat.now(at(2));
        assert_eq!(beat.ended(at(3)), Some((7, at(1))));
        assert!(beat.is_due(at(3)), "it was called while it asked");
        beat.sent(at(3), 8);
        assert_eq!(beat.ended(at(4)), Some((8, at(3))));
        assert_eq!(beat.due(), None);
        beat.by(at(50));
        beat.by(at(40));
        beat.by(at(60));
        assert_eq!(beat.due(), Some(at(40)));
    }
}
