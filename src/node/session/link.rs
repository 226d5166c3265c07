//! The connection to a node: down, dialled, connected or met; and the pause before the next dial.

use std::{sync::Arc, time::Duration};

use super::{
    fleet::Fleet,
    standing::{Standing, Witness},
    step::Step,
};
use crate::{base::clock::Tick, node::status::NodeState};

const FIRST_BACKOFF: Duration = Duration::from_millis(50);
/// The longest pause between two tries to connect.
pub(crate) const LAST_BACKOFF: Duration = Duration::from_secs(5);
/// The shortest pause before a server that rejects this client is dialled again. Somebody must act first, so there is
/// no hurry.
const UNFIT_BACKOFF: Duration = Duration::from_secs(1);

pub(super) struct Link {
    state: State,
    backoff: Duration,
}

enum State {
    Down {
        since: Tick,
        /// `None` before the first try is over.
        why: Option<Cause>,
        /// `None` while it is being dialled.
        dial_at: Option<Tick>,
    },
    /// Connected, but the first handshake is not answered yet.
    Unmet,
    Met(Standing),
}

/// The reason why there is no connection.
struct Cause {
    text: Arc<str>,
    /// The server answers, but rejects this client.
    unfit: bool,
}

impl Link {
    pub(super) fn new(now: Tick) -> Self {
        Self {
            state: State::Down {
                since: now,
                why: None,
                dial_at: Some(now),
            },
            backoff: FIRST_BACKOFF,
        }
    }

    // ---- what happens to it -----------------------------------------------------------------

    /// Returns true if the node has to be dialled now. It returns true only once.
    pub(super) fn dial(&mut self, now: Tick) -> bool {
        match &mut self.state {
            State::Down { dial_at, .. } => dial_at.take_if(|at| *at <= now).is_some(),
            State::Unmet | State::Met(_) => false,
        }
    }

    pub(super) fn connected(&mut self) {
        self.state = State::Unmet;
    }

    /// A handshake was answered. A small change of how far a clock is behind is not reported again.
    pub(super) fn met(&mut self, standing: Standing) {
        if let (State::Met(Standing::Behind(before)), Standing::Behind(now)) =
            (&self.state, &standing)
            && before.abs_diff(*now) < *before / 10
        {
            return;
        }
        self.state = State::Met(standing);
    }

    /// A server that was met has carried out a request, so the next outage starts with short pauses again.
    ///
    /// The answer to the handshake alone is not enough. A server that denies its role right after it must not be
    /// dialled in a tight loop.
    pub(super) fn served(&mut self) {
        if self.is_met() {
            self.backoff = FIRST_BACKOFF;
        }
    }

    /// The record of a fit node is out of date until the node is met again. Returns true if that is a change.
    pub(super) fn doubt(&mut self) -> bool {
        let fit = self.is_fit() || self.is_behind();
        if fit {
            self.state = State::Met(Standing::Changed);
        }
        fit
    }

    /// The connection is over, or none was opened.
    pub(super) fn down(&mut self, step: &mut Step<'_>, why: &str, unfit: bool) {
        let since = match self.state {
            State::Down { since, .. } => since,
            State::Unmet | State::Met(_) => step.now,
        };
        let wait = match unfit {
            true => self.backoff.max(UNFIT_BACKOFF),
            false => self.backoff,
        };
        let half = wait / 2;
        let text = why.into();
        self.state = State::Down {
            since,
            why: Some(Cause { text, unfit }),
            dial_at: Some(step.now.plus(half + step.jitter(half))),
        };
        self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
    }

    // ---- what it says -----------------------------------------------------------------------

    /// When the node is dialled next, if it is down and not being dialled.
    pub(super) fn dial_at(&self) -> Option<Tick> {
        match self.state {
            State::Down { dial_at, .. } => dial_at,
            State::Unmet | State::Met(_) => None,
        }
    }

    /// Returns true if there is a connection.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Unmet | State::Met(_))
    }

    /// Returns true if the first handshake of this connection was answered.
    pub(super) fn is_met(&self) -> bool {
        matches!(self.state, State::Met(_))
    }

    /// Returns true if the record that was read is of this fleet.
    pub(super) fn is_fit(&self) -> bool {
        matches!(self.state, State::Met(Standing::Fit))
    }

    /// Returns true if another address leads to the same server.
    pub(super) fn is_duplicate(&self) -> bool {
        matches!(self.state, State::Met(Standing::Duplicate(_)))
    }

    /// Returns true if the record is of this fleet and the node's clock is too far behind.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self.state, State::Met(Standing::Behind(_)))
    }

    /// Returns true if its record will be replaced once the clients of another fleet are gone.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.state, State::Met(Standing::Taken(_)))
    }

    /// The reason why the node itself is not counted, regardless of the others.
    pub(super) fn refusal(&self) -> Option<&str> {
        match &self.state {
            State::Met(Standing::Unfit(why) | Standing::Duplicate(why)) => Some(why),
            State::Met(Standing::RefusesWrites(why)) => Some(why),
            State::Down {
                why: Some(Cause { text, unfit: true }),
                ..
            } => Some(text),
            _ => None,
        }
    }

    /// Returns true if the first try to reach the node is over, with or without success.
    pub(super) fn was_tried(&self) -> bool {
        match &self.state {
            State::Down { why, .. } => why.is_some(),
            State::Unmet => false,
            State::Met(_) => true,
        }
    }

    /// The state of the node, by the connection and the last handshake.
    pub(super) fn state(&self, now: Tick, witness: Option<&Witness>, fleet: &Fleet) -> NodeState {
        match &self.state {
            State::Down {
                since,
                why: Some(Cause { text, unfit }),
                ..
            } => match unfit {
                true => NodeState::Refused(text.to_string()),
                false => NodeState::Unreachable(now.since(*since), text.to_string()),
            },
            State::Down { why: None, .. } | State::Unmet => NodeState::Connecting,
            State::Met(standing) => standing.state(now, witness, fleet),
        }
    }
}
