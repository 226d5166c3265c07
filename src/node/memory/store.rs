//! One server's memory: the executable meaning of the Lua in `redis/lua`.
//!
//! It knows no clock: every command comes with the node's own TIME, and keys expire by that. The same
//! cases and random sequences run here and on real servers (`redis/conformance.rs`), answered alike.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use crate::{
    name::Name,
    node::{
        Answer, Command, Fault, Reply,
        admission::{self, Admit, BootRecord, Handshake, Meeting, Server, Stored},
        mutex, server,
        wire::ms,
    },
    owner::Entry,
    rules::{Rule, Rules},
};

/// The greatest token: 2^53 - 1. Lua counts in doubles, where 2^53 + 1 is 2^53.
const MAX_TOKEN: u64 = (1 << 53) - 1;

/// A RAISE may go so much further than an ACQUIRE.
const MINUTE_US: u64 = 60_000_000;

/// Counters as old as this become the previous ones.
const WEEK_US: u64 = 7 * 24 * 3600 * 1_000_000;

/// What INFO says of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) run_id: String,
    pub(crate) replid2: String,
    pub(crate) second_offset: String,
    pub(crate) role: String,
    pub(crate) mode: String,
    pub(crate) eviction: String,
    pub(crate) version: String,
}

impl Identity {
    /// A master that was never a replica.
    pub(crate) fn master(run_id: impl Into<String>) -> Self {
        Self {
            run_id: run_id.into(),
            replid2: "0".repeat(40),
            second_offset: "-1".into(),
            role: "master".into(),
            mode: "standalone".into(),
            eviction: "noeviction".into(),
            version: "9.0.0".into(),
        }
    }
}

/// All keys of a server: what a dump would hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    boot: Option<String>,
    open: Option<String>,
    /// TIME at the first meeting, for what trusts the node's clock: see [`Rule::WitnessedByClients`].
    met_at: u64,
    locks: BTreeMap<Name, Lock>,
    /// 0: `c0`, 1: `c1`; without [`Rule::RotateByAge`] the number of the week.
    counters: BTreeMap<u64, Generation>,
}

#[derive(Clone, Debug)]
struct Lock {
    entry: Entry,
    /// The last ms of TIME in which it is held: a server calls a key expired when TIME is past it.
    until: u64,
}

#[derive(Clone, Debug, Default)]
struct Generation {
    /// `_`: the TIME at which it was begun.
    begun: Option<u64>,
    counters: HashMap<Name, u64>,
}

/// One server.
#[derive(Debug)]
pub(crate) struct Store {
    server: Identity,
    rules: Rules,
    keys: Snapshot,
    readonly: bool,
    out_of_memory: bool,
}

// Faults and snapshots are for the simulation.
#[cfg_attr(not(any(test, feature = "test-util")), allow(dead_code))]
impl Store {
    /// An empty server.
    pub(crate) fn new(server: Identity, rules: Rules) -> Self {
        Self {
            server,
            rules,
            keys: Snapshot::default(),
            readonly: false,
            out_of_memory: false,
        }
    }

