//! Virtual time: a heap of events. Each is done at its instant, in the same order for the same seed.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use super::{
    Stats,
    channels::Late,
    checks::Checks,
    clients::Client,
    clocks::Drifting,
    dice::Dice,
    invariants::{Held, keys, places, tidy},
    logins::Provided,
    network::{Connection, at},
    profile::{LIST, MS, Plan, Profile, SECOND, Start},
    server::Server,
};
use crate::base::{owner::label_of, rules::Rules};

/// An event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Dial(usize),
    DialTimeout(usize),
    Arrive(usize),
    Deliver(usize),
    Thaw(usize),
    /// The provider of credentials has answered.
    Provided(usize, Provided),
    /// AUTH arrives at a server, with credentials that it accepts or not.
    LoginArrives(usize, bool),
    /// The login of a connection has expired, if no other followed.
    LoginEnds(usize),
    /// The server learns that a connection is over.
    HangUp(usize),
    /// A push that is late, or comes a second time.
    Late(usize),
    Drain(usize),
    Wake(usize, u64),
    Resume(usize, u64),
    App {
        client: usize,
        incarnation: u64,
        task: usize,
        timer: u64,
    },
    Bound {
        client: usize,
        incarnation: u64,
        task: usize,
        call: u64,
    },
    Fault,
    /// The end of a server's fault.
    Over(usize, u64),
    /// A server comes back with what it saved, with everything it had, or with nothing.
    Start(usize, Memory),
    /// A clock is set right again.
    Correct(usize),
    Promote(usize),
    /// An act of the script.
    Act(usize),
    /// The end of a process in a crash loop.
    Crash(usize, u64),
    /// Every memory should vote again by now.
    Voting,
    /// Clocks change their rate.
    Slew,
    /// Checks whether a lock stands still.
    Look,
    /// The faults end.
    Calm,
    /// Every caller that waited should have been answered by now.
    Settled,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    Empty,
    Saved,
    Kept,
}

struct Queued {
    at: u64,
    sequence: u64,
    what: What,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// Reconnecting (silence of 2 s, back-off of 5 s at most), the next handshake and contention take at most this long
/// after a quarantine.
const SETTLE: u64 = 14 * SECOND;
/// Time for the probes, their releases, and the ping after them.
const PROBE: u64 = 6 * SECOND;

/// The whole simulated world.
pub(crate) struct World {
    pub(crate) now: u64,
    sequence: u64,
    heap: BinaryHeap<Reverse<Queued>>,
    pub(crate) dice: Dice,
    pub(crate) plan: Plan,
    pub(crate) rules: Rules,
    pub(crate) servers: Vec<Server>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) clients: Vec<Client>,
    pub(crate) checks: Checks,
    pub(crate) stats: Stats,
    pub(crate) calm: bool,
    pub(crate) last_call: u64,
    /// The instant at which the last fault is over.
    disturbed: u64,
    pub(crate) late: Vec<Late>,
    trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64, profile: Profile, rules: Rules, trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::new(profile, &mut dice);
        let support = plan.support;
        let mut world = Self {
            now: 0,
            sequence: 0,
            heap: BinaryHeap::new(),
            dice,
            plan,
            rules,
            servers: Vec::new(),
            connections: Vec::new(),
            clients: Vec::new(),
            checks: Checks::new(support),
            stats: Stats::default(),
            calm: false,
            last_call: 0,
            disturbed: 0,
            late: Vec::new(),
            trace: trace.then(Vec::new),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        let plan = self.plan.clone();
        for s in 0..plan.servers {
            let off = self.dice.signed(-10, 10) * 1_000_000;
            let time = (plan.base_wall_us * 1000).saturating_add_signed(off);
            let clock = Drifting::new(0, time, self.dice.signed(-self.plan.ppm, self.plan.ppm));
            let eviction = if plan.evicting == Some(s) {
                "allkeys-lru"
            } else {
                "noeviction"
            };
            let mut server = Server::new(s, clock, eviction, self.rules);
            let admitted = matches!(plan.start, Start::Admitted | Start::Restarted);
            if admitted && s < plan.fleet {
                server.admit(0, plan.fleet, LIST, plan.terms);
            }
            if plan.start == Start::Restarted {
                let keys = server.store.snapshot();
                server.start(0, s, Some(keys));
            }
            self.servers.push(server);
        }
        for c in 0..plan.clients.len() {
            let client = self.new_client(c, 0);
            self.clients.push(client);
        }
        self.begin_script();
        for c in 0..plan.clients.len() {
            if plan.split {
                let unseen = if c % 2 == 0 { plan.servers - 1 } else { 0 };
                self.clients[c].partitions[unseen] = plan.active;
            }
            if plan.clients[c].after_raise {
                self.see(c, &[]);
            }
            self.begin_client(c);
        }
        self.first_bootstrap();
        let first = self.dice.range(10 * MS, plan.fault_every * 2);
        self.at(first, What::Fault);
        self.at(SECOND, What::Slew);
        self.at(SECOND, What::Look);
        self.at(plan.active, What::Calm);
    }

