//! The clients' programs: they lock, try, hold, extend, release, drop, abandon, and drop futures. They use the same
//! types as users of the library.
//!
//! Each primitive has a file here with its programs. For all primitives except the mutex, the file also has their
//! schedules and the checks of nodes' answers. A primitive is named in the list of profiles, and where this file
//! chooses between primitives.

pub(super) mod limits;
mod mutexes;
pub(super) mod rwlocks;
pub(super) mod several;
pub(super) mod slots;

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use super::{
    checks::parts_of,
    invariants::{
        Held, Operation, Violation, answers, endurance, exclusion::Share, progress, refusals,
        updates::Read,
    },
    profile::{Fault, MS, Start, US},
    script::Act,
    world::{What, World},
};
use crate::{
    Error, FencingToken, Lease, Mutex, RateLimiter, Renewal, RwLock, Semaphore,
    base::majority::majority,
    engine::{Engine, Event, patience},
    node::admission::Mode,
};

type Call<T> = Pin<Box<dyn Future<Output = Result<T, Error>>>>;

/// A call that is not answered yet.
struct Pending<T> {
    op: Operation,
    call: Call<T>,
    id: u64,
    bound: Option<u64>,
    /// For how long its process had stood still in total when the call was made.
    paused: u64,
    /// How many writers that asked later were granted the lock that it waits for.
    overtaken: u64,
}

enum Stage {
    Idle,
    Asking {
        pending: Pending<Option<Lease>>,
        hold: u64,
        must: bool,
    },
    Holding {
        lease: Lease,
        id: u64,
        until: u64,
        must: bool,
        things: Vec<Thing>,
    },
    Releasing {
        pending: Pending<()>,
        must: bool,
    },
    Evicting(Pending<bool>),
    Spending(Pending<limits::Spending>),
    Operating(Pending<()>),
}

/// One lock or slot of a lease.
struct Thing {
    name: String,
    token: FencingToken,
    /// The number of updates that the stores had. `None`: the task writes nothing to them for this lock.
    read: Option<Read>,
}

/// One task of a program.
pub(crate) struct Task {
    mutexes: Vec<Mutex>,
    /// Set if the task asks for slots instead of locks.
    semaphore: Option<Semaphore>,
    /// If the task asks for units instead of locks: its limits and their limiters.
    limiters: Vec<(u32, RateLimiter)>,
    /// Set if the task reads or writes instead of locking.
    rwlock: Option<RwLock>,
    stage: Stage,
    extending: Vec<Pending<()>>,
    timer: u64,
}

/// The locks or slots of a grant, one by one.
fn parts(op: &Operation, lease: &Lease) -> Vec<(Operation, FencingToken)> {
    if lease.slots().is_empty() {
        let part = |name: &str| Operation {
            name: name.to_owned(),
            token: Some(lease.token().as_u64()),
            ..op.clone()
        };
        let names = parts_of(&op.name);
        return names.map(|name| (part(name), lease.token())).collect();
    }
    let part = |(slot, token): (&u32, FencingToken)| {
        let part = Operation {
            name: format!("{}/{slot}", op.name),
            token: Some(token.as_u64()),
            ..op.clone()
        };
        (part, token)
    };
    lease.slots().iter().zip(lease.tokens()).map(part).collect()
}

fn some(call: impl Future<Output = Result<Lease, Error>> + 'static) -> Call<Option<Lease>> {
    Box::pin(async move { call.await.map(Some) })
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Task {
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Idle) && self.extending.is_empty()
    }

    fn is_pending(&self, call: u64) -> Option<(&Operation, Option<u64>, u64)> {
        fn of<T>(p: &Pending<T>) -> (u64, &Operation, Option<u64>, u64) {
            (p.id, &p.op, p.bound, p.paused)
        }
        let stage = match &self.stage {
            Stage::Asking { pending, .. } => Some(of(pending)),
            Stage::Releasing { pending, .. } | Stage::Operating(pending) => Some(of(pending)),
            Stage::Evicting(pending) => Some(of(pending)),
            Stage::Spending(pending) => Some(of(pending)),
            Stage::Idle | Stage::Holding { .. } => None,
        };
        let all = stage.into_iter().chain(self.extending.iter().map(of));
        all.into_iter()
            .find(|(id, ..)| *id == call)
            .map(|(_, op, bound, paused)| (op, bound, paused))
    }

    fn waiting(&self) -> Option<&Operation> {
        match &self.stage {
            Stage::Idle => self.extending.first().map(|p| &p.op),
            Stage::Asking { pending, .. } => Some(&pending.op),
            Stage::Releasing { pending, .. } | Stage::Operating(pending) => Some(&pending.op),
            Stage::Evicting(pending) => Some(&pending.op),
            Stage::Spending(pending) => Some(&pending.op),
            Stage::Holding { .. } => None,
        }
    }
}

