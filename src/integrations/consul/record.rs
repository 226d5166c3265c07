//! The keys in Consul under one name, and the decisions that follow from them. Pure.
//!
//! The layout is that of Consul's own Go client (`api/lock.go`, `api/semaphore.go`), so `consul lock` and this library
//! exclude each other:
//!
//! - `<name>/.lock` of a lock: a key that the holder's session has locked.
//! - `<name>/.lock` of a semaphore: a record `{"Limit": 3, "Holders": {"<session>": true}}`, changed by
//!   compare-and-set.
//! - `<name>/<session>`: a contender, locked by its session. Consul deletes it with the session. So a holder without a
//!   contender is dead, and is left out of the next record.
//!
//! A waiter is a contender that does not hold. Locks of this library have such entries too, only for the order.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::wire::{Pair, Step};

/// The flags of a semaphore's keys.
const SEMAPHORE_FLAGS: u64 = 0xe0f6_9a2b_aa41_4de0;
/// The flags of a lock's keys.
const LOCK_FLAGS: u64 = 0x2ddc_cbc0_58a5_0c18;
/// The last part of the record's key.
pub(super) const RECORD: &str = ".lock";

/// A session's id.
pub(super) type Id = Arc<str>;

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// One holder: the session of the key.
    Lock,
    /// Up to a limit of holders: a record.
    Semaphore,
}

impl Form {
    pub(super) fn flags(self) -> u64 {
        match self {
            Self::Lock => LOCK_FLAGS,
            Self::Semaphore => SEMAPHORE_FLAGS,
        }
    }
}

/// A semaphore's record.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Record {
    limit: u32,
    holders: Option<BTreeMap<Id, bool>>,
}

/// The reason why the keys under a name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Foreign {
    /// They are of the other form.
    Is(Form),
    /// Their flags are not known.
    Unknown { flags: u64 },
    /// The flags are a semaphore's, but the record cannot be read.
    Unreadable(String),
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Is(Form::Lock) => f.write_str(
                "is a lock (of `consul lock` without -n, or of consul::Consul::mutex), not a semaphore",
            ),
            Self::Is(Form::Semaphore) => f.write_str(
                "is a semaphore (of `consul lock -n`, or of consul::Consul::semaphore), not a lock",
            ),
            Self::Unknown { flags } => write!(
                f,
                "is neither a lock nor a semaphore: its flags are {flags:#x}"
            ),
            Self::Unreadable(why) => write!(f, "is not a semaphore's record: {why}"),
        }
    }
}

/// A session with an entry under the name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    pub(super) session: Id,
    /// The text that the owner wrote there, which names it for people. `consul lock` writes nothing.
    pub(super) label: Option<String>,
}

/// All keys under one name at one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// Consul's index of this view.
    pub(super) index: u64,
    /// The index at which the record was written; 0 if there is no record.
    record_at: u64,
    /// The limit in the record. A lock's is 1. `None` if there is no record.
    limit: Option<u32>,
    /// The record names some holders that are dead.
    has_dead: bool,
    /// The living holders.
    holders: Vec<Contender>,
    /// The living waiters, the longest wait first.
    waiting: Vec<Contender>,
}

/// A demand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) limit: u32,
    /// How many permits at once.
    pub(super) count: u32,
    /// The session under which it waits already.
    pub(super) waits_as: Option<&'a Id>,
    /// The waiters in front have had their time.
    pub(super) overtakes: bool,
}

/// The decision about a demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    /// It may try to take the permits.
    Take,
    /// Others hold them.
    Full,
    /// Permits are free, but others were there before.
    Behind,
    /// The record has this limit.
    Conflict(u32),
}

