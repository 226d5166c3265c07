//! The memory of one server, with its keys and its faults. The effect of each command is in `apply.rs` of its kind.
//!
//! It has no clock. Every command comes with the node's own TIME, and keys expire by that.

#[cfg(any(test, feature = "test-util"))]
use std::time::Duration;
use std::{cell::Cell, sync::Arc};

use crate::{
    base::rules::{Rule, Rules},
    node::{
        Command, Fault,
        admission::{self, Identity},
        answer::{Answer, Answered},
        kinds::{
            air::Air,
            counters::Counters,
            moment::{self, Moment, Writes},
        },
        mutex,
        push::Push,
        rate,
        request::{Guarded, Question, Target},
        rwlock, server, slots,
    },
};
#[cfg(any(test, feature = "test-util"))]
use crate::{
    base::{name::Name, owner::Entry},
    node::admission::BootRecord,
};

/// All keys of a server: what a dump would contain.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    admission: admission::Memory,
    mutex: mutex::Memory,
    slots: slots::Memory,
    rate: rate::Memory,
    rwlock: rwlock::Memory,
    counters: Counters,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Store {
    server: Identity,
    rules: Rules,
    keys: Snapshot,
    readonly: bool,
    full: bool,
    /// The command that the user has lost the right to.
    withdrawn: Option<moment::Command>,
    /// The script that is running has written.
    wrote: Cell<bool>,
    /// The connections and their channels. They are not keys.
    air: Air,
}

impl Store {
    /// An empty server.
    pub(crate) fn new(server: Identity, rules: Rules) -> Self {
        Self {
            server,
            rules,
            keys: Snapshot::default(),
            readonly: false,
            full: false,
            withdrawn: None,
            wrote: Cell::new(false),
            air: Air::default(),
        }
    }

    /// Carries out one command at `time`, the node's TIME in µs.
    pub(crate) fn apply(&mut self, command: &Command, guard: &str, time: u64) -> Answered {
        self.wrote.set(false);
        self.apply_next(command, guard, time)
    }

    /// Carries out one more command of a batch, as part of the same script.
    pub(crate) fn apply_next(&mut self, command: &Command, guard: &str, time: u64) -> Answered {
        let admitted = match command.guarded() {
            Guarded::Nothing => true,
            Guarded::Answer | Guarded::Deed => self.keys.admission.admits(guard),
        };
        let unguarded = !self.rules.hold(Rule::Guard) && command.extends();
        if command.guarded() == Guarded::Deed && !admitted && !unguarded {
            return Err(Fault::NotAdmitted);
        }
        let at = Moment {
            time,
            rules: self.rules,
            guard,
            admitted,
            writes: self.writes(),
            wrote: &self.wrote,
            air: &self.air,
        };
        let Snapshot {
            admission,
            mutex,
            slots,
            rate,
            rwlock,
            counters,
        } = &mut self.keys;
        match command {
            Command::Admission(command) => admission
                .apply(command, &self.server, counters, at)
                .map(Answer::Admission),
            Command::Server(command) => Ok(Answer::Server(server::apply(command))),
            Command::Request(request) => match &request.target {
                Target::Mutex(names) => mutex.obey(names, request, counters, at),
                Target::Rwlock(name, side) => rwlock.obey(name, *side, request, counters, at),
                Target::Slot(pool, slot) => slots.obey(pool, *slot, request, counters, at),
            },
            Command::Question(question) => match question {
                Question::InspectMutex(name) => Ok(mutex.inspect(name, counters, at)),
                Question::InspectRwlock(name) => Ok(rwlock.inspect(name, counters, at)),
                Question::InspectPool(pool) => slots.inspect(pool, counters, at),
                Question::EvictMutex(name) => mutex.evict(name, at),
                Question::EvictRwlock(name) => rwlock.evict(name, at),
                Question::Resize(pool, limit) => slots.resize(pool, *limit, counters, at),
            },
            Command::Rate(command) => rate.apply(command, at),
        }
    }

    /// One more connection subscribes to this channel. Several may share one.
    pub(crate) fn subscribe(&mut self, channel: &Arc<str>) {
        self.air.subscribe(channel);
    }

