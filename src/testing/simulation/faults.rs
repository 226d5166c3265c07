//! The faults: what goes wrong, when, and how it ends.

use super::{
    invariants::Held,
    profile::{DAY, Fault, MS, SECOND},
    world::{Memory, What, World},
};
use crate::{
    base::{name::Name, owner::Entry},
    node::{
        Command,
        kinds::moment,
        request::{Release, Request, Target, Verb},
    },
};

impl World {
    /// Injects one of the faults of the plan.
    pub(crate) fn inject(&mut self) -> Held {
        let total: u64 = self.plan.faults.iter().map(|(weight, _)| weight).sum();
        let mut at = self.dice.below(total);
        let mut fault = None;
        for (weight, candidate) in &self.plan.faults {
            if at < *weight {
                fault = Some(*candidate);
                break;
            }
            at -= weight;
        }
        let Some(fault) = fault else { return Ok(()) };
        self.stats.faults += 1;
        self.disturb(self.now + SECOND);
        let mut s = self.dice.index(self.servers.len());
        if self.plan.split {
            s = self.plan.first_mortal;
        }
        let c = self.dice.index(self.clients.len());
        if self.tracing() && !matches!(fault, Fault::Bump | Fault::Shorten) {
            self.trace(format!("---- {fault:?} (s{s}, c{c})"));
        }
        match fault {
            Fault::Cut => {
                if let Some(id) = self.random_link(c) {
                    self.cut(id);
                }
            }
            Fault::Freeze => {
                if let Some(id) = self.random_link(c) {
                    let until = self.now + self.stretch();
                    let clog = self.dice.percent(50);
                    self.freeze(id, until, clog);
                }
            }
            Fault::Partition => {
                let until = self.now + self.stretch();
                self.disturb(until);
                let clog = self.dice.percent(30);
                self.partition(c, s, until, clog);
            }
            Fault::CutOff => self.cut_off(s),
            Fault::Pause => self.pause(s),
            Fault::RestartEmpty => self.restart(s, Memory::Empty, false),
            Fault::RestartOld => self.restart(s, Memory::Saved, false),
            Fault::RestartKept => self.restart(s, Memory::Kept, false),
            Fault::RestartWrongClock => {
                let memory = [Memory::Empty, Memory::Saved, Memory::Kept][self.dice.index(3)];
                self.restart(s, memory, true);
            }
            Fault::PowerCut => {
                for s in 0..self.servers.len() {
                    self.restart(s, Memory::Empty, false);
                }
            }
            Fault::Save => self.servers[s].saved = Some(self.servers[s].store.snapshot()),
            Fault::Flush if self.may_forget(s) => {
                self.servers[s].store.flush();
                let now = self.now;
                self.servers[s].forgot(now);
            }
            Fault::Flush => {}
            Fault::Demote => self.demote(s),
            Fault::Errors => {
                self.servers[s].errors = self.dice.range(100, 1000);
                let wait = self.dice.skewed(5 * MS, 400 * MS);
                self.over_in(s, wait);
            }
            Fault::OutOfMemory => {
                self.servers[s].store.set_out_of_memory(true);
                let minority = self.servers.iter().filter(|s| s.stays_full).count() + 1;
                if self.plan.stays_full && 2 * minority < self.servers.len() {
                    self.servers[s].stays_full = true;
                }
                let wait = self.dice.skewed(5 * MS, 500 * MS);
                self.over_in(s, wait);
            }
            // The same user of all servers loses the right at about the same time, as a changed ACL has it.
            Fault::Withdraw => {
                let command = [moment::Command::Set, moment::Command::Zadd][self.dice.index(2)];
                for s in 0..self.servers.len() {
                    self.servers[s].store.set_withdrawn(Some(command));
                    let wait = self.dice.skewed(5 * MS, 300 * MS);
                    self.over_in(s, wait);
                }
            }
            Fault::ReadOnly => {
                self.servers[s].store.set_readonly(true);
                let wait = self.dice.skewed(5 * MS, 300 * MS);
                self.over_in(s, wait);
            }
            Fault::ForgetScripts => self.servers[s].scripts = false,
            Fault::Slow => {
                self.servers[s].later = self.dice.range(1, 10) * MS;
                let wait = self.dice.skewed(50 * MS, 3 * SECOND);
                self.over_in(s, wait);
            }
            Fault::Stop => {
                let until = self.now + self.dice.skewed(5 * MS, 1500 * MS);
                self.stop_client(c, until);
            }
            Fault::Crash => {
                // Every second process is told to end. Its last messages are under way when it is gone.
                if self.clients[c].incarnation % 2 == 1 {
                    self.close(c);
                }
                self.crash(c);
            }
            Fault::SetWall => {
                let plan = &self.plan.clients[c];
                let (near, strays) = (plan.wall, plan.strays);
                let far = strays.filter(|_| self.dice.percent(50));
                let (low, high) = far.unwrap_or(near);
                self.clients[c].wall = self.dice.signed(low, high) * 1000;
            }
            Fault::Evict => self.evict_a_lock(),
            Fault::Bump => self.bump(s),
            Fault::Shorten => self.shorten(s),
            Fault::Days => {
                let by = self.dice.range(DAY / 4, 5 * DAY / 2);
                self.pass(by)?;
            }
            Fault::StepBack => self.step_back(s),
            Fault::Step => self.step(s),
            Fault::SlipBack => self.slip_back(s),
            Fault::Forge => self.forge(s),
            Fault::Deafen => {
                if let Some(id) = self.random_link(c) {
                    self.unsubscribe(id);
                }
            }
        }
        Ok(())
    }

