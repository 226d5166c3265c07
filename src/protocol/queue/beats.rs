//! When one who waits asks which node again.

use std::time::Duration;

use crate::base::clock::Tick;

/// An end that is heard of twice may differ by this: answers take longer at times.
const BLUR: Duration = Duration::from_millis(20);
/// A node counts in ms, and what ends in one of them is still there in it.
pub(crate) const ROUNDING: Duration = Duration::from_millis(2);

/// Who has the lock on a node where we do not, as far as that is known since the first node was ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Has {
    #[default]
    Unknown,
    /// One who stands before us.
    Before,
    /// One who stands behind us, and will give way; or nobody.
    Behind,
    /// One who did not wait.
    Another,
    /// The node does not answer, or what we had there is over.
    Silent,
}

impl Has {
    /// Whether we may get the node soon.
    pub(crate) fn may_be_ours(self) -> bool {
        matches!(self, Self::Unknown | Self::Behind)
    }
}

/// What a node has said of a place that is to be the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Entered {
    #[default]
    Unknown,
    /// We stand there, or it is ours.
    Yes,
    /// Somebody stands there whose ticket is not less.
    No,
}

/// One node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Beat {
    /// Who has it.
    pub(crate) has: Has,
    pub(crate) entered: Entered,
    /// By which we know whether two nodes name the same one. 0: none who came through the line.
    pub(crate) holder: u32,
    /// The request that is unanswered, its number, and when it was sent: there is one at a time.
    in_flight: Option<(u64, Tick)>,
    /// It is to be asked once more when that is answered.
    again: bool,
    /// When to ask next.
    next: Option<Tick>,
    /// And when once more, after the next answer.
    later: Option<Tick>,
    /// Since when we stand first there, or next.
    near_since: Option<Tick>,
    /// It cannot call us: it is asked more often.
    pub(crate) is_deaf: bool,
    /// When what a holder has there that did not wait will be over.
    holder_ends: Option<Tick>,
    /// When the last request was sent that it has answered, or may have read.
    asked_at: Option<Tick>,
}

impl Beat {
    /// Asks as soon as it can be.
    pub(crate) fn now(&mut self, now: Tick) {
        match self.in_flight {
            Some(_) => self.again = true,
            None => self.next = Some(now),
        }
    }

    /// Asks then, or earlier if that was said before.
    pub(crate) fn by(&mut self, at: Tick) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Asks then too, after the next answer, or earlier if that was said before.
    pub(crate) fn later(&mut self, at: Tick) {
        self.later = Some(self.later.map_or(at, |later| later.min(at)));
    }

    /// It may not be asked: another event says when it may be.
    pub(crate) fn never(&mut self) {
        (self.next, self.later, self.again) = (None, None, false);
    }

    pub(crate) fn is_due(&self, now: Tick) -> bool {
        self.in_flight.is_none() && self.next.is_some_and(|at| at <= now)
    }

    /// Whether it may know us.
    pub(crate) fn was_asked(&self) -> bool {
        self.in_flight.is_some() || self.asked_at.is_some()
    }

    /// Whether it was asked once at most.
    pub(crate) fn is_first(&self) -> bool {
        self.asked_at.is_none()
    }

    /// It has refused what it was asked, and knows nothing of us.
    pub(crate) fn never_asked(&mut self) {
        self.asked_at = None;
    }

    /// Whether it has yet to say something of the place, and may.
    pub(crate) fn is_open(&self) -> bool {
        let is_asked = self.in_flight.is_some() || self.next.is_some();
        is_asked && self.entered == Entered::Unknown && self.has != Has::Silent
    }

    /// Whether we stand first there, or next.
    pub(crate) fn is_near(&self) -> bool {
        self.near_since.is_some()
    }

    pub(crate) fn near(&mut self, now: Tick, is_near: bool) {
        let since = *self.near_since.get_or_insert(now);
        self.near_since = is_near.then_some(since);
    }

    /// For how long we have stood first there, or next.
    pub(crate) fn near_for(&self, now: Tick) -> Duration {
        let since = self.near_since.map(|since| now.since(since));
        since.unwrap_or_default()
    }

    /// It should hear of us now, unless it has within `fresh`; and again after `after`.
    pub(crate) fn told_next(&mut self, now: Tick, fresh: Duration, after: Duration) {
        self.near(now, true);
        let again = now.plus(after).plus(ROUNDING);
        match self.asked_at.map(|at| at.plus(fresh)) {
            // What is on its way says the same.
            _ if self.in_flight.is_some() => {}
            Some(stale) if again <= stale => return self.by(again),
            Some(stale) if now < stale => self.by(stale),
            _ => self.next = Some(now),
        }
        self.later(again);
    }

    /// When it is to be asked, if that is known.
    pub(crate) fn due(&self) -> Option<Tick> {
        self.next.filter(|_| self.in_flight.is_none())
    }

    /// What it says of a holder that did not wait: until when. Whether that holder has renewed since the last time, as
    /// an attempt never does.
    pub(crate) fn replace_end(&mut self, end: Option<Tick>) -> bool {
        let before = std::mem::replace(&mut self.holder_ends, end);
        matches!((before, end), (Some(before), Some(end)) if end > before.plus(BLUR))
    }

    /// It is asked now.
    pub(crate) fn sent(&mut self, now: Tick, seq: u64) {
        self.in_flight = Some((seq, now));
        (self.next, self.again) = (None, false);
    }

    /// It could not be asked, and was sent nothing.
    pub(crate) fn unsent(&mut self) {
        self.in_flight = None;
        self.never();
    }

    /// It answered, or will not: the number of the request, and when it was sent. Asked again now, if that was wanted meanwhile.
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