    /// Obeys one command at `time`, the node's TIME in µs.
    pub(crate) fn apply(&mut self, command: &Command, guard: &str, time: u64) -> Answer {
        let admitted = match command {
            Command::Mutex(mutex::Command::Extend { .. }) if !self.rules.hold(Rule::Guard) => true,
            _ => !command.is_guarded() || self.keys.open.as_deref() == Some(guard),
        };
        if !admitted {
            return Err(Fault::NotAdmitted);
        }
        match command {
            Command::Admission(admission::Command::Handshake(hello)) => self.handshake(hello, time),
            Command::Mutex(mutex::Command::Acquire {
                name,
                entry,
                ttl,
                floor,
                max_ttl,
            }) => {
                let ahead = ms(*max_ttl).saturating_mul(1000);
                self.acquire(name, entry, *ttl, *floor, ahead, time)
            }
            Command::Mutex(mutex::Command::Raise {
                name,
                entry,
                token,
                max_ttl,
            }) => {
                let ahead = ms(*max_ttl).saturating_mul(1000).saturating_add(MINUTE_US);
                self.raise(name, entry, (*token).min(time.saturating_add(ahead)), time)
            }
            Command::Mutex(mutex::Command::Extend { name, entry, ttl }) => {
                self.extend(name, entry, *ttl, time)
            }
            Command::Mutex(mutex::Command::Release { name, entry }) => {
                self.release(name, entry, time)
            }
            Command::Mutex(mutex::Command::Inspect { name }) => {
                Ok(Reply::Mutex(mutex::Reply::Inspected {
                    holder: self
                        .live(name, time)
                        .map(|lock| (lock.entry.as_str().to_owned(), Some(lock.left(time)))),
                    counter: self.counter(name, time),
                }))
            }
            Command::Mutex(mutex::Command::Evict { name }) => self.evict(name, time),
            Command::Admission(admission::Command::Survey) => {
                Ok(Reply::Admission(admission::Reply::Surveyed {
                    used: !self.keys.counters.is_empty(),
                    // A server names any of them. The first: a seed replays what is told too.
                    lock: self
                        .keys
                        .counters
                        .values()
                        .find_map(|generation| generation.counters.keys().min())
                        .cloned(),
                }))
            }
            Command::Admission(admission::Command::Admit(admit)) => self.admit(admit),
            Command::Server(server::Command::Disconnect { .. }) => {
                Ok(Reply::Server(server::Reply::Disconnected(false)))
            }
            Command::Server(server::Command::LoadScripts) => {
                Ok(Reply::Server(server::Reply::Loaded))
            }
        }
    }

    /// A copy of all keys.
    pub(crate) fn snapshot(&self) -> Snapshot {
        self.keys.clone()
    }

    /// Puts all keys back as they were.
    pub(crate) fn restore(&mut self, keys: Snapshot) {
        self.keys = keys;
    }

    /// FLUSHALL.
    pub(crate) fn flush(&mut self) {
        self.keys = Snapshot::default();
    }

    /// A new process: another run, no keys, no fault.
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

    /// What INFO says, to be changed: a demotion, a promotion, another policy.
    pub(crate) fn server_mut(&mut self) -> &mut Identity {
        &mut self.server
    }

    /// Its process, and its memory: see [`Server::run`].
    pub(crate) fn run(&self) -> String {
        let Identity {
            run_id,
            replid2,
            second_offset,
            ..
        } = &self.server;
        admission::run(run_id, replid2, second_offset)
    }

    /// Every write fails with READONLY.
    pub(crate) fn set_readonly(&mut self, on: bool) {
        self.readonly = on;
    }

    /// Every write but DEL and PEXPIRE fails with OOM.
    pub(crate) fn set_out_of_memory(&mut self, on: bool) {
        self.out_of_memory = on;
    }

    /// Every lock that is held at `time`: name, entry, remaining time.
    pub(crate) fn locks(&self, time: u64) -> impl Iterator<Item = (&Name, &Entry, Duration)> {
        self.keys
            .locks
            .iter()
            .filter(move |(_, lock)| lock.lives(time))
            .map(move |(name, lock)| (name, &lock.entry, lock.left(time)))
    }

    #[cfg(test)]
    pub(crate) fn set_boot(&mut self, text: Option<String>) {
        self.keys.boot = text;
    }

    #[cfg(test)]
    pub(crate) fn set_open(&mut self, text: Option<String>) {
        self.keys.open = text;
    }

