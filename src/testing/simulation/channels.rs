//! The pushes that servers publish. A push arrives in order with the answers, is lost, comes late, or comes twice,
//! perhaps on a later connection.

use super::{
    network::Down,
    profile::{MS, SECOND},
    world::{What, World},
};
use crate::node::{Push, Says};

/// A push that did not arrive when it should have.
#[derive(Clone, Debug)]
pub(crate) struct Late {
    client: usize,
    incarnation: u64,
    node: usize,
    push: Push,
}

impl World {
    /// From now on the server publishes to this connection.
    pub(crate) fn subscribe(&mut self, id: usize) {
        let channel = self.channel_of(id);
        let connection = &mut self.connections[id];
        connection.listens = true;
        self.servers[connection.server].store.subscribe(&channel);
    }

    /// The server stops publishing to this connection.
    pub(crate) fn unsubscribe(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        if std::mem::take(&mut connection.listens) {
            let (server, channel) = (connection.server, self.channel_of(id));
            self.servers[server].store.unsubscribe(&channel);
        }
    }

    fn channel_of(&self, id: usize) -> std::sync::Arc<str> {
        let connection = &self.connections[id];
        channel(connection.client, connection.incarnation)
    }

    /// The client has closed the connection. The server learns of that at once, or only after a while.
    pub(crate) fn hang_up(&mut self, id: usize) {
        let wait = match self.calm || !self.dice.percent(self.plan.gone) {
            true => self.delay(),
            false => self.dice.skewed(10 * MS, 2 * SECOND),
        };
        let at = (self.now + wait).max(self.connections[id].frozen_until());
        self.at(at, What::HangUp(id));
    }

    /// Delivers the pushes of this server to all connections that it believes to be alive.
    pub(crate) fn publish(&mut self, s: usize, pushes: &[(std::sync::Arc<str>, Push)]) {
        for (to, push) in pushes {
            match push.says {
                Says::Granted { token, .. } => {
                    self.stats.handed_over += 1;
                    self.checks.stood(s, push.entry.as_str(), token);
                }
                Says::Called | Says::Free { .. } | Says::Freed => self.stats.called += 1,
                Says::Next { .. } => {}
            }
            // PUBLISH is replicated: a subscriber of a replica receives the push on its connection to the replica.
            let repeats = |r: &usize| *r == s || self.servers[*r].master == Some(s);
            let repeaters: Vec<usize> = (0..self.servers.len()).filter(repeats).collect();
            for id in repeaters
                .into_iter()
                .flat_map(|r| self.servers[r].open.clone())
                .collect::<Vec<_>>()
            {
                let connection = &self.connections[id];
                if connection.listens && *to == self.channel_of(id) {
                    self.push(id, push);
                }
            }
        }
    }

    /// A stranger who has learned the entry of a waiter publishes a hand-over to it, on every server. The hand-over has
    /// no guard.
    pub(crate) fn forge(&mut self, s: usize) {
        let time = self.servers[s].time(self.now);
        let waiters = self.servers[s].store.waiters(time);
        let entries: Vec<_> = waiters.map(|(_, entry)| entry.clone()).collect();
        let n = self.dice.index(entries.len().max(1));
        let Some(entry) = entries.into_iter().nth(n) else {
            return;
        };
        let (seq, token) = (self.dice.range(1, 4), time + SECOND);
        let says = Says::Granted {
            seq,
            token,
            guard: "".into(),
        };
        let push = Push { entry, says };
        for id in 0..self.connections.len() {
            if self.connections[id].listens {
                self.push(id, &push);
            }
        }
    }

    fn push(&mut self, id: usize, push: &Push) {
        let connection = &self.connections[id];
        let late = Late {
            client: connection.client,
            incarnation: connection.incarnation,
            node: connection.node,
            push: push.clone(),
        };
        let wanted = connection.wanted;
        let (lost, doubled, late_ones) = self.plan.pushes;
        let fate = match (lost, doubled, late_ones) {
            (0, 0, 0) => 100,
            _ if self.calm => 100,
            _ => self.dice.below(100),
        };
        if self.tracing() {
            let fate = match fate {
                f if f < lost => " (lost)",
                f if f < lost + doubled => " (twice)",
                f if f < lost + doubled + late_ones => " (late)",
                _ => "",
            };
            let (c, s) = (connection.client, connection.server);
            self.trace(format!("  s{s} -> c{c}#{id}: {}{fate}", brief(push)));
        }
        if fate >= lost && (fate < lost + doubled || fate >= lost + doubled + late_ones) && wanted {
            self.answer(id, Down::Push(push.clone()));
        }
        if fate >= lost && fate < lost + doubled + late_ones {
            let wait = self.dice.skewed(MS, 1500 * MS);
            self.late.push(late);
            self.at(self.now + wait, What::Late(self.late.len() - 1));
        }
    }

    /// Delivers a late push, on the connection that exists now.
    pub(crate) fn late(&mut self, n: usize) {
        let Late {
            client,
            incarnation,
            node,
            push,
        } = self.late[n].clone();
        if self.clients[client].incarnation == incarnation
            && let Some(id) = self.link(client, node)
        {
            self.answer(id, Down::Push(push));
        }
    }

    /// Delivers pushes that another caller has caused at this server.
    pub(crate) fn hand_out(&mut self, s: usize) {
        let pushes = self.servers[s].store.take_pushes();
        self.publish(s, &pushes);
    }
}

/// The channel of a process.
pub(crate) fn channel(client: usize, incarnation: u64) -> std::sync::Arc<str> {
    format!("quorate:wake:{client}.{incarnation}").into()
}

fn brief(push: &Push) -> String {
    let entry = push.entry.as_str();
    format!("{:?} {}", push.says, entry.get(..6).unwrap_or(entry))
}
