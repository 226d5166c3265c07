//! Logins that expire: the provider of credentials, AUTH, and servers that end connections whose login has expired.

use std::time::Duration;

use super::{
    invariants::{Held, logins},
    network::Down,
    profile::MS,
    world::{What, World},
};
use crate::node::Incoming;

/// How long a provider that does not answer is waited for, ns.
const LIMIT: u64 = 150 * MS;

/// The settings of logins that expire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logins {
    /// How long a login lasts, ns.
    pub(crate) lasts: u64,
    /// The longest time that the provider takes, ns.
    pub(crate) takes: u64,
    /// The percentage of questions to which the provider gives credentials that no server accepts.
    pub(crate) wrong: u64,
    /// The percentage of questions that the provider does not answer.
    pub(crate) gone: u64,
    /// Every question leads to a login in good time, so no login may expire.
    pub(crate) always_work: bool,
}

/// The answer of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provided {
    Good,
    Wrong,
    Nothing,
}

impl World {
    fn provided(&mut self, logins: Logins) -> (Provided, u64) {
        if self.calm {
            return (Provided::Good, self.dice.skewed(0, MS));
        }
        if self.dice.percent(logins.gone) {
            return (Provided::Nothing, LIMIT);
        }
        let takes = self.dice.skewed(0, logins.takes);
        match self.dice.percent(logins.wrong) {
            true => (Provided::Wrong, takes),
            false => (Provided::Good, takes),
        }
    }

    /// The answer of the provider for a new connection.
    pub(crate) fn provided_for_dial(&mut self) -> Provided {
        match self.plan.logins {
            None => Provided::Good,
            Some(logins) => self.provided(logins).0,
        }
    }

    /// The server has accepted a login.
    pub(crate) fn begin_login(&mut self, id: usize) {
        if let Some(logins) = self.plan.logins {
            let ends = self.now + logins.lasts;
            self.connections[id].login_ends = Some(ends);
            self.at(ends, What::LoginEnds(id));
        }
    }

    /// The client reads that it has logged in.
    pub(crate) fn login_read(&mut self, id: usize) -> Option<Incoming> {
        self.connections[id].logging_in = false;
        let ends = self.connections[id].login_ends?;
        let left = Duration::from_nanos(ends.saturating_sub(self.now));
        Some(Incoming::LoggedIn(Ok(Some(left))))
    }

    /// The client asks the provider, to log in again.
    pub(crate) fn log_in(&mut self, id: usize) {
        if let Some(logins) = self.plan.logins {
            self.connections[id].logging_in = true;
            let (provided, takes) = self.provided(logins);
            self.at(self.now + takes, What::Provided(id, provided));
        }
    }

    /// The provider has answered, or its time is over.
    pub(crate) fn provider_answers(&mut self, id: usize, provided: Provided) -> Held {
        let (c, node) = (self.connections[id].client, self.connections[id].node);
        let incarnation = self.connections[id].incarnation;
        if !self.connections[id].wanted || incarnation != self.clients[c].incarnation {
            return Ok(());
        }
        if let Some(until) = self.clients[c].paused_until {
            self.at(until, What::Provided(id, provided));
            return Ok(());
        }
        let mine = self.connections.iter().filter(|other| {
            let same = other.client == c && other.incarnation == incarnation;
            same && other.wanted && other.logging_in
        });
        logins::check_turns(c, mine.count())?;
        if provided == Provided::Nothing {
            self.connections[id].logging_in = false;
            self.set_clock(c);
            let failed = Incoming::LoggedIn(Err("the provider gives no answer".into()));
            self.clients[c].core.came(node, [failed]);
            return self.run_client(c);
        }
        if self.connections[id].cut {
            return Ok(());
        }
        // It goes behind what was sent before it.
        let at = (self.now + self.delay()).max(self.connections[id].last_up);
        self.connections[id].last_up = at;
        self.at(at, What::LoginArrives(id, provided == Provided::Good));
        Ok(())
    }

    /// AUTH arrives at the server. A server that refuses it keeps the login that the connection has.
    pub(crate) fn login_arrives(&mut self, id: usize, is_good: bool) {
        let connection = &self.connections[id];
        let server = &self.servers[connection.server];
        if !connection.open || !server.up {
            return;
        }
        let busy = server.paused || server.draining;
        let frozen = connection.up_frozen;
        if busy || frozen > self.now {
            let at = frozen.max(self.now + 5 * MS);
            self.at(at, What::LoginArrives(id, is_good));
            return;
        }
        if is_good {
            self.begin_login(id);
            self.stats.logins += 1;
        }
        self.answer(id, Down::LoggedIn(is_good));
    }

    /// A login may have expired. If no other followed, the server ends the connection.
    pub(crate) fn login_ends(&mut self, id: usize) -> Held {
        let connection = &self.connections[id];
        let server = &self.servers[connection.server];
        let is_over = connection.login_ends.is_some_and(|ends| ends <= self.now);
        if !is_over || !connection.open || !server.up {
            return Ok(());
        }
        if server.paused || server.draining {
            self.at(self.now + 5 * MS, What::LoginEnds(id));
            return Ok(());
        }
        if self.plan.logins.is_some_and(|logins| logins.always_work) && connection.wanted {
            logins::check_renewed(connection.client, connection.server)?;
        }
        self.stats.expired_logins += 1;
        self.server_closes(id);
        Ok(())
    }
}
