//! One wish that waits, and what it does after an attempt that was not won.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    Error, Lease,
    base::{clock::Tick, name::Name, owner::Entry},
    engine::{
        attempt::Attempt,
        event::Wish,
        net::{Net, SHORTEST_PAUSE},
        patience::{Failure, Limits, Next, Past, Patience},
        wants::Wants,
    },
    lease::response::Response,
    node::request::{Side, Target},
};

/// A wish, and how long it goes on.
pub(super) struct Waiter {
    pub(super) wish: Wish,
    pub(super) patience: Patience,
    /// What its last attempt came to: the caller is told so if the next one cannot be finished in time.
    pub(super) last: Option<Box<Error>>,
    /// Of a read-write lock: how the nodes know it over all its attempts.
    pub(super) known: Option<Box<Known>>,
    pub(super) counts: Counts,
    /// For a writer of a read-write lock: the state of its turn.
    pub(super) turn: Turn,
    /// The writer that this one queues for. Such a waiter only acquires the writer's turn: no caller waits for it.
    pub(super) writer: Option<Box<Self>>,
}

/// The state of a writer's turn. By default the writer has not asked for it.
#[derive(Default)]
pub(super) struct Turn {
    /// The lease is in here once it is granted, and is released when this is dropped.
    pub(super) lease: Option<Response<Option<Lease>>>,
    /// It could not be had: until then the writer asks without it.
    pub(super) alone_until: Tick,
}

impl Turn {
    /// It has its turn, or had it: a lost one is not asked for again.
    pub(super) fn is_there(&self) -> bool {
        self.lease.is_some()
    }
}

/// Among those of its queue who ask or rest, of which there are only a few at a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Counts {
    Not,
    /// Until it is done, or stands in line.
    Asks,
    /// It asks for a place in line at once: until a majority has spoken.
    Joins,
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
        let counts = match patience.waits() {
            true => Counts::Asks,
            false => Counts::Not,
        };
        Self {
            wish,
            patience,
            last: None,
            known: None,
            counts,
            turn: Turn::default(),
            writer: None,
        }
    }

    /// It asks no more. Its queue, if it counted in this way until now.
    pub(super) fn counts_no_more(&mut self, counted: Counts) -> Option<Target> {
        if self.counts != counted {
            return None;
        }
        self.counts = Counts::Not;
        self.queue()
    }

    /// With whom it asks in turn.
    pub(super) fn queue(&self) -> Option<Target> {
        self.writer
            .as_deref()
            .unwrap_or(self)
            .wish
            .wants
            .target()
            .cloned()
    }

    /// It waits in line, and so does the writer that waits for this.
    pub(super) fn joined(&mut self) {
        self.patience.joined();
        if let Some(writer) = &mut self.writer {
            writer.patience.joined();
        }
    }

    /// The caller's future was dropped.
    pub(super) fn is_gone(&self) -> bool {
        let caller = self.writer.as_deref().unwrap_or(self);
        caller.wish.reply.is_closed()
    }

    /// The mutex in whose line it is to stand once it is refused, as long as it waits.
    pub(super) fn line(&self, net: &Net) -> Option<Name> {
        let wants = &self.wish.wants;
        let may_stand = self.patience.waits() && (wants.side().is_none() || self.may_queue(net));
        wants.line().filter(|_| may_stand)
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
            Wants::Lock(_) => self.line(net).is_some(),
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

    /// When it asks again, now that the lock was freed. A writer that has no turn does not ask together with others.
    pub(super) fn answers_the_call(&self, net: &mut Net) -> Tick {
        let spread = match self.wish.wants.side() {
            Some(Side::Writer) if !self.turn.is_there() => net.round_trip() / 2,
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
