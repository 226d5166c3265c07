//! The words for what is asked for and for what a command runs under: a lock, a side of a read-write lock, a slot of a
//! semaphore.

use std::{fmt, slice, time::Duration};

use quorate::{Holder, Inspection, Lease, LossReason};

use crate::{
    args::{Asked, Run},
    failure::Failure,
    output,
};

impl Asked {
    /// The names that are asked for.
    pub(super) fn names(&self) -> &[String] {
        match self {
            Self::Several(names) => names,
            Self::Mutex(name) | Self::Read(name) | Self::Write(name) | Self::Slot { name, .. } => {
                slice::from_ref(name)
            }
        }
    }

    /// The name, or the names, as the lease calls them.
    pub(super) fn shown(&self) -> String {
        self.names().join(", ")
    }

    /// The number of slots, of a semaphore.
    pub(super) fn limit(&self) -> Option<u32> {
        match self {
            Self::Slot { limit, .. } => Some(*limit),
            _ => None,
        }
    }

    /// The noun that a waiter uses for it.
    pub(super) fn noun(&self) -> &'static str {
        match self {
            Self::Mutex(_) | Self::Read(_) | Self::Write(_) => "the lock",
            Self::Several(_) => "the locks",
            Self::Slot { .. } => "a slot",
        }
    }

    /// Advice for a user who did not get it.
    pub(super) fn advice(&self, run: &Run) -> String {
        let advice = match run.wait {
            Some(_) => "a longer --wait waits for",
            None => "without --no-wait this waits for",
        };
        let it = match self {
            Self::Mutex(_) | Self::Read(_) | Self::Write(_) => "it",
            Self::Several(_) => "them",
            Self::Slot { .. } => "one",
        };
        format!("{advice} {it}")
    }

    /// The holder or waiter that is in the way on the masters; `None` if the nodes name nothing. `seen` has one
    /// entry for each name.
    pub(super) fn taken_by(&self, seen: &[Inspection]) -> Option<String> {
        match self {
            Self::Slot { .. } => all_taken(seen.first()?),
            _ => Some(self.against(seen)?.briefly()),
        }
    }

    /// How many wait for it on the masters, or nothing if that is not worth mentioning. The command that asks is one of
    /// them.
    pub(super) fn line(&self, seen: &[Inspection]) -> String {
        let waiting = |count: fn(&Inspection) -> u64| seen.iter().map(count).sum();
        let (waiting, how) = match self {
            Self::Mutex(_) => (waiting(Inspection::waiting), "wait in the queue"),
            Self::Slot { .. } => (waiting(Inspection::waiting_for_slots), "wait in the queue"),
            Self::Write(_) => (waiting(Inspection::waiting_to_write), "wait to write"),
            Self::Several(_) | Self::Read(_) => (0, ""),
        };
        match waiting {
            0 | 1 => String::new(),
            more => format!("; {more} {how}"),
        }
    }

    /// The failure because others have it on the masters. `seen` has one entry for each name.
    pub(super) fn held(&self, run: &Run, seen: &[Inspection]) -> Failure {
        let (name, advice) = (self.shown(), self.advice(run));
        if let Self::Slot { .. } = self {
            let seen = seen.first();
            // If not all are taken, a slot is free by now, or other waiters come first.
            let how = seen.and_then(all_taken);
            let how = how.unwrap_or_else(|| "no slot could be taken".to_owned());
            return Failure::full(&name, seen, &format!("{how}; {advice}"));
        }
        let against = self.against(seen);
        let how = match &against {
            Some(against) => against.to_string(),
            // No holder was seen, because the lock is changing hands.
            None => "is held by somebody else".to_owned(),
        };
        let (holder, which) = against.map_or((None, None), |one| (one.holder, one.which));
        let failure = Failure::held(&name, holder.as_ref(), &format!("{how}; {advice}"));
        match which {
            Some(which) => failure.with("which", which.into()),
            None => failure,
        }
    }

    /// The holder, or the waiter that comes first.
    fn against(&self, seen: &[Inspection]) -> Option<Against> {
        match self {
            Self::Several(_) => {
                let mut held = seen.iter().filter_map(|seen| Some((seen, seen.holder()?)));
                let (of, holder) = held.next()?;
                Some(Against {
                    which: Some(of.name.clone()),
                    ..Against::holder("held by", holder)
                })
            }
            Self::Mutex(_) => Some(Against::holder("held by", seen.first()?.holder()?)),
            Self::Read(_) | Self::Write(_) => {
                let seen = seen.first()?;
                match seen.writer() {
                    Some(writer) => Some(Against::holder("held for writing by", writer)),
                    None if matches!(self, Self::Read(_)) => Against::who_waits(seen),
                    None => Against::readers(seen),
                }
            }
            Self::Slot { .. } => None,
        }
    }
}

/// The holder of what is asked for: `is held by web-3:77, for 8.2 s more unless it is renewed`.
struct Against {
    /// Which of several names it is.
    which: Option<String>,
    how: &'static str,
    label: String,
    /// The holder itself, if it holds the lock (a waiter does not).
    holder: Option<Holder>,
    /// The number of others beside it.
    others: u64,
}

