//! An acquisition, and what follows after an attempt that was not won.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    attempt::Attempt,
    patience::{LONGEST_REST, Limits, Past, Patience},
    throttle::Permit,
};
use crate::{
    Error, Lease, Renewal,
    base::{clock::Tick, name::Name, owner::Entry, rules::Rule},
    engine::{
        cluster::{Cluster, SHORTEST_PAUSE},
        event::{AcquireRequest, Acquisition, AcquisitionId, Wait},
        wants::Wants,
    },
    lease::response::Response,
    node::request::{Side, Target},
    protocol::ballot::acquire::Failure,
};

/// An acquisition, and how long it waits. A call that does not wait has one too.
pub(super) struct Waiter {
    pub(super) acquisition: Acquisition,
    pub(super) patience: Patience,
    /// The error of its last attempt. The caller gets it if the next attempt cannot be finished in time.
    pub(super) last: Option<Box<Error>>,
    /// For a read-write lock: how the nodes know it over all its attempts.
    pub(super) known: Option<Box<Known>>,
    /// Its permit to ask. While a writer awaits its turn, the turn has the writer's permit.
    pub(super) permit: Option<Permit>,
    /// For a writer of a read-write lock: the state of its turn.
    pub(super) turn: Turn,
    /// If this is a writer's turn: the writer, which waits in the stage `AwaitsTurn`. No caller waits for the turn.
    pub(super) for_writer: Option<AcquisitionId>,
}

/// The state of a writer's turn. By default the writer has not asked for it.
#[derive(Default)]
pub(super) struct Turn {
    /// The lease is in here once it is granted. Dropping this releases it.
    pub(super) lease: Option<Response<Option<Lease>>>,
    /// The turn could not be acquired. Until this time the writer asks without it.
    pub(super) alone_until: Tick,
}

impl Turn {
    /// Returns true if the writer waits for its turn, has it, or had it. A lost turn is not acquired again.
    pub(super) fn was_asked_for(&self) -> bool {
        self.lease.is_some()
    }
}

/// How nodes know an acquisition that waits for a read-write lock.
pub(super) struct Known {
    pub(super) entry: Entry,
    /// The nodes that may know it.
    pub(super) by: BTreeSet<usize>,
    /// The lock was freed since its attempt began.
    pub(super) was_freed: bool,
}

/// The step after an attempt that was not won.
pub(super) enum After {
    /// The caller gets the error.
    Answer,
    /// Another owner holds it, so it joins this queue.
    Queue(Name),
    /// The next attempt begins at this time.
    RestUntil(Tick),
}

impl Waiter {
    pub(super) fn new(acquisition: Acquisition) -> Self {
        Self {
            patience: Patience::new(acquisition.request.wait, acquisition.asked_at),
            acquisition,
            last: None,
            known: None,
            permit: None,
            turn: Turn::default(),
            for_writer: None,
        }
    }

    /// Returns true if the caller's future was dropped. For a turn: if its writer is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.acquisition.reply.is_closed()
    }

    /// The mutex whose queue it joins once it is refused. `None` if it does not queue.
    pub(super) fn queue_name(&self, cluster: &Cluster) -> Option<Name> {
        let wants = &self.acquisition.request.wants;
        let may_stand =
            self.patience.waits() && (wants.side().is_none() || self.may_queue(cluster));
        wants.line().filter(|_| may_stand)
    }

    /// An attempt was not won. Returns the reason, and what follows.
    pub(super) fn failed(
        &mut self,
        cluster: &mut Cluster,
        attempt: &Attempt,
        failure: Failure,
    ) -> (Error, After) {
        let past = attempt.past(cluster.now, failure);
        let error = match self.last.take() {
            Some(last) if attempt.was_cut_short() && failure != Failure::Held => *last,
            _ => error(cluster, attempt, &past),
        };
        self.follows(cluster, &past, error)
    }

    /// The next step after an attempt that was not won.
    pub(super) fn follows(
        &mut self,
        cluster: &mut Cluster,
        past: &Past,
        error: Error,
    ) -> (Error, After) {
        let limits = limits(cluster);
        let Some(goes_on) = self.patience.failed(cluster.now, past, limits) else {
            return (error, After::Answer);
        };
        if past.failure == Failure::Held
            && let Some(line) = self.queue_name(cluster)
        {
            return (error, After::Queue(line));
        }
        if goes_on.warn {
            cluster
                .journal
                .waits_out_a_quarantine(cluster.now, self.acquisition.name(), &error);
        }
        if self.take_was_freed() && past.failure == Failure::Held {
            return (error, After::RestUntil(self.next_attempt_at(cluster)));
        }
        let up_to = |most| cluster.chance.up_to(most);
        let until = self
            .patience
            .rest_until(cluster.now, past, goes_on.refresh, limits, up_to);
        (error, After::RestUntil(until))
    }

    fn take_was_freed(&mut self) -> bool {
        let known = self.known.as_mut();
        known.is_some_and(|known| std::mem::take(&mut known.was_freed))
    }

    /// The time of its next attempt after the lock was freed. Writers without a turn do not all ask at the same time.
    pub(super) fn next_attempt_at(&self, cluster: &mut Cluster) -> Tick {
        let spread = match self.acquisition.request.wants.side() {
            Some(Side::Writer) if !self.turn.was_asked_for() => cluster.round_trip() / 2,
            _ => Duration::ZERO,
        };
        let spread = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX);
        let at = cluster
            .now
            .plus(Duration::from_micros(cluster.chance.up_to(spread)));
        self.patience.give_up_at().map_or(at, |end| at.min(end))
    }

    /// Returns true if it stays in the queue although there is no majority.
    pub(super) fn goes_on(
        &mut self,
        cluster: &mut Cluster,
        failure: Failure,
        error: &Error,
    ) -> bool {
        let past = Past {
            failure,
            took: Duration::ZERO,
            known: None,
            is_stale: false,
        };
        let limits = limits(cluster);
        let Some(goes_on) = self.patience.failed(cluster.now, &past, limits) else {
            return false;
        };
        if goes_on.warn {
            cluster
                .journal
                .waits_out_a_quarantine(cluster.now, self.acquisition.name(), error);
        }
        true
    }

    /// Answers the caller with this error. For a call that does not wait, a refusal is `Ok(None)`.
    pub(super) fn answer(self, error: Error) {
        let answer = match error {
            Error::Held(_) if !self.patience.waits() => Ok(None),
            error => Err(error),
        };
        let _ = self.acquisition.reply.send(answer);
    }
}