    #[cfg(test)]
    pub(crate) fn boot(&self) -> Option<&str> {
        self.keys.boot.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn open(&self) -> Option<&str> {
        self.keys.open.as_deref()
    }

    #[cfg(test)]
    pub(crate) fn set_counter(&mut self, name: &Name, counter: u64) {
        self.write_counter(0, name, counter);
    }

    /// What stands in `boot`.
    pub(crate) fn record(&self) -> Option<BootRecord> {
        self.keys.boot.as_ref()?.parse().ok()
    }

    /// Makes the current counters begin at this TIME.
    #[cfg(test)]
    pub(crate) fn set_begun(&mut self, time: u64) {
        self.keys.counters.entry(0).or_default().begun = Some(time);
    }

    fn handshake(&mut self, hello: &Handshake, time: u64) -> Answer {
        let Identity {
            run_id,
            replid2,
            second_offset,
            role,
            mode,
            eviction,
            version,
        } = &self.server;
        let server = Server {
            run: admission::run(run_id, replid2, second_offset),
            role: role.clone(),
            mode: mode.clone(),
            eviction: eviction.clone(),
            version: version.clone(),
        };
        let boot = self.keys.boot.as_deref();
        let old = boot.and_then(|text| text.parse::<BootRecord>().ok());
        let Some(mut record) = admission::meet(boot, &server, hello, self.rules) else {
            return Ok(Reply::Admission(admission::Reply::Met(Box::new(Meeting {
                stored: boot.map_or(Stored::Nothing, Stored::read),
                server,
                open: false,
            }))));
        };
        let same = old.as_ref().filter(|old| old.id == record.id);
        if !self.rules.hold(Rule::WitnessedByClients) && same.is_some() {
            let passed = time.saturating_sub(self.keys.met_at) / 1000;
            record.witnessed = record.witnessed.max(passed);
        }
        if same.is_none() {
            self.keys.met_at = time;
        }
        let before = same.map_or(0, |old| old.witnessed);
        let (z, after) = (record.terms.quarantine(), record.witnessed);
        let open = after >= z;
        let guard = record.guard(self.rules);
        let (stands, right) = (
            self.keys.open.is_some(),
            self.keys.open.as_ref() == Some(&guard),
        );
        // Closed first: a full server refuses SET, never DEL, and nobody may vote meanwhile.
        let close = stands && !(open && right);
        if close {
            self.may_delete()?;
            self.keys.open = None;
        }
        let changed = same.is_none_or(|old| {
            let witnessed = old.witnessed;
            BootRecord {
                witnessed,
                ..record.clone()
            } != *old
        });
        let grew = after > before && after.saturating_mul(100) >= before.saturating_mul(101);
        let unripe = before < z && self.rules.hold(Rule::GreaterW);
        let mut write = changed || unripe || grew;
        let set = open && !right;
        // After a first write a script is not stopped any more. A full server that votes goes on.
        if (write || set)
            && !close
            && let Err(fault) = self.may_write()
        {
            if set || !open {
                return Err(fault);
            }
            write = false;
        }
        if write {
            self.keys.boot = Some(record.to_string());
        } else if !self.rules.hold(Rule::GreaterW) {
            record.witnessed = before;
        }
        if set {
            self.keys.open = Some(guard);
        }
        Ok(Reply::Admission(admission::Reply::Met(Box::new(Meeting {
            server,
            stored: Stored::Record(record),
            open,
        }))))
    }

    fn acquire(
        &mut self,
        name: &Name,
        entry: &Entry,
        ttl: Duration,
        floor: u64,
        ahead: u64,
        time: u64,
    ) -> Answer {
        let counter = self.counter(name, time);
        let cap = time.saturating_add(ahead);
        let floor = match floor {
            floor if floor <= cap => floor,
            _ if self.rules.hold(Rule::ProposalCapped) => cap,
            _ => 0,
        };
        let token = self.larger(counter.saturating_add(1), floor);
        let holder = self.live(name, time);
        if token <= MAX_TOKEN {
            // SET is refused before the server looks whether the key is there.
            self.may_write()?;
        } else if holder.is_none() {
            return Err(Fault::Error("EXHAUSTED the counter is at 2^53 - 1".into()));
        }
        if let Some(lock) = holder {
            return Ok(Reply::Mutex(mutex::Reply::Held {
                remaining: Some(lock.left(time)),
                counter,
                holder: Some(lock.entry.text()),
            }));
        }
        self.hold(name, entry, ttl, time);
        let current = self.begin(time);
        self.write_counter(current, name, token);
        Ok(Reply::Mutex(mutex::Reply::Granted(token)))
    }

    fn raise(&mut self, name: &Name, entry: &Entry, token: u64, time: u64) -> Answer {
        if self
            .live(name, time)
            .is_none_or(|lock| lock.entry != *entry)
        {
            return Ok(Reply::Mutex(mutex::Reply::Lost));
        }
        let counter = self.counter(name, time);
        let raised = self.larger(counter, token);
        if raised != counter {
            self.may_write()?;
            let (current, _) = self.generations(time);
            self.write_counter(current, name, raised);
        }
        Ok(Reply::Mutex(mutex::Reply::Raised(raised)))
    }

    fn extend(&mut self, name: &Name, entry: &Entry, ttl: Duration, time: u64) -> Answer {
        let left = match self.live(name, time) {
            Some(lock) if lock.entry == *entry => lock.left(time),
            None if !self.rules.hold(Rule::NeverRecreate) => Duration::ZERO,
            _ => return Ok(Reply::Mutex(mutex::Reply::Lost)),
        };
        self.may_delete()?; // PEXPIRE too is allowed to a full server
        if ttl > left || !self.rules.hold(Rule::NeverShorten) {
            self.hold(name, entry, ttl, time);
        }
        Ok(Reply::Mutex(mutex::Reply::Extended))
    }

    fn release(&mut self, name: &Name, entry: &Entry, time: u64) -> Answer {
        if !self.rules.hold(Rule::DeleteFirst) {
            self.may_write()?;
        }
        if self
            .live(name, time)
            .is_none_or(|lock| lock.entry != *entry)
        {
            return Ok(Reply::Mutex(mutex::Reply::Released(false)));
        }
        self.may_delete()?;
        self.keys.locks.remove(name);
        Ok(Reply::Mutex(mutex::Reply::Released(true)))
    }

    fn evict(&mut self, name: &Name, time: u64) -> Answer {
        let held = self.live(name, time).is_some();
        if held {
            self.may_delete()?;
            self.keys.locks.remove(name);
        }
        Ok(Reply::Mutex(mutex::Reply::Evicted(held)))
    }

    fn admit(&mut self, admit: &Admit) -> Answer {
        let Some(record) = self.record().and_then(|r| admission::admit(&r, admit)) else {
            return Ok(Reply::Admission(admission::Reply::Admitted(false)));
        };
        self.may_write()?;
        self.keys.open = Some(record.guard(self.rules));
        self.keys.boot = Some(record.to_string());
        Ok(Reply::Admission(admission::Reply::Admitted(true)))
    }

    /// What a replica refuses: any write.
    fn may_delete(&self) -> Result<(), Fault> {
        if self.readonly || self.server.role != "master" {
            let text = "READONLY You can't write against a read only replica.";
            return Err(Fault::Error(text.into()));
        }
        Ok(())
    }

    /// What a full server refuses too: a write that may need memory.
    fn may_write(&self) -> Result<(), Fault> {
        self.may_delete()?;
        if self.out_of_memory {
            let text = "OOM command not allowed when used memory > 'maxmemory'.";
            return Err(Fault::Error(text.into()));
        }
        Ok(())
    }

    fn live(&self, name: &Name, time: u64) -> Option<&Lock> {
        self.keys.locks.get(name).filter(|lock| lock.lives(time))
    }

    fn hold(&mut self, name: &Name, entry: &Entry, ttl: Duration, time: u64) {
        let until = (time / 1000).saturating_add(ms(ttl));
        self.keys.locks.insert(
            name.clone(),
            Lock {
                entry: entry.clone(),
                until,
            },
        );
    }

    /// The keys of the counters that are written at `time`, and of those before them.
    fn generations(&self, time: u64) -> (u64, u64) {
        if self.rules.hold(Rule::RotateByAge) {
            (0, 1)
        } else {
            (time / WEEK_US, (time / WEEK_US).saturating_sub(1))
        }
    }

    fn counter(&self, name: &Name, time: u64) -> u64 {
        let (current, previous) = self.generations(time);
        let read = |key| {
            self.keys
                .counters
                .get(&key)
                .and_then(|g| g.counters.get(name))
                .copied()
        };
        self.larger(read(current).unwrap_or(0), read(previous).unwrap_or(0))
    }

    /// Moves counters that are older than a week back, and returns the key of the current ones.
    fn begin(&mut self, time: u64) -> u64 {
        let (current, previous) = self.generations(time);
        let begun = self.keys.counters.get(&current).and_then(|g| g.begun);
        let old = begun.is_some_and(|begun| time.saturating_sub(begun) > WEEK_US);
        if old
            && self.rules.hold(Rule::RotateByAge)
            && let Some(counters) = self.keys.counters.remove(&current)
        {
            self.keys.counters.insert(previous, counters);
        }
        self.keys
            .counters
            .entry(current)
            .or_default()
            .begun
            .get_or_insert(time);
        current
    }

    fn write_counter(&mut self, generation: u64, name: &Name, token: u64) {
        let written = if self.rules.hold(Rule::AllDigits) {
            token
        } else {
            fourteen_digits(token)
        };
        let generation = self.keys.counters.entry(generation).or_default();
        generation.counters.insert(name.clone(), written);
    }

    fn larger(&self, a: u64, b: u64) -> u64 {
        if self.rules.hold(Rule::NumericCounters) {
            a.max(b)
        } else if a.to_string() > b.to_string() {
            a
        } else {
            b
        }
    }
}

impl Lock {
    fn lives(&self, time: u64) -> bool {
        time / 1000 <= self.until
    }

