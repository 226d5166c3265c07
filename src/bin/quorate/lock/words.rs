//! How what a command runs under is called: a lock, or a slot of a semaphore.

use std::fmt;

use quorate::{Inspection, Lease};

use crate::{args::Lock, failure::Failure, wanted::Wanted};

impl Wanted {
    /// As it is called by those who wait.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::Mutex(_) => "the lock",
            Self::Semaphore(_) => "a slot",
        }
    }

    /// Who has it, for those who wait for it; none if nobody has.
    pub(super) fn taken_by(&self, seen: &Inspection) -> Option<String> {
        match self {
            Self::Mutex(_) => seen
                .holder()
                .map(|holder| format!("held by {}", holder.label)),
            Self::Semaphore(_) => match (seen.taken_slots(), seen.limit()) {
                (taken, Some(limit)) if taken >= limit => Some(all_taken(limit)),
                _ => None,
            },
        }
    }

    /// How many wait for it.
    pub(super) fn waiting(&self, seen: &Inspection) -> u64 {
        match self {
            Self::Mutex(_) => seen.waiting(),
            Self::Semaphore(_) => seen.waiting_for_slots(),
        }
    }

    /// Others have it: `seen` says who.
    pub(super) fn held(&self, lock: &Lock, seen: Option<&Inspection>) -> Failure {
        let advice = match lock.wait {
            Some(_) => "a longer --wait waits for",
            None => "without --no-wait this waits for",
        };
        match self {
            Self::Mutex(_) => {
                let holder = seen.and_then(Inspection::holder);
                Failure::held(&lock.name, holder, &format!("{advice} it"))
            }
            Self::Semaphore(_) => {
                let how = seen.and_then(|seen| self.taken_by(seen));
                // Otherwise one is free by now, or those who wait come first.
                let how = how.unwrap_or_else(|| "no slot could be had".to_owned());
                Failure::full(&lock.name, seen, &format!("{how}; {advice} one"))
            }
        }
    }
}

fn all_taken(limit: u32) -> String {
    match limit {
        1 => "its only slot is taken".to_owned(),
        _ => format!("all {limit} slots are taken"),
    }
}

/// What a command runs under: `the lock "a"`, `slot 2 of "pool"`.
pub(crate) struct Under {
    pub(crate) name: String,
    pub(crate) slot: Option<u32>,
}

impl Under {
    pub(super) fn of(lease: &Lease) -> Self {
        Self {
            name: lease.name().to_owned(),
            slot: lease.slot(),
        }
    }

    /// `"a"`, `slot 2 of "pool"`.
    pub(super) fn briefly(&self) -> String {
        match self.slot {
            None => format!("{:?}", self.name),
            Some(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, slot } = self;
        match slot {
            None => write!(f, "the lock {name:?}"),
            Some(slot) => write!(f, "slot {slot} of {name:?}"),
        }
    }
}