fn poll<T>(call: &mut Call<T>) -> Option<Result<T, Error>> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}

/// A task's call.
struct Demand<'a> {
    /// The name of the call, as traces show it.
    what: &'static str,
    name: &'a str,
    call: Call<Option<Lease>>,
    /// The longest that the call may take, in ns.
    bound: Option<u64>,
}

impl<'a> Demand<'a> {
    fn new(
        what: &'static str,
        name: &'a str,
        call: Call<Option<Lease>>,
        bound: Option<u64>,
    ) -> Self {
        Self {
            what,
            name,
            call,
            bound,
        }
    }
}

impl World {
    pub(crate) fn new_task(&mut self, c: usize, engine: &Engine) -> Task {
        let names = (0..self.plan.names).map(|n| format!("lock-{n}"));
        let max_ttl = self.terms_of(c).max_ttl;
        let mutexes = names
            .map(|name| Mutex::new(engine.clone(), name.into(), max_ttl))
            .collect();
        Task {
            mutexes,
            semaphore: self.new_semaphore(c, engine),
            limiters: self.new_limiters(c, engine),
            rwlock: self.new_rwlock(c, engine),
            stage: Stage::Idle,
            extending: Vec::new(),
            timer: 0,
        }
    }

    pub(crate) fn begin_client(&mut self, c: usize) {
        self.at(self.now, What::Wake(c, 0));
        if let Some((shortest, longest)) = self.plan.clients[c].lives {
            let at = self.now + self.dice.range(shortest, longest);
            self.at(at, What::Crash(c, self.clients[c].incarnation));
        }
        for t in 0..self.clients[c].tasks.len() {
            let wait = self.dice.range(0, 30 * MS);
            self.set_timer(c, t, wait);
        }
        if self.dice.percent(50) && !self.clients[c].tasks.is_empty() {
            self.connect(c);
        }
    }

    fn set_timer(&mut self, c: usize, t: usize, wait: u64) {
        let incarnation = self.clients[c].incarnation;
        let task = &mut self.clients[c].tasks[t];
        task.timer += 1;
        let timer = task.timer;
        self.at(
            self.now + wait,
            What::App {
                client: c,
                incarnation,
                task: t,
                timer,
            },
        );
    }

    fn operation(&self, c: usize, what: &'static str, name: &str) -> Operation {
        Operation {
            client: c,
            incarnation: self.clients[c].incarnation,
            what,
            name: name.to_owned(),
            token: None,
            asked_at: self.now,
            answered_at: None,
        }
    }

    fn pending<T>(
        &mut self,
        c: usize,
        t: usize,
        op: Operation,
        call: Call<T>,
        bound: Option<u64>,
    ) -> Pending<T> {
        self.last_call += 1;
        let id = self.last_call;
        // Clocks slew, and alarms ring late.
        let slew = self.plan.ppm.unsigned_abs() * 2;
        let bound = bound.map(|bound| bound + bound / 1_000_000 * slew + 10 * MS);
        if let Some(bound) = bound {
            let incarnation = self.clients[c].incarnation;
            self.at(
                self.now + bound + US,
                What::Bound {
                    client: c,
                    incarnation,
                    task: t,
                    call: id,
                },
            );
        }
        Pending {
            op,
            call,
            id,
            bound,
            paused: self.clients[c].paused,
            overtaken: 0,
        }
    }

