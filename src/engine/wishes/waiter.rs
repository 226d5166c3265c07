//! One wish that waits, and what it does after an attempt that was not won.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    Error,
    claim::{Queue, Side, Wants},
    clock::Tick,
    engine::{
        attempt::Attempt,
        event::Wish,
        net::{Net, SHORTEST_PAUSE},
        patience::{Failure, Limits, Next, Past, Patience},
    },
    owner::Entry,
};

/// A wish, and how long it goes on.
pub(super) struct Waiter {
    pub(super) wish: Wish,
    pub(super) patience: Patience,
    /// What its last attempt came to: the caller is told so if the next one cannot be finished in time.
    pub(super) last: Option<Box<Error>>,
    /// Of a read-write lock: how the nodes know it over all its attempts.
    pub(super) known: Option<Box<Known>>,
    /// It asks for a place in line at once, and counts among those who ask until a majority has spoken.
    pub(super) has_turn: bool,
}

/// One who waits for a read-write lock, as nodes know it.
pub(super) struct Known {
    pub(super) entry: Entry,
    /// Those that may.
    pub(super) by: BTreeSet<usize>,
    /// The lock was freed since its attempt began.
    pub(super) is_called: bool,
}

/// What follows.
pub(super) enum After {
    /// The caller is told.
    Answer,
    /// The next attempt.
    RestUntil(Tick),
    /// Somebody else has it: it waits in line.
    Line,
}

impl Waiter {
    pub(super) fn new(wish: Wish) -> Self {
        let patience = Patience::new(wish.wait, wish.asked_at);
        Self {
            wish,
            patience,
            last: None,
            known: None,
            has_turn: false,
        }
    }

    /// It asks no more. Its queue, if it counted among those who ask for a place until now.
    pub(super) fn gives_back_its_turn(&mut self) -> Option<Queue> {
        std::mem::take(&mut self.has_turn).then(|| self.wish.wants.queue())?
    }

    /// An attempt was not won: why, and what follows.
    pub(super) fn failed(
        &mut self,
        net: &mut Net,
        attempt: &Attempt,
        failure: Failure,
    ) -> (Error, After) {
        let past = attempt.past(net.now, failure);
        let error = match self.last.take() {
            Some(last) if attempt.was_cut_short() && failure != Failure::Held => *last,
            _ => error(net, attempt, &past),
        };
        self.follows(net, &past, error)
    }

    /// What follows from an attempt that was not won.
    pub(super) fn follows(&mut self, net: &mut Net, past: &Past, error: Error) -> (Error, After) {
        let limits = limits(net);
        let Next::Rest { refresh, warn } = self.patience.failed(net.now, past, limits) else {
            return (error, After::Answer);
        };
        let has_a_line = match &self.wish.wants {
            Wants::Lock(lock) => lock.has_a_line(),
            Wants::Slot(_) => true,
        };
        if past.failure == Failure::Held && has_a_line {
            return (error, After::Line);
        }
        if warn {
            net.journal
                .waits_out_a_quarantine(net.now, self.wish.name(), &error);
        }
        if self.was_called() && past.failure == Failure::Held {
            return (error, After::RestUntil(self.answers_the_call(net)));
        }
        let up_to = |most| net.chance.up_to(most);
        let until = self
            .patience
            .rest_until(net.now, past, refresh, limits, up_to);
        (error, After::RestUntil(until))
    }

    fn was_called(&mut self) -> bool {
        let known = self.known.as_mut();
        known.is_some_and(|known| std::mem::take(&mut known.is_called))
    }

    /// When it asks again, now that the lock was freed. Who wants it alone does not ask together with others who do.
    pub(super) fn answers_the_call(&self, net: &mut Net) -> Tick {
        let spread = match self.wish.wants.side() {
            Some(Side::Writer) => net.round_trip() / 2,
            _ => Duration::ZERO,
        };
        let spread = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX);
        let at = net
            .now
            .plus(Duration::from_micros(net.chance.up_to(spread)));
        self.patience.give_up_at().map_or(at, |end| at.min(end))
    }

    /// It waits in line, and there is no majority: whether it goes on.
    pub(super) fn goes_on(&mut self, net: &mut Net, failure: Failure, error: &Error) -> bool {
        let past = Past {
            failure,
            took: Duration::ZERO,
            known: None,
            is_stale: false,
        };
        let limits = limits(net);
        let Next::Rest { warn, .. } = self.patience.failed(net.now, &past, limits) else {
            return false;
        };
        if warn {
            net.journal
                .waits_out_a_quarantine(net.now, self.wish.name(), error);
        }
        true
    }

    /// Tells the caller. To a wish that does not wait, a refusal is no error.
    pub(super) fn answer(self, error: Error) {
        let answer = match error {
            Error::Held(_) if !self.patience.waits() => Ok(None),
            error => Err(error),
        };
        let _ = self.wish.reply.send(answer);
    }
}

fn limits(net: &Net) -> Limits {
    let quarantine = Duration::from_millis(net.fleet().greatest_terms().quarantine());
    let outage = net.settings.terms.max_ttl;
    Limits::new(quarantine, outage, net.settings.node_timeout)
}

/// Why it was not won.
fn error(net: &Net, attempt: &Attempt, past: &Past) -> Error {
    let retry_after = match (past.failure, past.known) {
        (Failure::Held, known) => known,
        (Failure::Quarantined, Some(left)) => Some(left.max(SHORTEST_PAUSE)),
        (Failure::Quarantined | Failure::NoQuorum | Failure::TooSlow, _) => {
            Some(net.try_again(net.needed))
        }
    };
    let report = attempt.report(net, retry_after);
    match past.failure {
        Failure::Held => Error::Held(report),
        Failure::NoQuorum => Error::NoQuorum(report),
        Failure::Quarantined => Error::Quarantined(report),
        Failure::TooSlow => Error::TooSlow(report),
    }
}
