//! How what a command runs under is called: a lock, or a slot of a semaphore.

use std::{fmt, time::Duration};

use quorate::{Inspection, Lease, LossReason};

use crate::{args::Lock, failure::Failure, output, wanted::Wanted};

impl Wanted {
    /// As it is called by those who wait.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::Mutex(_) | Self::ConsulMutex(_) => "the lock",
            Self::Semaphore(_) | Self::ConsulSemaphore(_) => "a slot",
        }
    }

    /// What to do for those who did not get it.
    pub(super) fn advice(&self, lock: &Lock) -> String {
        let advice = match lock.wait {
            Some(_) => "a longer --wait waits for",
            None => "without --no-wait this waits for",
        };
        let it = if self.is_mutex() { "it" } else { "one" };
        format!("{advice} {it}")
    }

    fn is_mutex(&self) -> bool {
        matches!(self, Self::Mutex(_) | Self::ConsulMutex(_))
    }

    fn is_in_consul(&self) -> bool {
        matches!(self, Self::ConsulMutex(_) | Self::ConsulSemaphore(_))
    }

    /// Who has it on the masters, for those who wait for it; none if nobody has.
    pub(super) fn taken_by(&self, seen: &Inspection) -> Option<String> {
        if self.is_mutex() {
            let holder = seen.holder()?;
            return Some(format!("held by {}", holder.label));
        }
        match (seen.taken_slots(), seen.limit()) {
            (taken, Some(limit)) if taken >= limit => Some(all_taken(limit)),
            _ => None,
        }
    }

    /// How many wait for it there.
    pub(super) fn waiting(&self, seen: &Inspection) -> u64 {
        match self.is_mutex() {
            true => seen.waiting(),
            false => seen.waiting_for_slots(),
        }
    }

    /// Others have it there: `seen` says who.
    pub(super) fn held(&self, lock: &Lock, seen: Option<&Inspection>) -> Failure {
        let advice = self.advice(lock);
        if self.is_mutex() {
            let holder = seen.and_then(Inspection::holder);
            return Failure::held(&lock.name, holder, &advice);
        }
        let how = seen.and_then(|seen| self.taken_by(seen));
        // Otherwise one is free by now, or those who wait come first.
        let how = how.unwrap_or_else(|| "no slot could be had".to_owned());
        Failure::full(&lock.name, seen, &format!("{how}; {advice}"))
    }

    /// What a command runs under that has this lease.
    pub(super) fn under(&self, lease: &Lease) -> Under {
        Under {
            name: lease.name().to_owned(),
            slot: lease.slot(),
            is_mutex: self.is_mutex(),
            is_in_consul: self.is_in_consul(),
        }
    }
}

fn all_taken(limit: u32) -> String {
    match limit {
        1 => "its only slot is taken".to_owned(),
        _ => format!("all {limit} slots are taken"),
    }
}

/// What a command runs under: `the lock "a"`, `slot 2 of "pool"`, `a slot of "pool"`.
pub(crate) struct Under {
    pub(crate) name: String,
    /// Its number, on the masters.
    pub(crate) slot: Option<u32>,
    is_mutex: bool,
    is_in_consul: bool,
}

impl Under {
    /// `"a"`, `slot 2 of "pool"`.
    fn briefly(&self) -> String {
        match self.is_mutex {
            true => format!("{:?}", self.name),
            false => self.to_string(),
        }
    }

    /// Why it was lost.
    pub(crate) fn why(&self, reason: LossReason) -> String {
        let why = match reason {
            LossReason::Evicted => "Consul says that it is not ours any more",
            LossReason::NodesLost => "its session could not be renewed in Consul in time",
            _ => "",
        };
        match self.is_in_consul && !why.is_empty() {
            true => why.to_owned(),
            false => reason.to_string(),
        }
    }

    /// The command has ended well, but that this is free was not confirmed.
    pub(super) fn unconfirmed(&self, ttl: Duration) -> String {
        let (under, ttl) = (self.briefly(), output::seconds(ttl));
        match self.is_in_consul {
            false => format!(
                "the command is done, but too few nodes confirmed that {under} is free; it is at the latest in {ttl}"
            ),
            // Consul takes up to two ttl to end a session.
            true => format!(
                "the command is done, but Consul did not confirm that {under} is free; it is within twice the ttl of {ttl}"
            ),
        }
    }
}

impl fmt::Display for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.slot {
            _ if self.is_mutex => write!(f, "the lock {name:?}"),
            Some(slot) => write!(f, "slot {slot} of {name:?}"),
            None => write!(f, "a slot of {name:?}"),
        }
    }
}