impl View {
    /// Reads the answer to a query of all keys below `folder` (with its slash).
    ///
    /// # Errors
    /// Something else uses the name.
    pub(super) fn read(
        form: Form,
        folder: &str,
        pairs: &[Pair],
        index: u64,
    ) -> Result<Self, Foreign> {
        let mut view = Self {
            index,
            record_at: 0,
            limit: None,
            has_dead: false,
            holders: Vec::new(),
            waiting: Vec::new(),
        };
        let mut record = None;
        let mut alive: Vec<(u64, Contender)> = Vec::new();
        for pair in pairs {
            let Some(last) = pair.key.strip_prefix(folder) else {
                continue;
            };
            match &pair.session {
                _ if last == RECORD => record = Some(pair),
                Some(session) if **session == *last => {
                    alive.push((pair.create_index, contender(session, &pair.value)));
                }
                _ => {}
            }
        }
        alive.sort_by_key(|(since, _)| *since);
        let mut alive: Vec<Contender> = alive.into_iter().map(|(_, one)| one).collect();
        if let Some(record) = record {
            if record.flags != form.flags() {
                return Err(foreign(record.flags));
            }
            view.record_at = record.modify_index;
            match form {
                Form::Lock => {
                    view.limit = Some(1);
                    let holder = record.session.as_ref();
                    view.holders = holder
                        .map(|session| contender(session, &record.value))
                        .into_iter()
                        .collect();
                    alive.retain(|one| Some(&one.session) != holder);
                }
                Form::Semaphore => {
                    let (limit, holders) = holders_in(&record.value)?;
                    view.limit = limit;
                    (view.holders, alive) = alive
                        .into_iter()
                        .partition(|one| holders.contains_key(&one.session));
                    view.has_dead = view.holders.len() < holders.len();
                }
            }
        }
        view.waiting = alive;
        Ok(view)
    }

    /// Decides about a demand.
    pub(super) fn follows(&self, asked: Asked<'_>) -> Follows {
        if let Some(found) = self.limit.filter(|found| *found != asked.limit) {
            return Follows::Conflict(found);
        }
        let count = asked.count as usize;
        let free = self.free(asked.limit) as usize;
        let in_front = match asked.waits_as {
            Some(me) => self
                .waiting
                .iter()
                .take_while(|one| one.session != *me)
                .count(),
            None => self.waiting.len(),
        };
        if count > free {
            Follows::Full
        } else if count > free.saturating_sub(in_front) && !asked.overtakes {
            Follows::Behind
        } else {
            Follows::Take
        }
    }

    /// How many permits are free.
    pub(super) fn free(&self, limit: u32) -> u32 {
        let held = u32::try_from(self.holders.len()).unwrap_or(u32::MAX);
        self.limit.unwrap_or(limit).saturating_sub(held)
    }

    /// The limit in the record.
    pub(super) fn limit(&self) -> Option<u32> {
        self.limit
    }