    pub(crate) fn at(&mut self, at: u64, what: What) {
        self.sequence += 1;
        self.heap.push(Reverse(Queued {
            at: at.max(self.now),
            sequence: self.sequence,
            what,
        }));
    }

    pub(crate) fn tracing(&self) -> bool {
        self.trace.is_some()
    }

    pub(crate) fn trace(&mut self, line: String) {
        let now = at(self.now);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now}  {line}"));
        }
    }

    pub(crate) fn take_trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default()
    }

    /// Runs to the end, or to the first violation.
    pub(crate) fn run(&mut self) -> Held {
        while let Some(Reverse(Queued { at, what, .. })) = self.heap.pop() {
            self.now = at;
            self.stats.events += 1;
            if matches!(what, What::End) {
                return self.end();
            }
            self.happen(what)?;
        }
        Ok(())
    }

    fn happen(&mut self, what: What) -> Held {
        match what {
            What::Dial(id) => self.dial_arrives(id),
            What::DialTimeout(id) => return self.dial_times_out(id),
            What::Arrive(id) => return self.arrive(id),
            What::Deliver(id) => return self.deliver(id),
            What::Thaw(id) => return self.thaw(id),
            What::Provided(id, provided) => return self.provider_answers(id, provided),
            What::LoginArrives(id, is_good) => self.login_arrives(id, is_good),
            What::LoginEnds(id) => return self.login_ends(id),
            What::HangUp(id) => self.unsubscribe(id),
            What::Late(n) => self.late(n),
            What::Drain(server) => return self.drain(server),
            What::Wake(client, 0) => return self.run_client(client),
            What::Wake(client, wake) => return self.wake(client, wake),
            What::Resume(client, incarnation) => {
                let current = self.clients[client].incarnation == incarnation;
                if current && self.clients[client].paused_until == Some(self.now) {
                    return self.resume_client(client);
                }
            }
            What::App {
                client,
                incarnation,
                task,
                timer,
            } => {
                if self.is_current(client, incarnation) && self.timer_is(client, task, timer) {
                    return self.app(client, task);
                }
            }
            What::Bound {
                client,
                incarnation,
                task,
                call,
            } => {
                if self.is_current(client, incarnation) {
                    return self.bound(client, task, call);
                }
            }
            What::Fault => {
                if !self.calm {
                    return self.fault();
                }
            }
            What::Over(server, fault) => self.fault_over(server, fault),
            What::Start(server, memory) => self.start(server, memory),
            What::Correct(server) => self.correct(server),
            What::Promote(server) => self.promote(server),
            What::Act(n) => return self.act(n),
            What::Crash(client, incarnation) => {
                if self.is_current(client, incarnation) {
                    self.stats.crashes += 1;
                    self.crash(client);
                }
            }
            What::Voting => return self.all_vote(),
            What::Slew => self.slew(),
            What::Look => return self.look_for_stalls(),
            What::Calm => return self.calm(),
            What::Settled => {
                self.all_answered()?;
                if self.plan.lasting {
                    self.no_key_left()?;
                }
                return self.probe();
            }
            What::End => {}
        }
        Ok(())
    }

    /// A fault is due. Where faults come in bursts, everything is repaired before the next burst.
    fn fault(&mut self) -> Held {
        let every = self.plan.fault_every;
        let mut next = self.now + self.dice.range(every / 4, every * 2);
        if let Some((burst, rest)) = self.plan.rounds {
            let phase = self.now % (burst + rest);
            if phase > burst {
                self.at(self.now - phase + burst + rest, What::Fault);
                return Ok(());
            }
            if self.now >= self.disturbed + self.plan.recovery() {
                self.all_vote()?;
            }
            next = next.max(self.now + MS);
        }
        self.at(next, What::Fault);
        self.inject()
    }

    /// Something goes wrong until this instant.
    pub(crate) fn disturb(&mut self, until: u64) {
        self.disturbed = self.disturbed.max(until);
    }

    fn is_current(&self, client: usize, incarnation: u64) -> bool {
        self.clients[client].incarnation == incarnation
    }

    /// Clocks are kept near true time, by slewing only.
    fn slew(&mut self) {
        let (now, base) = (self.now, self.plan.base_wall_us * 1000);
        for server in &mut self.servers {
            let right = (base + now).saturating_add_signed(server.wrong);
            let off = i128::from(server.clock.read(now)) - i128::from(right);
            let ppm = self.dice.signed(0, self.plan.ppm);
            let ppm = match off {
                5_000_000.. => -ppm,
                i128::MIN..=-5_000_000 => ppm,
                _ if self.dice.percent(50) => ppm,
                _ => -ppm,
            };
            server.clock.slew(now, ppm);
        }
        for c in 0..self.clients.len() {
            let ppm = self.dice.signed(-self.plan.ppm, self.plan.ppm);
            self.clients[c].mono.slew(now, ppm);
        }
        self.at(now + SECOND, What::Slew);
    }

    fn calm(&mut self) -> Held {
        self.calm = true;
        if self.tracing() {
            self.trace("---- the faults are over".into());
        }
        self.plan.slow = (0, 0);
        self.heal()?;
        // This covers a quarantine, a lease that is held, and one that was left behind. Where nothing expires, nothing
        // restarts either.
        let wait = match self.plan.lasting {
            true => 5 * SECOND,
            false => self.plan.quarantine() + 2 * self.plan.longest(),
        };
        if !self.plan.lasting {
            self.at(self.now + self.plan.recovery(), What::Voting);
        }
        self.at(self.now + wait + SETTLE, What::Settled);
        self.at(self.now + wait + SETTLE + PROBE, What::End);
        Ok(())
    }

    fn no_key_left(&self) -> Held {
        for (s, server) in self.servers.iter().enumerate() {
            keys::check(s, &server.locks(self.now))?;
            // The notes about a waiter of a read-write lock live for a few seconds at most.
            let noted = server.store.rwlocks().left(server.time(self.now));
            let noted: Vec<String> = noted.map(|name| format!("notes on {name}")).collect();
            keys::check(s, &noted)?;
            places::check(s, &self.left_in_line(s))?;
        }
        Ok(())
    }

    /// The waiters in the queue of a server whose processes live.
    fn left_in_line(&self, s: usize) -> Vec<String> {
        let (server, clients) = (&self.servers[s], self.clients.iter().enumerate());
        let labels = clients.map(|(c, client)| format!("c{c}.{}", client.incarnation));
        let living: Vec<String> = labels.collect();
        let time = server.time(self.now);
        let locks = server.store.waiters(time);
        let locks = locks.map(|(name, entry)| (entry, name.to_string()));
        let slots = server.store.slots().waiters(time);
        let slots = slots.map(|(pool, entry)| (entry, format!("{pool:?}")));
        let left = locks
            .chain(slots)
            .filter(|(entry, _)| living.iter().any(|l| l == label_of(entry.as_str())));
        left.map(|(entry, what)| format!("{} for {what}", entry.as_str()))
            .collect()
    }

    /// The instant at which the last fault is over.
    pub(crate) fn disturbed(&self) -> u64 {
        self.disturbed
    }

    fn end(&mut self) -> Held {
        self.all_answered()?;
        self.no_key_left()?;
        for (c, client) in self.clients.iter().enumerate() {
            if self.plan.clients[c].lives.is_some() {
                continue;
            }
            tidy::check(c, &client.core.leftovers())?;
        }
        Ok(())
    }

    /// Everything stands still while this much time passes.
    pub(crate) fn pass(&mut self, by: u64) -> Held {
        let queued: Vec<Queued> = self.heap.drain().map(|Reverse(q)| q).collect();
        self.heap.extend(
            queued
                .into_iter()
                .map(|q| Reverse(Queued { at: q.at + by, ..q })),
        );
        self.now += by;
        for server in &mut self.servers {
            server.clock.shift(by);
        }
        for client in &mut self.clients {
            client.mono.shift(by);
            client.paused += by;
            if let Some(until) = &mut client.paused_until {
                *until += by;
            }
            client.partitions.iter_mut().for_each(|at| *at += by);
        }
        self.shift_connections(by);
        for c in 0..self.clients.len() {
            self.run_client(c)?;
        }
        Ok(())
    }
}
