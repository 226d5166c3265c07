//! Schedules that are written beforehand: when clients reach which servers, and when something dies.

use super::{
    invariants::Held,
    world::{Memory, What, World},
};
use crate::node::admission::Mode;

/// Longer than any schedule.
const EVER: u64 = u64::MAX / 4;

/// An act that happens at a given time.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// From now on this client reaches these servers, and no others.
    See(usize, Vec<usize>),
    Restart(usize, Memory),
    /// The first server becomes a replica of the second.
    Follow(usize, usize),
    Save(usize),
    /// This server's clock is stepped by this many ms.
    Step(usize, i64),
    Crash(usize),
    /// The first task of this client drops what it does, and bootstraps.
    Bootstrap(usize),
    /// As `Bootstrap`, but it raises the fleet's terms.
    Raise(usize),
    /// As `Bootstrap`, but it changes the limit of the semaphore.
    Resize(usize, u32),
}

impl World {
    pub(crate) fn begin_script(&mut self) {
        for n in 0..self.plan.script.len() {
            self.at(self.plan.script[n].0, What::Act(n));
        }
    }

    pub(crate) fn act(&mut self, n: usize) -> Held {
        if self.calm {
            return Ok(());
        }
        let act = self.plan.script[n].1.clone();
        if self.tracing() {
            self.trace(format!("---- {act:?}"));
        }
        self.disturb(self.now);
        match act {
            Act::See(c, servers) => self.see(c, &servers),
            Act::Restart(s, memory) => self.restart(s, memory, false),
            Act::Follow(s, master) => self.follow(s, master, 0),
            Act::Save(s) => self.servers[s].saved = Some(self.servers[s].store.snapshot()),
            Act::Step(s, ms) => self.step_by(s, ms * 1_000_000),
            Act::Crash(c) => self.crash(c),
            Act::Bootstrap(c) => return self.bootstrap_now(c, Mode::New),
            Act::Raise(c) => return self.bootstrap_now(c, Mode::Raise),
            Act::Resize(c, to) => return self.resize_now(c, to),
        }
        Ok(())
    }

    fn bootstrap_now(&mut self, c: usize, mode: Mode) -> Held {
        self.set_clock(c);
        self.bootstrap(c, 0, mode);
        self.run_client(c)
    }

    pub(crate) fn see(&mut self, c: usize, servers: &[usize]) {
        for s in 0..self.servers.len() {
            let seen = servers.contains(&s);
            self.clients[c].partitions[s] = if seen { 0 } else { EVER };
        }
        for node in 0..self.clients[c].servers.len() {
            let seen = servers.contains(&self.clients[c].servers[node]);
            if let (false, Some(id)) = (seen, self.link(c, node)) {
                self.cut(id);
            }
        }
    }
}