    /// Checks that a call has been answered by now.
    pub(crate) fn bound(&mut self, c: usize, t: usize, call: u64) -> Held {
        let paused = self.clients[c].paused;
        let Some((op, bound, before)) = self.clients[c].tasks[t].is_pending(call) else {
            return Ok(());
        };
        let bound = bound.unwrap_or(u64::MAX);
        let waited = self.now - op.asked_at;
        let stood_still = paused - before;
        let again = (bound + stood_still).saturating_sub(waited);
        if again > 0 || self.clients[c].paused_until.is_some() {
            let incarnation = self.clients[c].incarnation;
            let at = self.now + again + US;
            let at = at.max(self.clients[c].paused_until.unwrap_or(0) + 5 * MS);
            self.at(
                at,
                What::Bound {
                    client: c,
                    incarnation,
                    task: t,
                    call,
                },
            );
            return Ok(());
        }
        answers::check(op, self.now, stood_still, bound)
    }

    /// A task's timer has fired.
    pub(crate) fn app(&mut self, c: usize, t: usize) -> Held {
        if let Some(until) = self.clients[c].paused_until {
            let wait = until - self.now + US;
            self.set_timer(c, t, wait);
            return Ok(());
        }
        self.set_clock(c);
        match std::mem::replace(&mut self.clients[c].tasks[t].stage, Stage::Idle) {
            Stage::Idle if self.calm || self.plan.clients[c].idle => {}
            Stage::Idle => self.begin_something(c, t),
            // The future of the call is dropped.
            Stage::Asking { pending, .. } if !self.calm => {
                self.stats.cancelled += 1;
                if self.tracing() {
                    self.trace(format!("c{c}: drops its call: {}", pending.op));
                }
                drop(pending);
                self.rest(c, t);
            }
            Stage::Spending(pending) if !self.calm => {
                self.stats.cancelled += 1;
                drop(pending);
                self.rest(c, t);
            }
            Stage::Holding {
                lease,
                id,
                until,
                must,
                things,
            } => self.go_on(c, t, lease, id, until, must, things)?,
            Stage::Releasing {
                pending,
                must: false,
            } => {
                drop(pending);
                self.rest(c, t);
            }
            other => self.clients[c].tasks[t].stage = other,
        }
        self.run_client(c)
    }

    fn rest(&mut self, c: usize, t: usize) {
        let think = self.plan.think;
        let wait = self.dice.skewed(100 * US, think);
        self.set_timer(c, t, wait);
    }

    fn begin_something(&mut self, c: usize, t: usize) {
        if self.dice.percent(self.plan.bootstraps) {
            return self.bootstrap(c, t, Mode::New);
        }
        if self.plan.operators && self.dice.percent(12) {
            return self.evict(c, t);
        }
        if self.resizes(c, t) {
            return;
        }
        if self.is_too_early(c) {
            return self.rest(c, t);
        }
        let (low, high) = self.plan.clients[c].ttl.unwrap_or(self.plan.ttl);
        let ttl = Duration::from_millis(self.dice.range(low, high).max(100));
        let renewal = match self.dice.below(10) {
            _ if self.dice.percent(self.plan.renews) => Renewal::auto(),
            0..=3 => Renewal::off(),
            4..=6 => Renewal::auto().max_hold(Duration::from_millis(self.dice.range(100, 600))),
            7..=8 => {
                let most = u32::try_from(self.dice.range(1, 3)).unwrap_or(1);
                Renewal::auto().max_renewals(most)
            }
            _ => Renewal::auto().heartbeat(Duration::from_millis(self.dice.range(100, 400))),
        };
        if self.plan.limits.is_some() {
            return self.spend(c, t);
        }
        if let Some(semaphore) = &self.clients[c].tasks[t].semaphore {
            let semaphore = semaphore.clone().ttl(ttl).renewal(renewal);
            return self.ask_for_slots(c, t, semaphore, ttl);
        }
        if let Some(lock) = &self.clients[c].tasks[t].rwlock {
            let lock = lock.clone().ttl(ttl).renewal(renewal);
            return self.ask_to_read_or_write(c, t, lock, ttl);
        }
        self.ask_for_mutexes(c, t, ttl, renewal);
    }

    fn lock_delay(&mut self, c: usize, ttl: Duration) -> Option<Duration> {
        let longest = self.terms_of(c).max_ttl.min(self.plan.terms.max_ttl);
        let room = longest.saturating_sub(ttl).min(self.plan.lock_delay);
        if !self.dice.percent(15) || room.is_zero() {
            return None;
        }
        let most = u64::try_from(room.as_millis()).unwrap_or(0);
        Some(Duration::from_millis(self.dice.range(0, most)))
    }

