//! The state of a waiter: its sessions, its last view, and when to look again.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use super::{
    fault::Fault,
    held,
    place::{Place, Seen},
    record::{Form, View},
    sessions::Session,
    wire::Refusal,
};
use crate::{Error, base::name::Name};

/// The rest between two attempts while Consul refuses because of a lock-delay, or does not answer.
pub(super) const FIRST_REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_secs(1);

/// How much time the waiters in front have to take free permits.
const IN_FRONT: Duration = Duration::from_secs(1);

/// The state of a waiter.
#[derive(Default)]
pub(super) struct Standing {
    pub(super) sessions: Vec<Session>,
    /// Its first session has an entry.
    pub(super) is_in_line: bool,
    pub(super) news: Option<watch::Receiver<Seen>>,
    /// The last view.
    pub(super) view: Option<Arc<View>>,
    /// An attempt by the last view was refused, so it needs a newer one.
    pub(super) is_stale: bool,
    /// When the waiters in front have had their time.
    overtakes_at: Option<Instant>,
    /// When to look again without news.
    pub(super) again_at: Option<Instant>,
    rest: Option<Duration>,
    /// Since when there was no answer, and the last reason.
    pub(super) silent: Option<(Instant, Fault)>,
    /// It has had an entry as a waiter.
    pub(super) has_waited: bool,
}

/// The reason why a round did not go on.
pub(super) enum Stop {
    Fault(Fault),
    Error(Error),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Standing {
    /// The watcher's view, if it is new to this waiter.
    pub(super) fn told(
        &mut self,
        name: &Name,
        form: Form,
        place: &Place,
    ) -> Option<Result<Arc<View>, Stop>> {
        if self.is_stale {
            return None;
        }
        let news = self.news.as_mut()?;
        match &*news.borrow_and_update() {
            Some(Ok(keys)) => {
                let view = keys.view(form, &place.folder);
                Some(match view {
                    Ok(view) => Ok(Arc::new(view)),
                    Err(foreign) => Err(Stop::Error(held::foreign(name, &foreign))),
                })
            }
            Some(Err(fault)) => {
                self.is_stale = true;
                Some(Err(Stop::Fault(fault.clone())))
            }
            None => None,
        }
    }

    /// Notes an answer of Consul.
    pub(super) fn sees(&mut self, view: &Arc<View>) {
        self.view = Some(Arc::clone(view));
        self.silent = None;
    }

    /// Notes whether permits are free while others are in front. The others have had their time a second after that
    /// began.
    pub(super) fn set_behind(&mut self, is_behind: bool, now: Instant) {
        self.overtakes_at = match is_behind {
            true => Some(self.overtakes_at.unwrap_or(now + IN_FRONT)),
            false => None,
        };
    }

    /// Returns true if the waiters in front have had their time.
    pub(super) fn overtakes(&self, now: Instant) -> bool {
        self.overtakes_at.is_some_and(|at| at <= now)
    }

    /// When to look again at the latest, with or without news.
    pub(super) fn looks_at(&self) -> Option<Instant> {
        self.overtakes_at.into_iter().chain(self.again_at).min()
    }

    /// Notes that an attempt was refused: the view is outdated, or a lock-delay lasts.
    pub(super) fn refused(&mut self, why: Refusal) {
        let rest = match why {
            Refusal::LockDelay => self.rest(),
            _ => {
                self.rest = None;
                LONGEST_REST
            }
        };
        // A waiter with an entry is told of changes. The end of a lock-delay is not a change.
        if self.is_in_line {
            (self.is_stale, self.again_at) = (true, Some(Instant::now() + rest));
        }
    }

    pub(super) fn rest(&mut self) -> Duration {
        let rest = self
            .rest
            .map_or(FIRST_REST, |rest| (rest * 2).min(LONGEST_REST));
        self.rest = Some(rest);
        rest
    }

    /// Notes that Consul has ended the sessions, and with them the place in the queue.
    pub(super) fn lose_sessions(&mut self) {
        self.sessions.clear();
        (self.is_in_line, self.news) = (false, None);
        self.is_stale = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_waiters_have_a_second_once_there_is_room() {
        let (mut standing, start) = (Standing::default(), Instant::now());
        assert!(
            !standing.overtakes(start + 2 * IN_FRONT),
            "nobody is in front"
        );
        standing.set_behind(true, start);
        let nanosecond = Duration::from_nanos(1);
        assert!(!standing.overtakes(start + IN_FRONT - nanosecond));
        assert!(standing.overtakes(start + IN_FRONT));
        assert_eq!(standing.looks_at(), Some(start + IN_FRONT));
        // If it stays so, nothing is prolonged. If a permit was taken meanwhile, the time begins again.
        standing.set_behind(true, start + IN_FRONT / 2);
        assert!(standing.overtakes(start + IN_FRONT));
        standing.set_behind(false, start + IN_FRONT / 2);
        assert!(!standing.overtakes(start + 2 * IN_FRONT));
        standing.set_behind(true, start + IN_FRONT);
        assert!(!standing.overtakes(start + 2 * IN_FRONT - nanosecond));
    }

    #[test]
    fn the_next_look_is_at_the_earlier_of_two_times() {
        let (mut standing, start) = (Standing::default(), Instant::now());
        assert_eq!(standing.looks_at(), None);
        standing.again_at = Some(start + 2 * IN_FRONT);
        assert_eq!(standing.looks_at(), Some(start + 2 * IN_FRONT));
        standing.set_behind(true, start);
        assert_eq!(standing.looks_at(), Some(start + IN_FRONT));
    }
}
