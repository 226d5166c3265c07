//! The library on virtual time: real cores and real stores, with a simulated network between them. One seed decides
//! everything that goes wrong.
//!
//! A schedule runs several clients against several servers through faults of all kinds. Then the faults end, and the
//! schedule checks that every client makes progress and that nothing is left behind. It uses no runtime and no wall
//! clock, so a seed gives the same schedule on every machine. [`run`] takes the [`Rules`]. With one of them off, the
//! simulation has to find what the trap of protocol §10 describes.

mod channels;
mod checks;
mod clients;
mod clocks;
mod dice;
mod faults;
mod invariants;
mod logins;
mod network;
mod profile;
mod script;
mod server;
mod workload;
mod world;

use std::fmt;

pub use self::profile::Profile;
use self::{invariants::Violation, world::World};
pub use crate::base::rules::{Rule, Rules};

/// Counts of what happened in one schedule, or in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Schedules.
    pub schedules: u64,
    /// Instants at which something happened.
    pub events: u64,
    /// Commands that servers executed or refused.
    pub commands: u64,
    /// Scripts that executed several of them.
    pub batches: u64,
    /// Commands in these scripts.
    pub batched: u64,
    /// Faults.
    pub faults: u64,
    /// Restarts of servers.
    pub restarts: u64,
    /// Leases that were granted.
    pub granted: u64,
    /// Calls that were refused because another holds the lock.
    pub refused: u64,
    /// Calls that ended because too few nodes answered.
    pub errors: u64,
    /// Calls that ended because of a quarantine.
    pub quarantined: u64,
    /// Calls that were granted too late.
    pub too_slow: u64,
    /// Calls whose future was dropped.
    pub cancelled: u64,
    /// The most restarts of servers that one lease has outlived.
    pub outlived: u64,
    /// Extensions that a holder asked for itself.
    pub extended: u64,
    /// Releases that were confirmed.
    pub released: u64,
    /// Leases that were over before their holder gave them up.
    pub lost: u64,
    /// Counters that a node raised.
    pub raises: u64,
    /// Locks that were put back on a node.
    pub repaired: u64,
    /// Commands that the guard refused.
    pub not_admitted: u64,
    /// Connections ended by CLIENT KILL.
    pub kills: u64,
    /// Commands that were withdrawn before they were written.
    pub withdrawn: u64,
    /// Evictions by operators.
    pub evicted: u64,
    /// Bootstraps that succeeded.
    pub bootstrapped: u64,
    /// Grants of a name that somebody else held, where exclusion is not promised.
    pub overlaps: u64,
    /// Writes that a store with a check of tokens accepted.
    pub written: u64,
    /// Reads and writes that such a store refused.
    pub fenced_off: u64,
    /// Writes that a store without a check of tokens accepted over others that their holders had not read.
    pub lost_unfenced: u64,
    /// Records that a client with a wrong configuration made or changed.
    pub strange: u64,
    /// How often it was checked that the fleet goes on voting.
    pub watched: u64,
    /// Processes that ended because of a crash loop.
    pub crashes: u64,
    /// Hand-overs of a node to a waiter.
    pub handed_over: u64,
    /// Calls of a node to a waiter.
    pub called: u64,
    /// Grants that were given back to an earlier waiter.
    pub yields: u64,
    /// Calls that ended because another limit is in force.
    pub conflicts: u64,
    /// Limits that were changed.
    pub resized: u64,
    /// Leases of several slots.
    pub gathered: u64,
    /// Units of rate limits that were used.
    pub units: u64,
    /// Leases of readers.
    pub shared: u64,
    /// Writers that became readers.
    pub downgraded: u64,
    /// Leases of several names.
    pub sets: u64,
    /// Logins that were renewed.
    pub logins: u64,
    /// Connections that a server ended because their login had expired.
    pub expired_logins: u64,
    /// The most readers of one lock at once.
    pub most_readers: usize,
    /// The most slots of one semaphore that were held at once.
    pub most_slots: usize,
    /// The longest time in ms for which a lock had no holder although a caller waited for it, while there were no
    /// faults.
    pub longest_stall: u64,
    /// The longest time in ms for which readers, or writers, waited for a lock and none of them got it although there
    /// was no fault.
    pub longest_kept_out: u64,
    /// The most writers that got a lock while a writer that had asked before them still waited, where that is checked.
    pub most_overtaken: u64,
    /// The most requests that one client had in flight to one server.
    pub most_in_flight: usize,
}