    /// How long a lease is held.
    fn hold(&mut self, ttl: Duration) -> u64 {
        self.dice.skewed(MS, nanos(ttl) / 1000 * self.plan.hold)
    }

    /// Makes a call. Its lease is held for `hold` ns. If `must`, it must be granted.
    fn ask(&mut self, c: usize, t: usize, demand: Demand<'_>, hold: u64, must: bool) {
        let op = self.operation(c, demand.what, demand.name);
        if self.tracing() {
            self.trace(format!("c{c}: {op}"));
        }
        let pending = self.pending(c, t, op, demand.call, demand.bound);
        self.clients[c].tasks[t].stage = Stage::Asking {
            pending,
            hold,
            must,
        };
        if !must && !self.plan.patient && self.dice.percent(20) {
            let wait = self.dice.skewed(50 * US, 80 * MS);
            self.set_timer(c, t, wait);
        }
    }

    /// The longest time of a call that does not wait: ACQUIRE and RAISE, and both once more after a new handshake.
    fn one_attempt(&self) -> u64 {
        let one = nanos(self.plan.node_timeout) + self.one_request();
        2 * (nanos(self.plan.node_timeout) + one) + 100 * MS
    }

    /// Measures for how long a lock has no holder while a caller waits for it.
    pub(crate) fn look_for_stalls(&mut self) -> Held {
        let Some(bound) = self.plan.stall else {
            return Ok(());
        };
        let quiet = match self
            .plan
            .faults
            .iter()
            .all(|(_, fault)| fault.is_harmless())
        {
            true => 0,
            false => self.disturbed(),
        };
        for n in 0..self.plan.names {
            let name = format!("lock-{n}");
            let waits = self.waiting_for("lock", &name);
            let mut holders = self.checks.leases.iter();
            let held = holders.any(|lease| lease.op.name == name);
            let stall = self.checks.stalls.entry(name).or_default();
            stall.look(self.now, waits.filter(|_| !held), quiet, bound)?;
            self.stats.longest_stall = self.stats.longest_stall.max(stall.longest / MS);
        }
        self.look_for_idle_sets(quiet, bound)?;
        self.look_for_idle_slots(quiet, bound)?;
        self.look_for_idle_rwlocks(quiet, bound)?;
        self.at(self.now + 20 * MS, What::Look);
        Ok(())
    }

    /// A call of this kind that waits for this name, never gives up, and can get it.
    fn waiting_for(&self, what: &str, name: &str) -> Option<Operation> {
        let mut waiting = self.waiting();
        waiting
            .find(|op| op.what == what && op.name == name)
            .cloned()
    }

    /// All calls that wait for something and can get it.
    fn waiting(&self) -> impl Iterator<Item = &Operation> {
        let clients = self.clients.iter().zip(&self.plan.clients);
        let able = clients.filter(|(client, plan)| {
            let away = client.partitions.iter().filter(|at| **at > self.now);
            let reaches = 2 * away.count() < client.partitions.len();
            plan.fit && client.paused_until.is_none() && reaches
        });
        able.flat_map(|(client, _)| client.tasks.iter().filter_map(Task::waiting))
    }

    /// Waits as `connect` does.
    fn connect(&mut self, c: usize) {
        let within = Duration::from_millis(2000);
        let answer = self.clients[c]
            .engine
            .call(|reply| Event::Ready { within, reply });
        let op = self.operation(c, "connect", "");
        let pending = self.pending(c, 0, op, Box::pin(answer), Some(nanos(within)));
        self.clients[c].tasks[0].stage = Stage::Operating(pending);
    }

    /// The longest time of a request that may be sent again. Where scripts are flushed it is sent twice.
    fn one_request(&self) -> u64 {
        let flushed = |(_, fault): &(u64, Fault)| *fault == Fault::ForgetScripts;
        let again = u64::from(self.plan.faults.iter().any(flushed));
        (1 + again) * nanos(self.plan.node_timeout)
    }