impl Against {
    fn holder(how: &'static str, holder: &Holder) -> Self {
        Self {
            which: None,
            how,
            label: holder.label.clone(),
            holder: Some(holder.clone()),
            others: 0,
        }
    }

    /// The reader whose lease ends last.
    fn readers(seen: &Inspection) -> Option<Self> {
        let readers = seen.readers();
        let reader = readers.iter().find(|reader| reader.is_held)?;
        Some(Self {
            others: seen.reading().saturating_sub(1),
            ..Self::holder("held for reading by", &reader.holder)
        })
    }

    /// Writers that wait come first.
    fn who_waits(seen: &Inspection) -> Option<Self> {
        let waiting = seen.waiting_writers();
        let first = waiting.iter().max_by_key(|writer| writer.nodes.len())?;
        Some(Self {
            which: None,
            how: "kept for the waiting writer",
            label: first.label.clone(),
            holder: None,
            others: seen.waiting_to_write().saturating_sub(1),
        })
    }

    /// Describes what a user waits for: `held by web-3:77`.
    fn briefly(&self) -> String {
        let which = self.which.as_ref().map(|which| format!("{which:?} is "));
        let (which, others) = (which.unwrap_or_default(), self.others());
        format!("{which}{} {}{others}", self.how, self.label)
    }

    fn others(&self) -> String {
        match self.others {
            0 => String::new(),
            1 => " and one more".to_owned(),
            more => format!(" and {more} more"),
        }
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.which {
            Some(which) => write!(f, "cannot be taken: {which:?} is ")?,
            None => f.write_str("is ")?,
        }
        write!(f, "{} ", self.how)?;
        match &self.holder {
            // With several holders the time of one of them does not help.
            Some(holder) if self.others == 0 => holder.fmt(f),
            _ => write!(f, "{}{}", self.label, self.others()),
        }
    }
}

fn all_taken(seen: &Inspection) -> Option<String> {
    match seen.limit()? {
        limit if seen.taken_slots() < limit => None,
        1 => Some("its only slot is taken".to_owned()),
        limit => Some(format!("all {limit} slots are taken")),
    }
}

/// The lock or slot that a command runs under: `the lock "a"`, `the read lock "a"`, `slot 2 of "pool"`, `a slot of
/// "pool"`.
pub(crate) struct Under {
    pub(crate) name: String,
    /// The slot's number, on the masters.
    pub(crate) slot: Option<u32>,
    /// The kind of lock; `None` for a slot.
    lock: Option<&'static str>,
    is_in_consul: bool,
}

impl Under {
    /// Describes this lease.
    pub(super) fn of(asked: &Asked, lease: &Lease, is_in_consul: bool) -> Self {
        Self {
            name: lease.name().to_owned(),
            slot: lease.slot(),
            lock: match asked {
                Asked::Mutex(_) => Some("the lock"),
                Asked::Several(_) => Some("the lock on"),
                Asked::Read(_) => Some("the read lock"),
                Asked::Write(_) => Some("the write lock"),
                Asked::Slot { .. } => None,
            },
            is_in_consul,
        }
    }

    /// The short form: `"a"`, `slot 2 of "pool"`.
    fn briefly(&self) -> String {
        match self.lock {
            Some("the lock") => format!("{:?}", self.name),
            _ => self.to_string(),
        }
    }

    /// The failure when it was lost while the command ran. `then` says what became of the command.
    pub(super) fn lost(&self, reason: LossReason, then: &str) -> Failure {
        let text = match reason {
            LossReason::MaxHold => {
                format!("{self} was held for as long as --max-hold allows; {then}")
            }
            _ => {
                let why = self.why(reason);
                format!("{self} was lost while the command ran: {why}; {then}")
            }
        };
        let name = self.name.as_str();
        let failure = Failure::lost(text, name, reason == LossReason::NodesLost);
        match self.slot {
            Some(slot) => failure.with("slot", slot.into()),
            None => failure,
        }
    }

    /// The reason for the loss, in words.
    fn why(&self, reason: LossReason) -> String {
        let why = match reason {
            LossReason::Evicted => "Consul says that it no longer belongs to this holder",
            LossReason::NodesLost => "its session could not be renewed in Consul in time",
            _ => "",
        };
        match self.is_in_consul && !why.is_empty() {
            true => why.to_owned(),
            false => reason.to_string(),
        }
    }

    /// The command has ended well, but nobody confirmed that the lock or slot is free.
    pub(super) fn unconfirmed(&self, ttl: Duration) -> String {
        let (under, ttl) = (self.briefly(), output::seconds(ttl));
        match self.is_in_consul {
            false => format!(
                "the command is done, but too few nodes confirmed that {under} is free; it expires in {ttl} at the latest"
            ),
            // Consul takes up to two ttl to end a session.
            true => format!(
                "the command is done, but Consul did not confirm that {under} is free; it expires within twice the ttl of {ttl}"
            ),
        }
    }
}

impl fmt::Display for Under {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match (self.lock, self.slot) {
            (Some(lock), _) => write!(f, "{lock} {name:?}"),
            (None, Some(slot)) => write!(f, "slot {slot} of {name:?}"),
            (None, None) => write!(f, "a slot of {name:?}"),
        }
    }
}