    /// One connection less is subscribed to this channel.
    pub(crate) fn unsubscribe(&mut self, channel: &Arc<str>) {
        self.air.unsubscribe(channel);
    }

    /// The messages that were published since the last call and had a subscriber, in order. Each is for all subscribers
    /// of its channel.
    pub(crate) fn take_pushes(&mut self) -> Vec<(Arc<str>, Push)> {
        self.air.take()
    }

    /// Starts a new process: another run, no keys, no fault and no subscribers. A connection of the old process must
    /// not unsubscribe afterwards.
    pub(crate) fn restart(&mut self, run_id: impl Into<String>) {
        let Identity {
            mode,
            eviction,
            version,
            ..
        } = self.server.clone();
        let server = Identity {
            mode,
            eviction,
            version,
            ..Identity::master(run_id)
        };
        *self = Self::new(server, self.rules);
    }

    fn writes(&self) -> Writes {
        if self.readonly || self.server.role != "master" {
            Writes::None
        } else if self.full {
            Writes::Small
        } else if let Some(command) = self.withdrawn {
            Writes::Without(command)
        } else {
            Writes::All
        }
    }
}

/// For tests: faults of a server, and what an operator sees there.
#[cfg(any(test, feature = "test-util"))]
impl Store {
    /// A copy of all keys.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.keys.clone()
    }

    /// Puts all keys back as they were.
    pub(crate) fn restore(&mut self, keys: Snapshot) {
        self.keys = keys;
    }

    /// A PUBLISH outside of any command.
    #[cfg(test)]
    pub(crate) fn publish(&self, channel: &Arc<str>, push: Push) -> bool {
        self.air.publish(channel, push)
    }

    /// FLUSHALL.
    pub(crate) fn flush(&mut self) {
        self.keys = Snapshot::default();
    }

    /// The data that INFO reports. Tests change it to demote or promote the server, or to give it another eviction
    /// policy.
    pub(crate) fn server_mut(&mut self) -> &mut Identity {
        &mut self.server
    }

    /// The run: the process and its memory.
    pub(crate) fn run(&self) -> String {
        self.server.run()
    }

    /// Every write fails with READONLY.
    pub(crate) fn set_readonly(&mut self, on: bool) {
        self.readonly = on;
    }

    /// Every write but DEL and PEXPIRE fails with OOM.
    pub(crate) fn set_out_of_memory(&mut self, on: bool) {
        self.full = on;
    }

    /// The user loses the right to this command, or has all rights again.
    pub(crate) fn set_withdrawn(&mut self, command: Option<moment::Command>) {
        self.withdrawn = command;
    }

    /// The record in `boot`.
    pub(crate) fn record(&self) -> Option<BootRecord> {
        self.keys.admission.record()
    }

    /// Every lock that is held at `time`: name, entry, remaining time.
    pub(crate) fn locks(&self, time: u64) -> impl Iterator<Item = (&Name, &Entry, Duration)> {
        self.keys.mutex.locks(time)
    }

    /// The waiters at `time`, each with the name that it waits for.
    pub(crate) fn waiters(&self, time: u64) -> impl Iterator<Item = (&Name, &Entry)> {
        self.keys.mutex.waiters(time)
    }

    /// The waiters for this name at `time`, in order, and behind them its holder.
    pub(crate) fn standing(&self, name: &Name, time: u64) -> impl Iterator<Item = &Entry> {
        let waiters = self.keys.mutex.waiters_of(name, time);
        waiters.chain(self.keys.mutex.holder(name, time))
    }

    /// The slots of all semaphores.
    pub(crate) fn slots(&self) -> &slots::Memory {
        &self.keys.slots
    }

    /// All read-write locks.
    pub(crate) fn rwlocks(&self) -> &rwlock::Memory {
        &self.keys.rwlock
    }

    /// The keys of the admission.
    pub(crate) fn admission_mut(&mut self) -> &mut admission::Memory {
        &mut self.keys.admission
    }

    /// The counters of all that is held.
    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.keys.counters
    }
}

#[cfg(test)]
mod tests;