    /// How long something stands still. Mostly this is a moment, sometimes longer than a client's patience.
    fn stretch(&mut self) -> u64 {
        if self.dice.percent(self.plan.long) {
            self.dice.range(2 * SECOND, 3 * SECOND)
        } else {
            self.dice.skewed(5 * MS, 800 * MS)
        }
    }

    fn random_link(&mut self, c: usize) -> Option<usize> {
        let node = self.dice.index(self.clients[c].servers.len());
        self.link(c, node)
    }

    fn over_in(&mut self, s: usize, wait: u64) {
        self.servers[s].fault += 1;
        let fault = self.servers[s].fault;
        self.disturb(self.now + wait);
        self.at(self.now + wait, What::Over(s, fault));
    }

    pub(crate) fn fault_over(&mut self, s: usize, fault: u64) {
        if self.servers[s].fault == fault {
            self.recover(s);
        }
    }

    /// Ends all faults of a running server.
    fn recover(&mut self, s: usize) {
        let server = &mut self.servers[s];
        server.errors = 0;
        (server.late, server.later) = (0, 0);
        server.store.set_readonly(false);
        server.store.set_withdrawn(None);
        if !server.stays_full {
            server.store.set_out_of_memory(false);
        }
        if server.paused {
            server.paused = false;
            server.draining = true;
            self.at(self.now, What::Drain(s));
        }
    }

    /// Two clients reach only a minority from now on: the nearest servers, which answer first. One of the other servers
    /// stands still, so that nobody has a majority without that minority.
    fn cut_off(&mut self, s: usize) {
        // This happens once. Requests that a server reads after a second stand-still could outlive the RELEASE that
        // should have ended it.
        if self.clients[0].partitions.iter().any(|at| *at > 0) {
            return;
        }
        let until = self.now + self.dice.range(8, 11) * SECOND;
        let all = self.servers.len();
        self.servers.iter_mut().for_each(|server| server.late = 0);
        for n in all / 2..all {
            let away = (s + n) % all;
            self.servers[away].late = 4 * MS;
            self.partition(0, away, until, false);
            self.partition(1, away, until, false);
        }
        let still = (s + all - 1) % all;
        let server = &mut self.servers[still];
        server.paused = true;
        server.fault += 1;
        let fault = server.fault;
        self.at(until, What::Over(still, fault));
    }

    fn partition(&mut self, c: usize, s: usize, until: u64, clog: bool) {
        self.clients[c].partitions[s] = self.clients[c].partitions[s].max(until);
        for node in 0..self.clients[c].servers.len() {
            if self.clients[c].servers[node] == s
                && let Some(id) = self.link(c, node)
            {
                self.freeze(id, until, clog);
            }
        }
    }

    fn pause(&mut self, s: usize) {
        if self.servers[s].up {
            self.servers[s].paused = true;
            let wait = self.stretch();
            self.over_in(s, wait);
        }
    }