    pub(crate) fn bootstrap(&mut self, c: usize, t: usize, mode: Mode) {
        let within = Duration::from_millis(500);
        let engine = self.clients[c].engine.clone();
        let answer = engine.call(|reply| Event::Bootstrap {
            within,
            mode,
            reply,
        });
        let op = self.operation(c, "bootstrap", "");
        let bound = match mode {
            // It waits for quarantines, and each loss of a memory begins a new quarantine.
            Mode::Raise => None,
            // It waits for every client that may still know the fleet.
            Mode::New | Mode::Forced => {
                Some(nanos(within) + nanos(patience(self.plan.node_timeout)))
            }
        };
        let pending = self.pending(c, t, op, Box::pin(answer), bound);
        self.clients[c].tasks[t].stage = Stage::Operating(pending);
    }

    #[allow(clippy::too_many_arguments)] // the fields of one stage
    fn go_on(
        &mut self,
        c: usize,
        t: usize,
        lease: Lease,
        id: u64,
        until: u64,
        must: bool,
        mut things: Vec<Thing>,
    ) -> Held {
        lease.beat();
        let name = things.first().map_or("", |thing| &thing.name).to_owned();
        let over = !lease.is_valid();
        if self.now < until && !over {
            if !must {
                self.step_down_or_wait(c, t, &lease, id, &mut things)?;
            }
            if self.dice.percent(30) {
                let op = self.operation(c, "extend", &name);
                let bound = self.one_request();
                let pending = self.pending(c, t, op, Box::pin(lease.extend()), Some(bound));
                self.clients[c].tasks[t].extending.push(pending);
            }
            self.clients[c].tasks[t].stage = Stage::Holding {
                lease,
                id,
                until,
                must,
                things,
            };
            let wait = self.dice.range(MS, 60 * MS).min(until - self.now);
            self.set_timer(c, t, wait);
            return Ok(());
        }
        self.update(c, &mut things)?;
        if over {
            self.stats.lost += 1;
        }
        self.endured(id, over)?;
        self.checks.give_up(self.now, id);
        match self.dice.below(10) {
            0..=5 => {
                let mut op = self.operation(c, "release", &name);
                op.token = Some(lease.token().as_u64());
                let bound = self.one_request();
                let pending = self.pending(c, t, op, Box::pin(lease.release()), Some(bound));
                self.clients[c].tasks[t].stage = Stage::Releasing { pending, must };
                if !must && self.dice.percent(30) {
                    let wait = self.dice.skewed(50 * US, 20 * MS);
                    self.set_timer(c, t, wait);
                }
            }
            6 if self.plan.abandons && !self.calm => {
                lease.abandon();
                self.rest(c, t);
            }
            _ => {
                drop(lease);
                self.rest(c, t);
            }
        }
        Ok(())
    }

    /// A holder writes to the stores behind its locks, if it may.
    fn update(&mut self, c: usize, things: &mut [Thing]) -> Held {
        for thing in things {
            let Some(read) = thing.read.take() else {
                continue;
            };
            let mut update = self.operation(c, "update", &thing.name);
            update.token = Some(thing.token.as_u64());
            let written = self.checks.updates.write(&update, thing.token, read)?;
            match written.fenced {
                Some(true) => self.stats.written += 1,
                Some(false) => self.stats.fenced_off += 1,
                None => {}
            }
            self.stats.lost_unfenced += u64::from(written.lost_unfenced);
        }
        Ok(())
    }

    /// The holder gives up a lease. `over` says whether the lease had already ended.
    fn endured(&mut self, id: u64, over: bool) -> Held {
        let lease = self.checks.leases.iter().find(|lease| lease.id == id);
        let (Some(age), Some(lease)) = (self.plan.endures, lease) else {
            return Ok(());
        };
        let is_restart = |(at, act): &(u64, Act)| matches!(act, Act::Restart(..)).then_some(*at);
        let all: Vec<u64> = self.plan.script.iter().filter_map(is_restart).collect();
        let restarts = endurance::restarts(&lease.op, self.now, &all, age);
        if over {
            return endurance::check(&lease.op, self.now, restarts);
        }
        self.stats.outlived = self.stats.outlived.max(restarts.unwrap_or(0));
        Ok(())
    }

