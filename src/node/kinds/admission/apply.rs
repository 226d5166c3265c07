//! Executes admission commands on an in-process node: the executable meaning of `handshake.lua` and `admit.lua`.

use std::time::Duration;

use super::{
    Admit, BootRecord, Command, Handshake, Identity, Meeting, Reply, Stored,
    meet::{admit, meet},
    record::VISIT,
};
use crate::{
    base::rules::Rule,
    node::{
        fault::Fault,
        kinds::{counters::Counters, moment::Moment},
    },
};

/// The keys of the admission.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    boot: Option<String>,
    open: Option<String>,
    /// TIME at the last handshake that wrote it, in µs.
    time: Option<u64>,
    /// TIME at the first meeting, which a node that trusts its own clock counts from: see [`Rule::WitnessedByClients`].
    #[cfg(any(test, feature = "test-util"))]
    met_at: u64,
}

impl Memory {
    /// Returns true if commands with this guard are obeyed.
    pub(crate) fn admits(&self, guard: &str) -> bool {
        self.open.as_deref() == Some(guard)
    }

    /// The record in `boot`.
    pub(crate) fn record(&self) -> Option<BootRecord> {
        self.boot.as_ref()?.parse().ok()
    }

    /// Executes one command. A survey looks at the counters, because every grant leaves one.
    pub(crate) fn apply(
        &mut self,
        command: &Command,
        server: &Identity,
        counters: &Counters,
        at: Moment,
    ) -> Result<Reply, Fault> {
        match command {
            Command::Handshake(hello) => self.handshake(hello, server, at),
            Command::Survey => Ok(Reply::Surveyed {
                used: counters.is_used(),
                lock: counters.one_name().cloned(),
            }),
            Command::Admit(brought) => self.admit(brought, at),
        }
    }

    fn handshake(
        &mut self,
        hello: &Handshake,
        server: &Identity,
        at: Moment,
    ) -> Result<Reply, Fault> {
        let server = server.server();
        let boot = self.boot.as_deref();
        let old = boot.and_then(|text| text.parse::<BootRecord>().ok());
        let visited = self.age_of_time(at).is_some_and(|age| age < VISIT);
        let Some(mut record) = meet(boot, &server, hello, visited, at.rules) else {
            return Ok(Reply::Met(Box::new(Meeting {
                stored: boot.map_or(Stored::Nothing, Stored::read),
                server,
                open: false,
                time: at.time,
                write: None,
            })));
        };
        let same = old.filter(|old| old.id == record.id);
        #[cfg(any(test, feature = "test-util"))]
        self.count_by_own_clock(same.is_some(), &mut record, at);
        let open = self.write(same.as_ref(), &mut record, at)?;
        let write = self.write_time(at);
        Ok(Reply::Met(Box::new(Meeting {
            server,
            stored: Stored::Record(record),
            open,
            time: at.time,
            write,
        })))
    }

    /// Lines 8 to 10: writes the keys. `same` is the record as it stood, if that record goes on. Returns true if `open`
    /// stands now.
    fn write(
        &mut self,
        same: Option<&BootRecord>,
        record: &mut BootRecord,
        at: Moment,
    ) -> Result<bool, Fault> {
        let before = same.map_or(0, |old| old.witnessed);
        let open = record.votes();
        let guard = record.guard(at.rules);
        let right = self.admits(&guard);
        // Closed before anything is set: a full server refuses SET, never DEL, and the node may not vote meanwhile.
        if self.open.is_some() && !(open && right) {
            at.may_delete()?;
            self.open = None;
        }
        let mut write = is_worth_it(same, record, at);
        let set = open && !right;
        // A full server that votes goes on voting.
        if (write || set)
            && let Err(fault) = at.may_write()
        {
            if set || !open {
                return Err(fault);
            }
            write = false;
        }
        if write {
            self.boot = Some(record.to_string());
        } else if !at.rules.hold(Rule::GreaterW) {
            record.witnessed = before;
        }
        if set {
            self.open = Some(guard);
        }
        Ok(open)
    }

    /// The distance between the TIME that the last handshake left and now.
    fn age_of_time(&self, at: Moment) -> Option<Duration> {
        self.time
            .map(|left| Duration::from_micros(left.abs_diff(at.time)))
    }

    /// Writes TIME, at most once a second. Returns the error if the server refuses writes, even where none is due.
    fn write_time(&mut self, at: Moment) -> Option<Result<(), String>> {
        let recent = self
            .age_of_time(at)
            .is_some_and(|age| age < Duration::from_secs(1));
        match at.may_write() {
            Ok(()) => {
                if !recent {
                    self.time = Some(at.time);
                }
                Some(Ok(()))
            }
            Err(Fault::Error(text) | Fault::Withheld(text)) => Some(Err(text)),
            Err(Fault::NotAdmitted | Fault::NoScript) => None,
        }
    }

    fn admit(&mut self, brought: &Admit, at: Moment) -> Result<Reply, Fault> {
        let Some(record) = self.record().and_then(|record| admit(&record, brought)) else {
            return Ok(Reply::Admitted(false));
        };
        at.may_write()?;
        self.open = Some(record.guard(at.rules));
        self.boot = Some(record.to_string());
        Ok(Reply::Admitted(true))
    }
}

/// Returns true if the record is worth writing: it changed, it did not vote before, or its w grew by 1 %.
fn is_worth_it(same: Option<&BootRecord>, record: &BootRecord, at: Moment) -> bool {
    let (before, after) = (same.map_or(0, |old| old.witnessed), record.witnessed);
    let changed = same.is_none_or(|old| {
        let witnessed = old.witnessed;
        BootRecord {
            witnessed,
            ..record.clone()
        } != *old
    });
    let grew = after > before && after.saturating_mul(100) >= before.saturating_mul(101);
    let unripe = before < record.terms.quarantine() && at.rules.hold(Rule::GreaterW);
    changed || unripe || grew
}

/// For tests: access that no command gives.
#[cfg(any(test, feature = "test-util"))]
impl Memory {
    pub(crate) fn boot(&self) -> Option<&str> {
        self.boot.as_deref()
    }

    pub(crate) fn open(&self) -> Option<&str> {
        self.open.as_deref()
    }

    pub(crate) fn time(&self) -> Option<u64> {
        self.time
    }

    pub(crate) fn set_time(&mut self, text: Option<String>) {
        self.time = text.and_then(|text| text.parse().ok());
    }

    pub(crate) fn set_boot(&mut self, text: Option<String>) {
        self.boot = text;
    }

    pub(crate) fn set_open(&mut self, text: Option<String>) {
        self.open = text;
    }

    /// When [`Rule::WitnessedByClients`] is off, the node's own clock counts w.
    fn count_by_own_clock(&mut self, same: bool, record: &mut BootRecord, at: Moment) {
        if !same {
            self.met_at = at.time;
        } else if !at.rules.hold(Rule::WitnessedByClients) {
            let passed = at.time.saturating_sub(self.met_at) / 1000;
            record.witnessed = record.witnessed.max(passed);
        }
    }
}

#[cfg(test)]
mod tests;