    fn may_die(&self, s: usize) -> bool {
        (self.plan.first_mortal..self.plan.first_safe).contains(&s) && self.servers[s].up
    }

    /// Returns true if enough others vote while this server's memory does not.
    fn may_forget(&self, s: usize) -> bool {
        let others = self.servers.iter().enumerate().filter(|(n, _)| *n != s);
        others.filter(|(_, server)| server.votes()).count() >= self.plan.ripe
    }

    pub(crate) fn restart(&mut self, s: usize, memory: Memory, wrong_clock: bool) {
        if !self.may_die(s) || !self.may_forget(s) {
            return;
        }
        self.stats.restarts += 1;
        self.servers[s].up = false;
        self.servers[s].dials.clear();
        for id in self.servers[s].open.clone() {
            self.server_closes(id);
        }
        if wrong_clock {
            let now = self.now;
            let by = self.dice.signed(-4000, 4000) * 1_000_000;
            let server = &mut self.servers[s];
            server.wrong += by;
            server.clock.step(now, by);
        }
        let wait = self.dice.skewed(MS, self.plan.downtime);
        self.disturb(self.now + wait);
        self.at(self.now + wait, What::Start(s, memory));
    }

    pub(crate) fn start(&mut self, s: usize, memory: Memory) {
        if self.servers[s].up {
            return;
        }
        if self.tracing() {
            self.trace(format!("---- s{s} comes back, memory {memory:?}"));
        }
        let keys = match memory {
            Memory::Empty => None,
            Memory::Saved => self.servers[s].saved.clone(),
            Memory::Kept => Some(self.servers[s].store.snapshot()),
        };
        let now = self.now;
        self.servers[s].start(now, s, keys);
        let flaky = self.plan.flaky_start;
        if !self.calm && self.dice.percent(flaky) {
            self.servers[s].errors = self.dice.range(100, 800);
            let wait = self.dice.skewed(5 * MS, 100 * MS);
            self.over_in(s, wait);
        }
        if self.servers[s].wrong != 0 {
            // The clock is set right long before the quarantine can be over, so no lease lives on the server then.
            let z = self.plan.terms.quarantine() * MS;
            let wait = self.dice.range(0, z / 10 * 9);
            self.at(self.now + wait, What::Correct(s));
        }
    }

    pub(crate) fn correct(&mut self, s: usize) {
        let now = self.now;
        if self.tracing() {
            self.trace(format!("---- s{s} corrects its clock"));
        }
        let server = &mut self.servers[s];
        server.clock.step(now, -server.wrong);
        server.wrong = 0;
    }

    /// The server follows another master. Its data is that master's, or it has none.
    fn demote(&mut self, s: usize) {
        if !self.may_die(s) || !self.may_forget(s) {
            return;
        }
        let peer = (s + 1 + self.dice.index(self.servers.len() - 1)) % self.servers.len();
        let follows = self.dice.below(3);
        self.follow(s, peer, follows);
    }

    /// The server becomes a replica, with the data of its master, its own older data, or none.
    pub(crate) fn follow(&mut self, s: usize, peer: usize, follows: u64) {
        let keys = match follows {
            0 => self.servers[peer].store.snapshot(),
            1 => self.servers[s].saved.clone().unwrap_or_default(),
            _ => Default::default(),
        };
        let now = self.now;
        let server = &mut self.servers[s];
        if server.store.server_mut().role != "master" {
            return;
        }
        server.store.server_mut().role = "slave".into();
        server.store.restore(keys);
        server.follows = follows;
        server.master = (follows == 0).then_some(peer);
        server.forgot(now);
        let wait = self.dice.skewed(5 * MS, 600 * MS);
        self.disturb(self.now + wait);
        self.at(self.now + wait, What::Promote(s));
    }

    pub(crate) fn promote(&mut self, s: usize) {
        let replid = format!("{:040x}", self.dice.next());
        let replid: String = replid.chars().rev().collect();
        let offset = self.dice.range(1, 1_000_000).to_string();
        let server = &mut self.servers[s];
        let identity = server.store.server_mut();
        if identity.role == "master" {
            return;
        }
        server.master = None;
        identity.role = "master".into();
        identity.replid2 = replid;
        identity.second_offset = offset;
        // Sentinel ends every connection too. Without that, the server's own older data would let it vote until the
        // next handshake, which protocol §2 lists as left over. Another server's data would not.
        if server.follows == 1 {
            for id in server.open.clone() {
                self.server_closes(id);
            }
        }
    }

