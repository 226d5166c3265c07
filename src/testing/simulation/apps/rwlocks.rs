//! What programs do with read-write locks: they read beside others or write alone, wait or do not, and step down.

use std::time::Duration;

use super::{Call, Demand, Stage, Thing, nanos, some};
use crate::{
    FencingToken, Lease, RwLock,
    engine::Engine,
    testing::simulation::{
        invariants::{Held, Operation, Violation, exclusion::Share, overtaken},
        profile::MS,
        world::World,
    },
};

const NAME: &str = "rwlock";

impl World {
    pub(super) fn new_rwlock(&self, c: usize, engine: &Engine) -> Option<RwLock> {
        self.plan.rwlocks?;
        let max_ttl = self.terms_of(c).max_ttl;
        Some(RwLock::new(engine.clone(), NAME.into(), max_ttl))
    }

    pub(super) fn ask_to_read_or_write(
        &mut self,
        c: usize,
        t: usize,
        mut lock: RwLock,
        ttl: Duration,
    ) {
        let Some(rwlocks) = self.plan.rwlocks else {
            return;
        };
        if let Some(delay) = self.lock_delay(c, ttl) {
            lock = lock.lock_delay(delay);
        }
        let hold = self.hold(ttl);
        let (first, others) = rwlocks.reads;
        let reads = self.dice.percent(if c == 0 { first } else { others });
        let wait = Duration::from_millis(self.dice.range(20, 400));
        let (what, call, bound): (_, Call<Option<Lease>>, _) = match self.dice.below(10) {
            n if n <= 4 || self.plan.patient => match reads {
                true => ("read", some(lock.read()), None),
                false => ("write", some(lock.write()), None),
            },
            5..=6 => {
                let lock = lock.wait_timeout(wait);
                match reads {
                    true => ("read within", some(lock.read()), Some(nanos(wait))),
                    false => ("write within", some(lock.write()), Some(nanos(wait))),
                }
            }
            _ => {
                let bound = Some(self.one_attempt());
                match reads {
                    true => ("try_read", Box::pin(lock.try_read()), bound),
                    false => ("try_write", Box::pin(lock.try_write()), bound),
                }
            }
        };
        self.ask(c, t, Demand::new(what, NAME, call, bound), hold, false);
    }

    /// After the faults.
    pub(super) fn probe_rwlock(&mut self, c: usize) -> bool {
        let Some(lock) = self.clients[c].tasks[0].rwlock.clone() else {
            return false;
        };
        let lock = lock.ttl(Duration::from_millis(self.plan.ttl.1));
        let lock = lock.wait_timeout(Duration::from_secs(5));
        let (what, call) = match c % 2 {
            0 => ("write (probe)", some(lock.write())),
            _ => ("read (probe)", some(lock.read())),
        };
        let bound = Some(6_000 * MS);
        self.ask(c, 0, Demand::new(what, NAME, call, bound), 5 * MS, true);
        true
    }

    /// As what it was granted. One of its side has got in.
    pub(super) fn share_of(&mut self, op: &Operation) -> Share {
        let share = match op.what {
            "read" | "read within" | "try_read" | "read (probe)" => Share::Reader,
            _ => Share::Alone,
        };
        if self.plan.rwlocks.is_some() {
            self.checks.progress(side(share));
        }
        share
    }

    /// A writer was granted it: how often others who wait were overtaken.
    pub(super) fn overtakes(&mut self, op: &Operation, share: Share) -> Held {
        let most = self.plan.rwlocks.and_then(|rwlocks| rwlocks.overtaken);
        let (Some(most), Share::Alone) = (most, share) else {
            return Ok(());
        };
        for task in self.clients.iter_mut().flat_map(|client| &mut client.tasks) {
            if let Stage::Asking { pending, .. } = &mut task.stage
                && pending.op.asked_at < op.asked_at
            {
                pending.overtaken += 1;
                overtaken::check(&pending.op, op, pending.overtaken, most)?;
                self.stats.most_overtaken = self.stats.most_overtaken.max(pending.overtaken);
            }
        }
        Ok(())
    }

    /// One more reader.
    pub(super) fn reads(
        &mut self,
        op: &Operation,
        token: FencingToken,
        strict: bool,
    ) -> Result<Thing, Violation> {
        if strict {
            self.checks.granted_to_read(op)?;
        }
        self.stats.shared += 1;
        let readers = self.checks.leases.iter();
        let readers = readers.filter(|lease| lease.share == Share::Reader).count();
        self.stats.most_readers = self.stats.most_readers.max(readers);
        Ok(Thing {
            name: op.name.clone(),
            token,
            read: None,
        })
    }

    /// A writer may become a reader. It has written before.
    pub(super) fn step_down_or_wait(
        &mut self,
        c: usize,
        t: usize,
        lease: &Lease,
        id: u64,
        things: &mut [Thing],
    ) -> Held {
        let often = self.plan.rwlocks.map_or(0, |rwlocks| rwlocks.downgrades);
        let writes = things.iter().any(|thing| thing.read.is_some());
        if often == 0 || !writes || !self.dice.percent(often) {
            return Ok(());
        }
        self.update(c, things)?;
        self.checks.share(id);
        self.stats.downgraded += 1;
        let op = self.operation(c, "downgrade", NAME);
        if self.tracing() {
            self.trace(format!("c{c}: {op}"));
        }
        let bound = Some(self.one_request());
        let pending = self.pending(c, t, op, Box::pin(lease.downgrade()), bound);
        self.clients[c].tasks[t].extending.push(pending);
        Ok(())
    }

    /// Where somebody waits for what nobody has, for how long that goes on; and for how long nobody of those gets in who
    /// wait to read, or to write, whoever has it meanwhile.
    pub(super) fn look_for_idle_rwlocks(&mut self, quiet: u64, bound: u64) -> Held {
        let Some(rwlocks) = self.plan.rwlocks else {
            return Ok(());
        };
        let [reads, writes] = ["read", "write"].map(|what| self.waiting_for(what, NAME));
        let is_held = self.checks.leases.iter().any(|lease| lease.op.name == NAME);
        let waits = reads.clone().or(writes.clone()).filter(|_| !is_held);
        let stall = self.checks.stalls.entry(NAME.into()).or_default();
        stall.look(self.now, waits, quiet, bound)?;
        self.stats.longest_stall = self.stats.longest_stall.max(stall.longest / MS);
        for (share, waits) in [(Share::Reader, reads), (Share::Alone, writes)] {
            let stall = self.checks.stalls.entry(side(share).into()).or_default();
            stall.look(self.now, waits, quiet, rwlocks.kept_out)?;
            let longest = stall.longest / MS;
            self.stats.longest_kept_out = self.stats.longest_kept_out.max(longest);
        }
        Ok(())
    }
}

/// Those who read, or those who write.
fn side(share: Share) -> &'static str {
    match share {
        Share::Reader => "rwlock (readers)",
        Share::Alone => "rwlock (writers)",
    }
}
