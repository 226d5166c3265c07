//! How the units of a quota are given out: those of large limits by single nodes, those of small limits as slots of a
//! majority.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::{
    Error, Quota, Semaphore,
    base::{
        clock::Tick,
        name::Name,
        quota::{Masters, SLOTS_UP_TO, Window},
    },
    engine::Engine,
    node::{
        request::{Family, Pool},
        wire::keys,
    },
    protocol::rates::words::{Denial, Grace, Limited, Room},
};

const SHORTEST_GRACE: Duration = Duration::from_millis(20);
const LONGEST_GRACE: Duration = Duration::from_millis(500);

/// The longest time for which the result of a look at the slots is believed. A quarter of the interval limits it too.
const TRUST: Duration = Duration::from_secs(1);

/// The settings that a user may leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Choices {
    pub(super) grace: Option<Duration>,
    /// The number of units in a block.
    pub(super) block: Option<u32>,
}

/// The settings of a limiter, checked and derived. A process may have one for each of a million keys, so it is small.
pub(super) struct Plan {
    name: Name,
    masters: Masters,
    /// The intervals in which every node has units of its own.
    pub(super) limited: Option<Arc<Limited>>,
    /// The intervals with few units: each unit is a slot.
    pub(super) small: Vec<Small>,
    pub(super) grace: Grace,
    /// The last denial of `limited`, if there are slots too.
    pub(super) denied: Mutex<Option<KnownDenial>>,
    /// The most units that can be had at once.
    pub(super) most: u32,
}

pub(super) struct Small {
    pub(super) window: Window,
    /// The state of the slots that this process knows.
    pub(super) seen: Mutex<Seen>,
    /// Held by the one caller that looks at the slots.
    pub(super) looks: tokio::sync::Mutex<()>,
}

/// The result of the last look at the slots, less the units that this process has used since.
pub(super) struct Seen {
    /// When each slot is free; sorted, the first one first.
    pub(super) free_at: Vec<Tick>,
    /// When that look began.
    pub(super) looked_at: Option<Tick>,
    /// When this process last used some.
    pub(super) used_at: Option<Tick>,
    /// When the last look that failed began, and its error.
    pub(super) failed: Option<Box<(Tick, Error)>>,
}

/// A demand for units that was denied.
pub(super) struct KnownDenial {
    units: u32,
    room: Room,
    /// When there may be enough units for it.
    free_at: Tick,
    /// Until when the denial is believed.
    until: Tick,
}

impl Small {
    /// For how long a look at the slots is believed.
    pub(super) fn trust(&self) -> Duration {
        TRUST.min(self.window.period / 4)
    }

    /// How long a unit counts after the last instant at which it may be used.
    pub(super) fn kept(&self) -> Duration {
        Duration::from_millis(self.window.kept())
    }
}

impl Plan {
    /// # Errors
    /// `Invalid`.
    pub(super) fn new(
        name: &Arc<str>,
        quota: &Quota,
        masters: Masters,
        choices: Choices,
    ) -> Result<Self, Error> {
        let Choices { grace, block } = choices;
        let name = Name::new(Arc::clone(name))?;
        quota.check()?;
        let most = Duration::from_millis(quota.windows().first().map_or(0, Window::ahead));
        let least = match grace {
            Some(grace) if grace.is_zero() || grace > most => {
                return Err(Error::Invalid(format!(
                    "a grace of {grace:?} is not allowed: it must be above 0 and at most {most:?}, a tenth of the interval"
                )));
            }
            Some(grace) => grace,
            None if block.is_some() => most,
            None => (quota.shortest() / 20)
                .clamp(SHORTEST_GRACE, LONGEST_GRACE)
                .min(most),
        };
        let grace = Grace {
            least,
            most: grace.unwrap_or(most),
        };
        let is_small = |window: &&Window| window.has_slots(masters);
        let (small, large): (Vec<&Window>, Vec<&Window>) =
            quota.windows().iter().partition(is_small);
        if let Some(block) = block {
            check_block(block, quota, small.first().copied())?;
        }
        let limited = (!large.is_empty()).then(|| {
            Arc::new(Limited {
                name: name.clone(),
                windows: large.into_iter().copied().collect(),
            })
        });
        let small = small.into_iter().map(|window| Small {
            window: *window,
            seen: Mutex::new(Seen::new(window.limit)),
            looks: tokio::sync::Mutex::default(),
        });
        let small: Vec<Small> = small.collect();
        let shares = limited.iter().flat_map(|limited| limited.windows.iter());
        let shares = shares.map(|window| window.shared(masters));
        let most = shares.chain(small.iter().map(|small| small.window.limit));
        Ok(Self {
            name,
            masters,
            most: most.min().unwrap_or(0),
            limited,
            small,
            grace,
            denied: Mutex::default(),
        })
    }