    pub(super) fn holders(&self) -> &[Contender] {
        &self.holders
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns true if all of these sessions hold.
    pub(super) fn is_held_by(&self, sessions: &[Id]) -> bool {
        sessions
            .iter()
            .all(|id| self.holders.iter().any(|one| one.session == *id))
    }

    /// The steps that take the permits, if nothing has changed since. The record's key is the last that they write.
    pub(super) fn take(
        &self,
        form: Form,
        folder: &str,
        limit: u32,
        sessions: &[Id],
        label: &str,
    ) -> Vec<Step> {
        let record = format!("{folder}{RECORD}");
        let flags = form.flags();
        let mut steps = Vec::new();
        match form {
            Form::Lock => {
                steps.push(Step::check(record.clone(), self.record_at));
                for session in sessions {
                    // The session may have an entry as a waiter, even if this view does not show it yet. Left behind,
                    // the entry would seem to wait for as long as its session lives.
                    steps.push(Step::delete(format!("{folder}{session}")));
                    steps.push(Step::lock(record.clone(), session, flags, label));
                }
            }
            Form::Semaphore => {
                for session in sessions {
                    steps.push(Step::lock(
                        format!("{folder}{session}"),
                        session,
                        flags,
                        label,
                    ));
                }
                let holders = self.holders.iter().map(|one| &one.session);
                let value = record_of(limit, holders.chain(sessions));
                steps.push(Step::cas(record, self.record_at, flags, value));
            }
        }
        steps
    }

    /// The view after `take` has succeeded at this index.
    pub(super) fn after_take(
        mut self,
        limit: u32,
        sessions: &[Id],
        label: &str,
        index: u64,
    ) -> Self {
        self.waiting.retain(|one| !sessions.contains(&one.session));
        self.holders
            .extend(sessions.iter().map(|session| Contender {
                session: Arc::clone(session),
                label: Some(label.to_owned()),
            }));
        (self.index, self.record_at, self.limit) = (index, index, Some(limit));
        self.has_dead = false;
        self
    }

    /// The steps that give back the permits of these sessions. Dead holders are left out of the record, and a record
    /// without holders is deleted.
    pub(super) fn leave(&self, folder: &str, sessions: &[Id]) -> Vec<Step> {
        let record = format!("{folder}{RECORD}");
        let mut steps: Vec<Step> = sessions
            .iter()
            .map(|session| Step::delete(format!("{folder}{session}")))
            .collect();
        let is_ours = |one: &&Contender| sessions.contains(&one.session);
        let is_to_change = self.has_dead || self.holders.iter().any(|one| is_ours(&one));
        if let Some(limit) = self.limit.filter(|_| is_to_change) {
            let others = self.holders.iter().filter(|one| !is_ours(one));
            let others: Vec<&Id> = others.map(|one| &one.session).collect();
            steps.push(match others.is_empty() {
                true => Step::delete_cas(record, self.record_at),
                false => {
                    let value = record_of(limit, others);
                    Step::cas(record, self.record_at, SEMAPHORE_FLAGS, value)
                }
            });
        }
        steps
    }

    /// The step that changes the limit. `None` if there is no record with a limit.
    pub(super) fn resize(&self, folder: &str, limit: u32) -> Option<Step> {
        self.limit?;
        let holders = self.holders.iter().map(|one| &one.session);
        let value = record_of(limit, holders);
        let record = format!("{folder}{RECORD}");
        Some(Step::cas(record, self.record_at, SEMAPHORE_FLAGS, value))
    }
}

/// The steps that free a lock that this session holds.
pub(super) fn unlock(folder: &str, session: &Id) -> Vec<Step> {
    let record = format!("{folder}{RECORD}");
    vec![
        Step::check_session(record.clone(), session),
        Step::delete(record),
    ]
}

fn contender(session: &Id, value: &[u8]) -> Contender {
    let label = std::str::from_utf8(value).ok();
    Contender {
        session: Arc::clone(session),
        label: label.filter(|label| !label.is_empty()).map(str::to_owned),
    }
}

fn foreign(flags: u64) -> Foreign {
    match flags {
        LOCK_FLAGS => Foreign::Is(Form::Lock),
        SEMAPHORE_FLAGS => Foreign::Is(Form::Semaphore),
        flags => Foreign::Unknown { flags },
    }
}

/// The limit, if there is one, and the holders.
fn holders_in(value: &[u8]) -> Result<(Option<u32>, BTreeMap<Id, bool>), Foreign> {
    // The Go client treats a record without a value as missing.
    if value.is_empty() {
        return Ok((None, BTreeMap::new()));
    }
    let record: Record =
        serde_json::from_slice(value).map_err(|why| Foreign::Unreadable(why.to_string()))?;
    if record.limit == 0 {
        return Err(Foreign::Unreadable("its limit is 0".into()));
    }
    Ok((Some(record.limit), record.holders.unwrap_or_default()))
}

fn record_of<'a>(limit: u32, holders: impl IntoIterator<Item = &'a Id>) -> Vec<u8> {
    let holders = holders
        .into_iter()
        .map(|id| (Arc::clone(id), true))
        .collect();
    let record = Record {
        limit,
        holders: Some(holders),
    };
    // There is only text and numbers, so this cannot fail.
    serde_json::to_vec(&record).unwrap_or_default()
}

#[cfg(test)]
mod tests;
