//! When one who wants a slot waits no more, rests, or begins anew.

use std::time::Duration;

use super::asking::{Asking, seat};
use crate::{
    Error, LimitConflict,
    base::{clock::Tick, owner::Entry},
    engine::{
        claim::too_many,
        net::{Net, SHORTEST_PAUSE},
        patience::{Failure, Past},
        timers::Key,
        wishes::{standing::Standing, waiter::After},
    },
    node::status::NodeState,
    protocol::slots::words::Step,
};

/// Whether a wait is over.
pub(super) enum Ends {
    Not,
    /// It goes on under another name.
    Again,
    With(Error),
}

impl Asking {
    /// Several that are wanted together are wanted in vain where the limit has become smaller.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn can_be_had(&self) -> Result<(), Error> {
        let (limit, of) = (self.seat.limit.slots, self.slot.of);
        match of <= limit {
            true => Ok(()),
            false => Err(too_many(of, limit)),
        }
    }

    /// Whether it asks nobody now.
    pub(super) fn is_resting(&mut self, net: &Net) -> bool {
        self.rests_until.is_some() || self.is_in_line && self.standing.is_alone(net)
    }

    /// Whether it is to leave the nodes that know it, and to begin anew.
    pub(super) fn begins_anew(&mut self, net: &Net) -> bool {
        if let Some(until) = self.rests_until {
            return net.now >= until;
        }
        // A majority that is back is seen first.
        if self.is_in_line {
            self.standing.is_alone(net);
        }
        self.aside_at().is_some_and(|at| net.now >= at)
    }

    fn aside_at(&self) -> Option<Tick> {
        self.seat.asked().next()?;
        self.standing.aside_at(self.seat.terms.term())
    }

    /// It has left all nodes.
    pub(super) fn anew(&mut self, net: &mut Net, entry: Entry) {
        let was_alone = self.rests_until.take().is_none();
        (self.round, self.entry) = (net.new_round(), entry);
        self.seat = match self.is_in_line {
            true => self.seat.anew(net.now),
            false => seat(net, &self.waiter, &self.slot.agreed, self.seat.ticket),
        };
        self.standing = Standing::new(net.total());
        self.began_at = net.now;
        // The others are served for a term.
        self.rests_until = was_alone.then(|| net.now.plus(self.seat.terms.term()));
        if !was_alone {
            self.begin(net);
        }
    }

    /// Whether its wait is over, as this is all that there is to do.
    pub(super) fn ends(&mut self, net: &mut Net, step: &Step) -> Ends {
        match step {
            Step::Conflict(found) => {
                let name = self.waiter.wish.name();
                Ends::With(Error::LimitConflict(LimitConflict {
                    asked: self.slot.agreed.made(),
                    found: found.slots,
                    report: self.standing.report(net, name, None),
                }))
            }
            Step::Refused => Ends::With(self.held(net)),
            Step::NoQuorum => self.lacks_a_quorum(net),
            _ => self.waits(net, step),
        }
    }

    fn held(&self, net: &Net) -> Error {
        let free_in = self.standing.last.free_in();
        let report = self.standing.report(net, self.waiter.wish.name(), free_in);
        Error::Held(report.of_slots(self.seat.limit.slots))
    }

    /// Too few nodes answered.
    fn lacks_a_quorum(&mut self, net: &mut Net) -> Ends {
        let voting = net
            .states()
            .filter(|state| *state == NodeState::Voting)
            .count();
        let mut quarantined: Vec<Duration> = net
            .states()
            .filter_map(|state| match state {
                NodeState::Quarantined(left) => Some(left),
                _ => None,
            })
            .collect();
        quarantined.sort_unstable();
        let missing = net.needed.saturating_sub(voting).checked_sub(1);
        let known = missing.and_then(|nth| quarantined.get(nth).copied());
        let (failure, of, again): (_, fn(_) -> _, _) = match known {
            Some(left) => (
                Failure::Quarantined,
                Error::Quarantined,
                left.max(SHORTEST_PAUSE),
            ),
            None => (
                Failure::NoQuorum,
                Error::NoQuorum,
                net.try_again(net.needed),
            ),
        };
        let name = self.waiter.wish.name();
        let error = of(self.standing.report(net, name, Some(again)));
        // Cut short, it is told what was known before.
        let error = match self.waiter.last.take() {
            Some(last) if self.waiter.patience.is_over(net.now) => *last,
            _ => error,
        };
        let past = Past {
            failure,
            took: net.now.since(self.began_at),
            known,
            is_stale: self.standing.last.is_any_stale(),
        };
        let (error, after) = self.waiter.follows(net, &past, error);
        match after {
            After::Answer | After::Line => Ends::With(error),
            After::RestUntil(at) => {
                self.waiter.last = Some(Box::new(error));
                self.rests_until = Some(at);
                net.timers.at(Key::Wish(self.waiter.wish.id), at);
                Ends::Again
            }
        }
    }

    /// It waits: until when?
    fn waits(&mut self, net: &mut Net, step: &Step) -> Ends {
        if self.is_in_line {
            if let Some(error) = self.standing.is_over(net, &mut self.waiter) {
                return Ends::With(match error {
                    Error::Held(report) => Error::Held(report.of_slots(self.seat.limit.slots)),
                    error => error,
                });
            }
        } else if let Some(last) = self.over_before_it_began(net) {
            return Ends::With(last);
        }
        let at = match step {
            Step::Rest(at) => *at,
            _ => None,
        };
        let end = self.waiter.wish.attempt_end();
        let all = [
            at,
            end,
            self.rests_until,
            self.standing.look_at,
            self.aside_at(),
        ];
        if let Some(at) = all.into_iter().flatten().min() {
            net.timers.at(Key::Wish(self.waiter.wish.id), at);
        }
        Ends::Not
    }

    /// What its caller is told when its wait is over between two rounds.
    fn over_before_it_began(&mut self, net: &Net) -> Option<Error> {
        let is_over = self.rests_until.is_some() && self.waiter.patience.is_over(net.now);
        is_over.then(|| match self.waiter.last.take() {
            Some(last) => *last,
            None => self.held(net),
        })
    }
}