    /// The slots of one interval, each taken for `ttl`. They are made for each use, since a process may have limiters of
    /// a million keys.
    pub(super) fn slots(&self, engine: &Engine, small: &Small, ttl: Duration) -> Semaphore {
        let window = small.window;
        let total = u32::try_from(self.masters.total).unwrap_or(u32::MAX);
        let pool = Pool {
            name: Name::of_part(keys::limited(total, window, self.name.as_str())),
            family: Family::Units {
                kept: Duration::from_millis(window.kept() + window.ahead()),
                history: window.history(),
            },
        };
        Semaphore::of_units(
            engine.clone(),
            pool,
            window.limit,
            ttl,
            self.masters.max_ttl,
        )
    }

    /// Remembers that the shares denied this demand. A quota with slots then denies the same demand without taking
    /// slots.
    pub(super) fn remember_denial(&self, now: Tick, units: u32, denial: Denial) {
        let Some(trust) = self.small.iter().map(Small::trust).min() else {
            return;
        };
        let Denial { wait, room } = denial;
        let denial = KnownDenial {
            units,
            room,
            free_at: now.plus(wait),
            until: now.plus(wait.min(trust)),
        };
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = Some(denial);
    }

    /// Returns a denial that is known without asking: the wait until there are `units`, and what there is now.
    pub(super) fn known_denial(&self, now: Tick, units: u32) -> Option<Denial> {
        let of_slots = self
            .small
            .iter()
            .filter_map(|small| small.known(now, units));
        let of_slots = of_slots.filter(|denial| denial.room.left < units);
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |denial: &&KnownDenial| units >= denial.units && now < denial.until;
        let of_shares = denied.as_ref().filter(holds);
        let of_shares = of_shares.map(|known| Denial {
            wait: known.free_at.since(now),
            room: known.room,
        });
        of_slots.chain(of_shares).reduce(Denial::longer)
    }

    /// Returns true if slots were used or looked at within this time, or if a denial is still believed.
    pub(super) fn was_used_within(&self, now: Tick, time: Duration) -> bool {
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        let is_denied = denied.as_ref().is_some_and(|denial| now < denial.until);
        is_denied
            || self.small.iter().any(|small| {
                let seen = small.seen.lock().unwrap_or_else(PoisonError::into_inner);
                let last = seen.used_at.max(seen.looked_at);
                last.is_some_and(|last| now < last.plus(time))
            })
    }

    /// The longest of the intervals that are kept as slots.
    pub(super) fn longest_of_slots(&self) -> Duration {
        let periods = self.small.iter().map(|small| small.window.period);
        periods.max().unwrap_or_default()
    }
}

fn check_block(block: u32, quota: &Quota, small: Option<&Window>) -> Result<(), Error> {
    if let Some(window) = small {
        return Err(Error::Invalid(format!(
            "units of {window} cannot be taken in blocks: there are too few of them (at most {SLOTS_UP_TO}, or fewer than masters)"
        )));
    }
    match (1..=quota.most().min(super::block::MOST)).contains(&block) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "a block of {block} units is not allowed: it must be 1 to {} units of {quota}",
            quota.most().min(super::block::MOST)
        ))),
    }
}