    /// The evicting server drops a lock to make room.
    fn evict_a_lock(&mut self) {
        let Some(s) = self.plan.evicting else { return };
        let time = self.servers[s].time(self.now);
        let Some((name, entry)) = self.some_lock(s) else {
            return;
        };
        let guard = self.servers[s].guard();
        let server = &mut self.servers[s];
        let _ = server.store.apply(
            &command(name, entry, Verb::Release(Release::default())),
            &guard,
            time,
        );
        self.hand_out(s);
    }

    fn some_lock(&mut self, s: usize) -> Option<(Name, Entry)> {
        let server = &self.servers[s];
        let time = server.time(self.now);
        let locks: Vec<(Name, Entry)> = server
            .store
            .locks(time)
            .map(|(name, entry, _)| (name.clone(), entry.clone()))
            .collect();
        let n = self.dice.index(locks.len());
        locks.into_iter().nth(n)
    }

    /// An operator raises a counter while a lock is held.
    fn bump(&mut self, s: usize) {
        let time = self.servers[s].time(self.now);
        let Some((name, entry)) = self.some_lock(s) else {
            return;
        };
        let guard = self.servers[s].guard();
        let token = time + self.dice.range(3_000_000, 6_000_000);
        let raise = command(name, entry, Verb::Raise { seq: 0, token });
        let _ = self.servers[s].store.apply(&raise, &guard, time);
    }

    fn shorten(&mut self, s: usize) {
        let time = self.servers[s].time(self.now);
        let Some((name, entry)) = self.some_lock(s) else {
            return;
        };
        let guard = self.servers[s].guard();
        let ttl = std::time::Duration::from_millis(self.dice.range(1, 60));
        let window = std::time::Duration::ZERO;
        let extend = command(name, entry, Verb::Extend { ttl, window });
        let _ = self.servers[s].store.apply(&extend, &guard, time);
    }

    /// The clock of a node on which no lease lives is set back, or set right again.
    fn step_back(&mut self, s: usize) {
        let now = self.now;
        let server = &mut self.servers[s];
        if !server.locks(now).is_empty() {
            return;
        }
        let by = if server.wrong == 0 {
            -2_000_000_000
        } else {
            -server.wrong
        };
        server.wrong += by;
        server.clock.step(now, by);
    }

    /// This clock is never set right, because that would be a step forward.
    fn slip_back(&mut self, s: usize) {
        let by = self.dice.skewed(5 * MS, 250 * MS);
        self.servers[s].clock.step(self.now, -by.cast_signed());
    }

    fn step(&mut self, s: usize) {
        let by = self.dice.signed(-3_000, 3_000) * 1_000_000;
        self.step_by(s, by);
    }

    pub(crate) fn step_by(&mut self, s: usize, by: i64) {
        let server = &mut self.servers[s];
        server.wrong += by;
        server.clock.step(self.now, by);
    }

    /// Ends all faults.
    pub(crate) fn heal(&mut self) -> Held {
        for s in 0..self.servers.len() {
            self.servers[s].fault += 1;
            self.recover(s);
            self.promote(s);
            if self.servers[s].wrong != 0 && self.servers[s].up {
                // A clock that is still wrong belongs to a node in quarantine, or to one without leases. Or exclusion
                // does not depend on clocks in this schedule.
                if self.servers[s].locks(self.now).is_empty() || !self.plan.exclusion {
                    self.correct(s);
                }
            }
        }
        for (client, plan) in self.clients.iter_mut().zip(&self.plan.clients) {
            if plan.strays.is_some() {
                client.wall = plan.wall.0 * 1000;
            }
            if !plan.after_raise {
                client.partitions.iter_mut().for_each(|at| *at = 0);
            }
        }
        self.heal_connections();
        for c in 0..self.clients.len() {
            if self.clients[c].paused_until.is_some() {
                self.resume_client(c)?;
            }
        }
        Ok(())
    }
}

/// A request of the holder of a mutex.
fn command(name: Name, entry: Entry, verb: Verb) -> Command {
    Command::Request(Request {
        target: Target::mutex(name),
        entry,
        verb,
    })
}