fn limits(cluster: &Cluster) -> Limits {
    let quarantine = Duration::from_millis(cluster.fleet().greatest_terms().quarantine());
    let outage = cluster.settings.terms.max_ttl;
    Limits::new(quarantine, outage, cluster.settings.node_timeout)
}

/// The error for an attempt that was not won.
fn error(cluster: &Cluster, attempt: &Attempt, past: &Past) -> Error {
    let retry_after = match (past.failure, past.known) {
        (Failure::Held, known) => known,
        (Failure::Quarantined, Some(left)) => Some(left.max(SHORTEST_PAUSE)),
        (Failure::Quarantined | Failure::NoQuorum | Failure::TooSlow, _) => {
            Some(cluster.try_again(cluster.needed))
        }
    };
    let report = attempt.report(cluster, retry_after);
    match past.failure {
        Failure::Held => Error::Held(report),
        Failure::NoQuorum => Error::NoQuorum(report),
        Failure::Quarantined => cluster.quarantined(report),
        Failure::TooSlow => Error::TooSlow(report),
    }
}

// ---- The turn of a read-write lock's writers (protocol §4)
//
// Writers that were refused queue for a mutex, so that one of them at a time asks for the lock. The turn is about order
// and speed only. A writer that has lost its turn, or cannot get it, asks all the same. The turn is an acquisition of
// its own, whose answer goes to the writer.

/// A writer that could not get its turn asks without it for this long.
const ALONE: Duration = Duration::from_secs(1);
/// The wait for the turn ends at least this long before the writer's own wait. That leaves time for one attempt, whose
/// report says who has the lock then.
const LAST_ATTEMPT: Duration = Duration::from_millis(20);

impl Waiter {
    /// Returns true if this is a writer that should queue for its turn after a refusal.
    fn may_queue(&self, cluster: &Cluster) -> bool {
        let last = cluster.now.plus(last_attempt(cluster) * 2);
        self.acquisition.request.wants.side() == Some(Side::Writer)
            && cluster.rule_holds(Rule::WritersQueue)
            && !self.turn.was_asked_for()
            && self.turn.alone_until <= cluster.now
            && self.acquisition.end().is_none_or(|end| last < end)
    }

    /// Begins to acquire the turn of this writer.
    pub(super) fn for_turn(&mut self, cluster: &Cluster, turn: Name) -> Box<Self> {
        debug_assert!(self.for_writer.is_none(), "a turn asks for a turn");
        let (reply, lease) = Response::channel(Arc::default());
        self.turn.lease = Some(lease);
        let wait = match self.acquisition.request.wait {
            Wait::For(Some(limit)) => Wait::For(Some(limit.saturating_sub(last_attempt(cluster)))),
            wait => wait,
        };
        let request = AcquireRequest {
            wants: Wants::Lock(Target::mutex(turn)),
            // Long enough for the next attempt to come. A turn that is lost, or whose hand-over is not heard, costs no
            // more than this.
            ttl: (LONGEST_REST + cluster.settings.node_timeout).min(cluster.fleet().max_ttl()),
            lock_delay: Duration::ZERO,
            // The bound is never reached. It is set because a renewal without a bound logs a warning when the lease is
            // held for long.
            renewal: Renewal::auto().max_renewals(u32::MAX),
            label: self.acquisition.request.label.clone(),
            wait,
            seen: Arc::default(),
        };
        let acquisition = Acquisition {
            id: self.acquisition.id.of_turn(),
            request,
            caller: self.acquisition.caller,
            asked_at: self.acquisition.asked_at,
            reply,
        };
        Box::new(Self {
            permit: self.permit.take(),
            for_writer: Some(self.acquisition.id),
            ..Self::new(acquisition)
        })
    }

    /// The turn of this writer is granted.
    pub(super) fn got_turn(&mut self) {
        debug_assert!(self.turn.was_asked_for(), "it has not asked for it");
        self.patience.joined();
    }

    /// This writer could not get its turn, or has no time for it any more. It asks without it for a while, with the
    /// permit that the turn still had.
    pub(super) fn got_no_turn(&mut self, cluster: &Cluster, turn: Self) {
        debug_assert!(self.permit.is_none(), "it has two permits");
        self.permit = turn.permit;
        if turn.patience.is_in_line() {
            self.patience.joined();
        }
        self.turn = Turn {
            lease: None,
            alone_until: cluster.now.plus(ALONE),
        };
    }
}

fn last_attempt(cluster: &Cluster) -> Duration {
    (cluster.round_trip() * 4).max(LAST_ATTEMPT)
}
