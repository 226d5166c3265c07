//! One simulated server: a store, a clock, and its faults.

use super::{
    clocks::Drifting,
    invariants::{counters::Counters, limits::Limits, records::Records},
    profile::LIST,
};
use crate::{
    base::rules::Rules,
    node::{
        admission::{Identity, Terms},
        memory::{
            server::admit,
            store::{Snapshot, Store},
        },
    },
};

pub(crate) struct Server {
    pub(crate) store: Store,
    /// TIME, in ns since 1970.
    pub(crate) clock: Drifting,
    /// By how much the clock is wrong, ns.
    pub(crate) wrong: i64,
    pub(crate) run: u64,
    pub(crate) up: bool,
    pub(crate) paused: bool,
    /// True while it works through its sockets after a pause.
    pub(crate) draining: bool,
    /// How many of a thousand commands it answers with an error.
    pub(crate) errors: u64,
    pub(crate) stays_full: bool,
    pub(crate) scripts: bool,
    pub(crate) last_client_id: u64,
    pub(crate) saved: Option<Snapshot>,
    /// Connections that are being opened.
    pub(crate) dials: Vec<usize>,
    /// Connections whose server side is open.
    pub(crate) open: Vec<usize>,
    pub(crate) counters: Counters,
    pub(crate) limits: Limits,
    /// When its memory was lost last. 0 means never.
    pub(crate) forgot_at: u64,
    pub(crate) records: Records,
    /// The extra delay of its answers, and by how much this grows, ns.
    pub(crate) late: u64,
    pub(crate) later: u64,
    /// The origin of its data as a replica. 1 means its own older data.
    pub(crate) follows: u64,
    /// The master that it follows as a replica. Pushes of that master are published here too.
    pub(crate) master: Option<usize>,
    /// The number of its current fault. The end of an older fault has no effect.
    pub(crate) fault: u64,
}

impl Server {
    pub(crate) fn new(index: usize, clock: Drifting, eviction: &str, rules: Rules) -> Self {
        let identity = Identity {
            eviction: eviction.into(),
            ..Identity::master(run_id(index, 0))
        };
        Self {
            store: Store::new(identity, rules),
            clock,
            wrong: 0,
            run: 0,
            up: true,
            paused: false,
            draining: false,
            errors: 0,
            stays_full: false,
            scripts: true,
            last_client_id: 0,
            saved: None,
            dials: Vec::new(),
            open: Vec::new(),
            counters: Counters::default(),
            limits: Limits::default(),
            forgot_at: 0,
            records: Records::default(),
            late: 0,
            later: 0,
            follows: 0,
            master: None,
            fault: 0,
        }
    }

    /// TIME in µs.
    pub(crate) fn time(&self, now: u64) -> u64 {
        self.clock.read(now) / 1000
    }

    /// Admits it as a member of a fleet that has existed for a long time.
    pub(crate) fn admit(&mut self, now: u64, masters: usize, list: &str, terms: Terms) {
        let time = self.time(now);
        let nonce = format!("first{}", self.store.run().replace('/', ""));
        admit(&mut self.store, masters as u64, list, terms, nonce, time);
    }

    /// The content of its `open`.
    pub(crate) fn guard(&self) -> String {
        let record = self.store.record();
        record.map_or(String::new(), |record| record.guard(Rules::ALL))
    }

    /// Starts a new process with these keys.
    pub(crate) fn start(&mut self, now: u64, index: usize, keys: Option<Snapshot>) {
        self.run += 1;
        self.store.restart(run_id(index, self.run));
        if let Some(keys) = keys {
            self.store.restore(keys);
        }
        self.up = true;
        self.paused = false;
        self.draining = false;
        self.errors = 0;
        self.scripts = true;
        self.last_client_id = 0;
        self.later = 0;
        self.late = 0;
        self.master = None;
        self.forgot(now);
    }

    /// The server has another memory now.
    pub(crate) fn forgot(&mut self, now: u64) {
        self.forgot_at = now;
        self.counters.forget();
        self.limits.forget();
        self.records.touch();
    }

    /// Returns true if this memory votes as one of the fleet.
    pub(crate) fn votes(&self) -> bool {
        let record = self.store.record();
        self.up && record.is_some_and(|r| r.list == LIST && r.votes() && r.run == self.store.run())
    }

    /// The locks that are held on it, for the text of a failure.
    pub(crate) fn locks(&self, now: u64) -> Vec<String> {
        let time = self.time(now);
        let locks = self.store.locks(time).map(|(name, entry, left)| {
            format!("{:?} of {} for {left:?}", name.as_str(), entry.as_str())
        });
        let slots = self.store.slots().holders(time);
        let slots = slots.map(|(pool, slot, entry, left)| {
            format!("slot {slot} of {pool:?} of {} for {left:?}", entry.as_str())
        });
        let rwlocks = self.store.rwlocks().holders(time);
        let rwlocks = rwlocks.map(|(name, entry, side)| {
            format!("{:?} of {side:?} {}", name.as_str(), entry.as_str())
        });
        locks.chain(slots).chain(rwlocks).collect()
    }
}

fn run_id(index: usize, run: u64) -> String {
    format!("s{index}r{run}")
}
