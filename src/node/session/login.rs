//! Logs in again on a living connection before its login expires. One node logs in at a time, so that a login which
//! costs a connection, or time, does not cost a majority at once. This file is pure.

use std::time::Duration;

use super::step::{Effect, Step};
use crate::base::{clock::Tick, logs, rules::Rule};

/// The pause before a login is tried again is a twentieth of its life, within these bounds.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Credentials that are about to expire when they come do not make a loop.
const SOONEST: Duration = Duration::from_secs(1);
/// How soon a node looks again if another one is logging in.
const TURN: Duration = Duration::from_millis(50);

/// The login of one connection.
#[derive(Default)]
pub(crate) struct Login {
    /// How long the login lasts, counted from when it was accepted.
    lasts: Duration,
    /// When the next login is due. `None` if the login does not expire, and while one is under way.
    due: Option<Tick>,
    /// The reason why the last login failed.
    failed: Option<String>,
}

impl Login {
    pub(crate) fn due(&self) -> Option<Tick> {
        self.due
    }

    /// The note for operators.
    pub(crate) fn note(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// The connection is over, or a new one is there.
    pub(crate) fn clear(&mut self, step: &mut Step<'_>, node: usize) {
        *self = Self::default();
        step.fleet.end_login(node);
    }

    /// Logs in if that is due.
    pub(crate) fn tick(&mut self, step: &mut Step<'_>, node: usize, is_stalled: bool) {
        if self.due.is_none_or(|due| due > step.now) {
            return;
        }
        if is_stalled || !step.fleet.begin_login(node) {
            self.due = Some(step.now.plus(TURN + step.jitter(TURN)));
            return;
        }
        self.due = None;
        step.effects.push_back(Effect::LogIn(node));
    }

    /// The login was accepted for this long, or the reason why not. Returns true if the note changed.
    pub(crate) fn answered(
        &mut self,
        step: &mut Step<'_>,
        node: usize,
        answer: Result<Option<Duration>, String>,
    ) -> bool {
        step.fleet.end_login(node);
        let renews = step.settings.rules.hold(Rule::LoginRenewed);
        let before = self.failed.take();
        match answer {
            Ok(lasts) => {
                self.lasts = lasts.unwrap_or_default();
                // 70 to 80 % of its life, so that the clients of a fleet do not all log in at once.
                let early = step.jitter(self.lasts / 10);
                let after = (self.lasts / 5 * 4).saturating_sub(early).max(SOONEST);
                self.due = lasts.filter(|_| renews).map(|_| step.now.plus(after));
            }
            Err(why) => {
                let pause = (self.lasts / 20).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                self.due = Some(step.now.plus(pause + step.jitter(pause)));
                if before.is_none() {
                    let id = step.settings.nodes.get(node).map(|id| &**id);
                    logs::warn!(node = id, reason = why, "a login could not be renewed");
                }
                self.failed = Some(why);
            }
        }
        self.failed != before
    }
}