    /// Polls all futures of a client. Returns true if the core has something to do because of that.
    pub(crate) fn poll_tasks(&mut self, c: usize) -> Result<bool, Violation> {
        let mut any = false;
        for t in 0..self.clients[c].tasks.len() {
            let mut extending = std::mem::take(&mut self.clients[c].tasks[t].extending);
            let before = extending.len();
            extending.retain_mut(|pending| match poll(&mut pending.call) {
                Some(Ok(())) => {
                    self.stats.extended += 1;
                    false
                }
                Some(Err(_)) => false,
                None => true,
            });
            any |= extending.len() != before;
            extending.append(&mut self.clients[c].tasks[t].extending);
            self.clients[c].tasks[t].extending = extending;
            any |= self.poll_stage(c, t)?;
        }
        Ok(any)
    }

    fn poll_stage(&mut self, c: usize, t: usize) -> Result<bool, Violation> {
        let now = self.now;
        let mut stage = std::mem::replace(&mut self.clients[c].tasks[t].stage, Stage::Idle);
        match &mut stage {
            Stage::Idle | Stage::Holding { .. } => {}
            Stage::Asking {
                pending,
                hold,
                must,
            } => match poll(&mut pending.call) {
                None => {}
                Some(answer) => {
                    let mut op = pending.op.clone();
                    op.answered_at = Some(now);
                    let (hold, must) = (*hold, *must);
                    drop(stage);
                    self.answered(c, t, op, answer, hold, must)?;
                    return Ok(true);
                }
            },
            Stage::Releasing { pending, must } => match poll(&mut pending.call) {
                None => {}
                Some(answer) => {
                    self.stats.released += u64::from(answer.is_ok());
                    if *must {
                        progress::succeeded(&pending.op, answer.map_err(|e| e.to_string()))?;
                    }
                    self.rest(c, t);
                    return Ok(true);
                }
            },
            Stage::Evicting(pending) => match poll(&mut pending.call) {
                None => {}
                Some(answer) => {
                    if answer.is_ok() {
                        let name = pending.op.name.clone();
                        let asked_at = pending.op.asked_at;
                        self.evicted(&name, asked_at);
                    }
                    self.rest(c, t);
                    return Ok(true);
                }
            },
            Stage::Spending(pending) => match poll(&mut pending.call) {
                None => {}
                Some(answer) => {
                    let mut op = pending.op.clone();
                    op.answered_at = Some(now);
                    self.spent(&op, answer)?;
                    self.rest(c, t);
                    return Ok(true);
                }
            },
            Stage::Operating(pending) => match poll(&mut pending.call) {
                None => {}
                Some(answer) => {
                    if self.tracing() {
                        self.trace(format!("c{c}: {} -> {answer:?}", pending.op));
                    }
                    if pending.op.what == "resize" {
                        let op = pending.op.clone();
                        self.resized(&op, &answer);
                    }
                    let bootstrapped = pending.op.what == "bootstrap" && answer.is_ok();
                    self.stats.bootstrapped += u64::from(bootstrapped);
                    if bootstrapped {
                        self.start_those_who_waited();
                    }
                    self.rest(c, t);
                    return Ok(true);
                }
            },
        }
        self.clients[c].tasks[t].stage = stage;
        Ok(false)
    }