impl Stats {
    /// Adds the counts of another.
    pub fn add(&mut self, other: &Self) {
        let Self {
            schedules,
            events,
            commands,
            batches,
            batched,
            faults,
            restarts,
            granted,
            refused,
            errors,
            quarantined,
            too_slow,
            cancelled,
            outlived,
            extended,
            released,
            lost,
            raises,
            repaired,
            not_admitted,
            kills,
            withdrawn,
            evicted,
            bootstrapped,
            overlaps,
            written,
            fenced_off,
            lost_unfenced,
            strange,
            watched,
            crashes,
            handed_over,
            called,
            yields,
            conflicts,
            resized,
            gathered,
            units,
            shared,
            downgraded,
            sets,
            logins,
            expired_logins,
            most_readers,
            most_slots,
            longest_stall,
            longest_kept_out,
            most_overtaken,
            most_in_flight,
        } = other;
        self.schedules += schedules;
        self.events += events;
        self.commands += commands;
        self.batches += batches;
        self.batched += batched;
        self.faults += faults;
        self.restarts += restarts;
        self.granted += granted;
        self.refused += refused;
        self.errors += errors;
        self.quarantined += quarantined;
        self.too_slow += too_slow;
        self.cancelled += cancelled;
        self.outlived = self.outlived.max(*outlived);
        self.extended += extended;
        self.released += released;
        self.lost += lost;
        self.raises += raises;
        self.repaired += repaired;
        self.not_admitted += not_admitted;
        self.kills += kills;
        self.withdrawn += withdrawn;
        self.evicted += evicted;
        self.bootstrapped += bootstrapped;
        self.overlaps += overlaps;
        self.written += written;
        self.fenced_off += fenced_off;
        self.lost_unfenced += lost_unfenced;
        self.strange += strange;
        self.watched += watched;
        self.crashes += crashes;
        self.handed_over += handed_over;
        self.called += called;
        self.yields += yields;
        self.conflicts += conflicts;
        self.resized += resized;
        self.gathered += gathered;
        self.units += units;
        self.shared += shared;
        self.downgraded += downgraded;
        self.sets += sets;
        self.logins += logins;
        self.expired_logins += expired_logins;
        self.most_readers = self.most_readers.max(*most_readers);
        self.most_slots = self.most_slots.max(*most_slots);
        self.longest_stall = self.longest_stall.max(*longest_stall);
        self.longest_kept_out = self.longest_kept_out.max(*longest_kept_out);
        self.most_overtaken = self.most_overtaken.max(*most_overtaken);
        self.most_in_flight = self.most_in_flight.max(*most_in_flight);
    }
}

/// A schedule in which an invariant did not hold. Its `Display` names the invariant and the operations, and tells how
/// to replay the schedule.
#[derive(Clone, Debug)]
pub struct Failure {
    seed: u64,
    profile: Profile,
    rules: Rules,
    violation: Violation,
}

impl Failure {
    /// The invariant that did not hold.
    pub fn invariant(&self) -> &'static str {
        self.violation.invariant
    }

    /// A description of what happened, in one line.
    pub fn what(&self) -> &str {
        &self.violation.what
    }

    /// The shell command that replays it, with a trace.
    pub fn replay(&self) -> String {
        let off = Rule::EVERY.into_iter().find(|rule| !self.rules.hold(*rule));
        let off = off.map(|rule| format!(":{rule:?}")).unwrap_or_default();
        format!(
            "QUORATE_SIM_REPLAY={:?}:{}{off} cargo test --features test-util --test simulation \
             replay -- --nocapture",
            self.profile, self.seed
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.violation.invariant, self.violation.what)?;
        for operation in &self.violation.operations {
            writeln!(f, "  {operation}")?;
        }
        writeln!(f, "  profile {:?}, seed {}", self.profile, self.seed)?;
        write!(f, "  replay: {}", self.replay())
    }
}

impl std::error::Error for Failure {}

/// Runs one schedule.
///
/// # Errors
/// The first invariant that did not hold.
pub fn run(seed: u64, profile: Profile, rules: Rules) -> Result<Stats, Failure> {
    simulate(seed, profile, rules, false).0
}

/// Runs one schedule and returns a trace of everything that happened.
pub fn replay(seed: u64, profile: Profile, rules: Rules) -> (Result<Stats, Failure>, Vec<String>) {
    simulate(seed, profile, rules, true)
}

fn simulate(
    seed: u64,
    profile: Profile,
    rules: Rules,
    trace: bool,
) -> (Result<Stats, Failure>, Vec<String>) {
    let mut world = World::new(seed, profile, rules, trace);
    let outcome = world.run();
    let trace = world.take_trace();
    let stats = Stats {
        schedules: 1,
        ..world.stats
    };
    (
        outcome.map(|()| stats).map_err(|violation| Failure {
            seed,
            profile,
            rules,
            violation,
        }),
        trace,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_the_schedule() {
        for profile in Profile::ALL {
            let (first, second) = (
                replay(3, profile, Rules::ALL),
                replay(3, profile, Rules::ALL),
            );
            assert_eq!(first.1, second.1, "{profile:?}");
            assert!(first.1.len() > 100, "{profile:?}: {} lines", first.1.len());
        }
    }
}