    fn left(&self, time: u64) -> Duration {
        Duration::from_millis(self.until.saturating_sub(time / 1000))
    }
}

/// What is left of a number that Lua wrote by `tostring`: `%.14g`.
fn fourteen_digits(n: u64) -> u64 {
    let unit = 10_u64.pow(n.checked_ilog10().unwrap_or(0).saturating_sub(13));
    n.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::admission::{Mode, Terms, Vouch},
        owner::Label,
    };

    const GUARD: &str = "2 3 word 30000 5000 nonce";
    const TERMS: Terms = Terms {
        max_ttl: Duration::from_secs(30),
        margin: Duration::from_secs(5),
    };
    const Z: u64 = 35_300;
    /// A TIME in the middle of a week and of a ms.
    const T: u64 = 1_760_000_000_000_500;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn entry(owner: u128) -> Entry {
        Entry::new(owner, &Label::new("test").unwrap())
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn acquire(owner: u128, ttl: u64, floor: u64) -> Command {
        Command::Mutex(mutex::Command::Acquire {
            name: name("a"),
            entry: entry(owner),
            ttl: ms(ttl),
            floor,
            max_ttl: TERMS.max_ttl,
        })
    }

    fn raise(owner: u128, token: u64) -> Command {
        Command::Mutex(mutex::Command::Raise {
            name: name("a"),
            entry: entry(owner),
            token,
            max_ttl: TERMS.max_ttl,
        })
    }

    fn extend(owner: u128, ttl: u64) -> Command {
        Command::Mutex(mutex::Command::Extend {
            name: name("a"),
            entry: entry(owner),
            ttl: ms(ttl),
        })
    }

    fn release(owner: u128) -> Command {
        Command::Mutex(mutex::Command::Release {
            name: name("a"),
            entry: entry(owner),
        })
    }

    fn hello() -> Handshake {
        Handshake {
            masters: 3,
            list: "word".into(),
            terms: TERMS,
            vouch: Vouch::Stranger,
            used: false,
            known: None,
            witnessed: 0,
            nonce: "nonce".into(),
        }
    }

    /// What stands after a handshake, and whether `open` does.
    fn meet(store: &mut Store, hello: Handshake, time: u64) -> (BootRecord, bool) {
        match store.apply(
            &Command::Admission(admission::Command::Handshake(hello)),
            "",
            time,
        ) {
            Ok(Reply::Admission(admission::Reply::Met(meeting))) => {
                (meeting.stored.record().unwrap().clone(), meeting.open)
            }
            other => panic!("{other:?}"),
        }
    }

    /// A hello of one who read this record.
    fn knowing(record: &BootRecord, witnessed: u64) -> Handshake {
        Handshake {
            known: Some((record.run.clone(), record.id.clone())),
            witnessed,
            ..hello()
        }
    }

    /// A store that votes.
    fn voting(rules: Rules) -> Store {
        let mut store = Store::new(Identity::master("run"), rules);
        let (record, _) = meet(&mut store, hello(), T);
        let admit = Admit {
            masters: 3,
            list: record.list,
            run: record.run,
            id: record.id,
            terms: TERMS,
            witnessed: Z,
            mode: Mode::New,
        };
        let admitted = store.apply(&Command::Admission(admission::Command::Admit(admit)), "", T);
        assert_eq!(
            admitted,
            Ok(Reply::Admission(admission::Reply::Admitted(true)))
        );
        store
    }

    fn ask(store: &mut Store, command: &Command, time: u64) -> Reply {
        store.apply(command, GUARD, time).unwrap()
    }

    fn counter(store: &mut Store, time: u64) -> u64 {
        match ask(
            store,
            &Command::Mutex(mutex::Command::Inspect { name: name("a") }),
            time,
        ) {
            Reply::Mutex(mutex::Reply::Inspected { counter, .. }) => counter,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lock_is_held_to_the_end_of_its_last_ms() {
        let store = &mut voting(Rules::ALL);
        assert_eq!(
            ask(store, &acquire(1, 10, 0), T),
            Reply::Mutex(mutex::Reply::Granted(1))
        );
        let held = |ms| {
            Reply::Mutex(mutex::Reply::Held {
                remaining: Some(Duration::from_millis(ms)),
                counter: 1,
                holder: Some(entry(1).text()),
            })
        };
        assert_eq!(ask(store, &acquire(2, 10, 0), T), held(10));
        assert_eq!(ask(store, &acquire(2, 10, 0), T + 10_000), held(0));
        assert_eq!(ask(store, &acquire(2, 10, 0), T + 10_499), held(0));
        assert_eq!(store.locks(T + 10_499).count(), 1);
        assert_eq!(store.locks(T + 10_500).count(), 0);
        assert_eq!(
            ask(store, &extend(1, 10), T + 10_500),
            Reply::Mutex(mutex::Reply::Lost)
        );
        assert_eq!(
            ask(store, &acquire(2, 10, 0), T + 10_500),
            Reply::Mutex(mutex::Reply::Granted(2))
        );
    }

    #[test]
    fn an_extension_keeps_the_longer_of_both() {
        let store = &mut voting(Rules::ALL);
        let left = |store: &Store| store.locks(T).next().unwrap().2;
        ask(store, &acquire(1, 100, 0), T);
        for (ttl, wanted) in [(99, 100), (100, 100), (101, 101)] {
            assert_eq!(
                ask(store, &extend(1, ttl), T),
                Reply::Mutex(mutex::Reply::Extended)
            );
            assert_eq!(left(store), ms(wanted));
        }
    }

    #[test]
    fn a_floor_is_capped_at_time_and_max_ttl() {
        for over in [0, 1, u64::MAX - T - 30_000_000] {
            let store = &mut voting(Rules::ALL);
            let cap = T + 30_000_000;
            assert_eq!(
                ask(store, &acquire(1, 10, cap + over), T),
                Reply::Mutex(mutex::Reply::Granted(cap))
            );
        }
    }

    #[test]
    fn a_raise_is_capped_a_minute_further() {
        let cap = T + 90_000_000;
        for (token, raised) in [
            (cap - 1, cap - 1),
            (cap, cap),
            (cap + 1, cap),
            (MAX_TOKEN, cap),
        ] {
            let store = &mut voting(Rules::ALL);
            ask(store, &acquire(1, 10, 0), T);
            assert_eq!(
                ask(store, &raise(1, token), T),
                Reply::Mutex(mutex::Reply::Raised(raised))
            );
        }
        // What stands there already is never lowered.
        let store = &mut voting(Rules::ALL);
        ask(store, &acquire(1, 10, 0), T);
        store.set_counter(&name("a"), 1 << 53);
        assert_eq!(
            ask(store, &raise(1, 9), T),
            Reply::Mutex(mutex::Reply::Raised(1 << 53))
        );
    }

    #[test]
    fn w_is_written_when_it_has_grown_by_a_hundredth() {
        for (x, written) in [(35_652, Z), (35_653, 35_653)] {
            let store = &mut voting(Rules::ALL);
            let (record, _) = meet(store, hello(), T);
            let (record, open) = meet(store, knowing(&record, x), T);
            assert_eq!((record.witnessed, open), (x, true));
            assert_eq!(store.record().unwrap().witnessed, written);
        }
    }

    #[test]
    fn a_full_server_is_closed_and_not_opened() {
        let store = &mut voting(Rules::ALL);
        let (record, _) = meet(store, hello(), T);
        let gone = BootRecord {
            run: "other/00000000/-1".into(),
            ..record
        };
        store.set_boot(Some(gone.to_string()));
        store.set_out_of_memory(true);
        // A server stops no script after its first write, and DEL is one.
        assert_eq!(meet(store, hello(), T).0.witnessed, 0);
        assert_eq!(store.open(), None);
        store.set_boot(Some(gone.to_string()));
        let met = store.apply(
            &Command::Admission(admission::Command::Handshake(hello())),
            "",
            T,
        );
        assert!(matches!(met, Err(Fault::Error(text)) if text.starts_with("OOM")));
        assert_eq!(store.boot(), Some(&*gone.to_string()));
    }

    #[test]
    fn counters_rotate_after_a_week_to_the_microsecond() {
        for (age, rotated) in [(WEEK_US, false), (WEEK_US + 1, true)] {
            let store = &mut voting(Rules::ALL);
            ask(store, &acquire(1, 10, 0), T);
            ask(store, &acquire(1, 10, 0), T + age);
            assert_eq!(store.keys.counters.len() == 2, rotated, "{age}");
            assert_eq!(counter(store, T + age), 2);
        }
    }

    #[test]
    fn a_restart_forgets_and_a_snapshot_brings_back_what_may_not_vote() {
        let store = &mut voting(Rules::ALL);
        ask(store, &acquire(1, 60_000, 0), T);
        let snapshot = store.snapshot();
        store.restart("another");
        assert_eq!(
            store.apply(&extend(1, 10), GUARD, T),
            Err(Fault::NotAdmitted)
        );
        store.restore(snapshot);
        assert_eq!(store.locks(T).count(), 1);
        assert!(
            store.apply(&extend(1, 10), GUARD, T).is_ok(),
            "`open` came back too"
        );
        let (record, open) = meet(store, hello(), T);
        assert_eq!((record.witnessed, open), (0, false));
        assert_eq!(
            store.apply(&extend(1, 10), GUARD, T),
            Err(Fault::NotAdmitted)
        );
    }

    #[test]
    fn a_read_only_server_writes_nothing() {
        let store = &mut voting(Rules::ALL);
        ask(store, &acquire(1, 100, 0), T);
        store.set_readonly(true);
        for command in [acquire(2, 10, 0), extend(1, 10), raise(1, 9), release(1)] {
            match store.apply(&command, GUARD, T) {
                Err(Fault::Error(text)) => assert!(text.starts_with("READONLY"), "{text}"),
                other => panic!("{command:?}: {other:?}"),
            }
        }
        assert!(meet(store, hello(), T).1, "nothing to write");
    }

    /// What each trap of §10 does once its rule is off.
    #[cfg(feature = "test-util")]
    mod without {
        use super::*;

        fn store(rule: Rule) -> Store {
            voting(Rules::without(rule))
        }

        #[test]
        fn witnessed_by_clients() {
            let rules = Rules::without(Rule::WitnessedByClients);
            let store = &mut Store::new(Identity::master("run"), rules);
            meet(store, hello(), T);
            let (_, open) = meet(store, hello(), T + (Z - 1) * 1000);
            assert!(!open);
            let (record, open) = meet(store, hello(), T + Z * 1000);
            assert_eq!((record.witnessed, open), (Z, true), "its own clock went on");
        }

        #[test]
        fn greater_w() {
            let store = &mut store(Rule::GreaterW);
            let (record, _) = meet(store, hello(), T);
            let (answered, _) = meet(store, knowing(&record, Z + 300), T);
            assert_eq!(answered.witnessed, Z, "as it is stored");
            let (answered, _) = meet(store, knowing(&record, Z + 400), T);
            assert_eq!(answered.witnessed, Z + 400);
        }

        #[test]
        fn margin_in_record() {
            let store = &mut Store::new(
                Identity::master("run"),
                Rules::without(Rule::MarginInRecord),
            );
            let (record, _) = meet(store, hello(), T);
            let terms = Terms {
                margin: Duration::ZERO,
                ..TERMS
            };
            let less = Handshake {
                terms,
                ..knowing(&record, 30_300)
            };
            assert!(meet(store, less, T).1, "a client without M opens it");
        }

        #[test]
        fn own_guard() {
            let store = &mut Store::new(Identity::master("run"), Rules::without(Rule::OwnGuard));
            let (record, _) = meet(store, hello(), T);
            meet(store, knowing(&record, Z), T);
            assert_eq!(store.open(), Some("2 3 word 30000 5000 "), "no id");
        }

        #[test]
        fn never_shorten() {
            let store = &mut store(Rule::NeverShorten);
            ask(store, &acquire(1, 100, 0), T);
            ask(store, &extend(1, 10), T);
            assert_eq!(store.locks(T).next().unwrap().2, ms(10));
        }

        #[test]
        fn never_recreate() {
            let store = &mut store(Rule::NeverRecreate);
            assert_eq!(
                ask(store, &extend(1, 10), T),
                Reply::Mutex(mutex::Reply::Extended)
            );
            assert_eq!(store.locks(T).count(), 1);
            assert_eq!(
                ask(store, &extend(2, 10), T),
                Reply::Mutex(mutex::Reply::Lost)
            );
        }

        #[test]
        fn guard() {
            let store = &mut store(Rule::Guard);
            ask(store, &acquire(1, 10, 0), T);
            assert_eq!(
                store.apply(&extend(1, 20), "another", T),
                Ok(Reply::Mutex(mutex::Reply::Extended))
            );
            assert_eq!(
                store.apply(&acquire(1, 20, 0), "another", T),
                Err(Fault::NotAdmitted)
            );
        }

        #[test]
        fn proposal_capped() {
            let store = &mut store(Rule::ProposalCapped);
            assert_eq!(
                ask(store, &acquire(1, 10, T + 30_000_001), T),
                Reply::Mutex(mutex::Reply::Granted(1))
            );
        }

        #[test]
        fn numeric_counters() {
            let store = &mut store(Rule::NumericCounters);
            ask(store, &acquire(1, 10, 9), T);
            assert_eq!(
                ask(store, &raise(1, 10), T),
                Reply::Mutex(mutex::Reply::Raised(9))
            );
        }

        #[test]
        fn all_digits() {
            let store = &mut store(Rule::AllDigits);
            assert_eq!(
                ask(store, &acquire(1, 10, T + 49), T),
                Reply::Mutex(mutex::Reply::Granted(T + 49))
            );
            assert_eq!(counter(store, T), T, "1.7600000000005e+15");
            assert_eq!(fourteen_digits(99_999_999_999_999), 99_999_999_999_999);
            assert_eq!(fourteen_digits(999_999_999_999_996), 1_000_000_000_000_000);
            assert_eq!(fourteen_digits(0), 0);
        }

        #[test]
        fn rotate_by_age() {
            let edge = T / WEEK_US * WEEK_US;
            for rules in [Rules::ALL, Rules::without(Rule::RotateByAge)] {
                let store = &mut voting(rules);
                ask(store, &acquire(1, 10, 50), edge);
                ask(store, &release(1), edge);
                let lost = !rules.hold(Rule::RotateByAge);
                let wanted = if lost { 0 } else { 50 };
                assert_eq!(
                    counter(store, edge - 2_000_000),
                    wanted,
                    "the clock went 2 s back"
                );
                assert_eq!(counter(store, edge + WEEK_US), 50);
            }
        }

        #[test]
        fn delete_first() {
            let store = &mut store(Rule::DeleteFirst);
            ask(store, &acquire(1, 10, 0), T);
            store.set_out_of_memory(true);
            assert!(store.apply(&release(1), GUARD, T).is_err());
        }
    }
}