    /// The fleet's terms were raised, so clients that ask for more may come now.
    fn start_those_who_waited(&mut self) {
        for c in 0..self.clients.len() {
            if std::mem::take(&mut self.plan.clients[c].after_raise) {
                self.clients[c].partitions.iter_mut().for_each(|at| *at = 0);
                self.crash(c);
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // the fields of one stage
    fn answered(
        &mut self,
        c: usize,
        t: usize,
        mut op: Operation,
        answer: Result<Option<Lease>, Error>,
        hold: u64,
        must: bool,
    ) -> Held {
        let needed = majority(self.clients[c].servers.len());
        match answer {
            Ok(Some(lease)) => {
                self.stats.granted += 1;
                self.checks.progress(&op.name);
                let share = self.share_of(&op);
                self.overtakes(&op, share)?;
                op.token = Some(lease.token().as_u64());
                if self.tracing() {
                    self.trace(format!(
                        "c{c}: {op} -> granted, good for {:?}",
                        lease.validity()
                    ));
                }
                let reading = self.clients[c].mono.read(self.now);
                let good = nanos(lease.validity());
                let over_at = (reading + good).saturating_sub(nanos(lease.watch().notice()));
                let strict = self.plan.exclusion;
                let all = parts(&op, &lease);
                self.stats.sets += u64::from(parts_of(&op.name).count() > 1);
                let ops: Vec<Operation> = all.iter().map(|(op, _)| op.clone()).collect();
                let id = self.checks.hold(&ops, share, &lease.watch(), over_at);
                let mut things = Vec::with_capacity(all.len());
                for (op, token) in &all {
                    self.exclusive(&op.name, Some(id))?;
                    if share == Share::Reader {
                        things.push(self.reads(op, *token, strict)?);
                        continue;
                    }
                    if strict && self.plan.clients.iter().all(|plan| plan.fit) {
                        self.checks.in_turn(op, needed)?;
                    }
                    self.checks
                        .granted(op, strict, &self.clients[c].entries, needed)?;
                    let read = self.checks.updates.read(&op.name, *token);
                    self.stats.fenced_off += u64::from(read.fenced.is_none());
                    things.push(Thing {
                        name: op.name.clone(),
                        token: *token,
                        read: Some(read),
                    });
                }
                self.enters(c, &op, id)?;
                // Other tasks wait for it, and none of them may wait for ever.
                let hold = if self.calm { hold.min(50 * MS) } else { hold };
                let until = match self.plan.endures {
                    Some(_) => (self.now + hold).min(self.plan.active.max(self.now)),
                    None => self.now + hold,
                };
                self.clients[c].tasks[t].stage = Stage::Holding {
                    lease,
                    id,
                    until,
                    must,
                    things,
                };
                let wait = self.dice.range(MS, 60 * MS).min(hold);
                self.set_timer(c, t, wait);
            }
            Ok(None) => {
                self.stats.refused += 1;
                refusals::check(&op, self.answered_since(c, &op.name, op.asked_at), needed)?;
                self.rest(c, t);
            }
            Err(error) => {
                if self.tracing() {
                    self.trace(format!("c{c}: {op} -> {error}"));
                }
                if must && !matches!(error, Error::LimitConflict(_)) {
                    progress::succeeded(&op, Err(error.to_string()))?;
                }
                match &error {
                    Error::LimitConflict(_) => self.stats.conflicts += 1,
                    Error::Held(_) => {
                        self.stats.refused += 1;
                        refusals::check(
                            &op,
                            self.answered_since(c, &op.name, op.asked_at),
                            needed,
                        )?;
                    }
                    Error::Quarantined(_) => self.stats.quarantined += 1,
                    Error::TooSlow(_) => self.stats.too_slow += 1,
                    _ => self.stats.errors += 1,
                }
                self.rest(c, t);
            }
        }
        Ok(())
    }

    pub(crate) fn timer_is(&self, c: usize, t: usize, timer: u64) -> bool {
        self.clients[c].tasks[t].timer == timer
    }

    // ---- after the faults -----------------------------------------------------------------

    /// Checks that nobody waits any more, because nobody should.
    pub(crate) fn all_answered(&self) -> Held {
        for (c, client) in self.clients.iter().enumerate() {
            let fit = self.plan.clients[c].fit;
            if let Some(op) = client.tasks.iter().find_map(Task::waiting)
                && fit
            {
                return progress::answered(op, self.now);
            }
        }
        Ok(())
    }

    /// Checks that every client with a right configuration can lock.
    pub(crate) fn probe(&mut self) -> Held {
        for c in 0..self.clients.len() {
            if !self.plan.clients[c].fit || !self.clients[c].tasks[0].is_idle() {
                continue;
            }
            self.set_clock(c);
            if self.probe_slots(c) || self.probe_rwlock(c) {
                self.run_client(c)?;
                continue;
            }
            let engine = self.clients[c].engine.clone();
            let ttl = Duration::from_millis(self.plan.ttl.1);
            let max_ttl = self.terms_of(c).max_ttl;
            let mutex = match self.plan.several {
                0 => Mutex::new(engine, "probe".into(), max_ttl),
                _ => self.all_together(c),
            };
            let mutex = mutex.ttl(ttl);
            self.lock(c, 0, mutex, 5 * MS, true);
            self.run_client(c)?;
        }
        Ok(())
    }

    /// The first bootstrap of a fleet.
    pub(crate) fn first_bootstrap(&mut self) {
        if self.plan.start == Start::Bootstrapped {
            self.bootstrap(0, 0, Mode::New);
        }
    }
}
