//! Clients with a wrong configuration beside clients with a right one. Mostly the former are in a crash loop, while
//! masters restart, are flushed or are cut off. Nothing that they do may stop the fleet.

use std::time::Duration;

use super::{Fault, MS, Plan, SECOND, Watch};
use crate::{
    node::admission::{Terms, record::THROWAWAY},
    testing::simulation::dice::Dice,
};

const HOUR: Duration = Duration::from_secs(3600);

const LOSSES: [(u64, Fault); 9] = [
    (3, Fault::Cut),
    (2, Fault::Freeze),
    (3, Fault::Partition),
    (2, Fault::Pause),
    (4, Fault::RestartEmpty),
    (2, Fault::RestartOld),
    (2, Fault::RestartKept),
    (2, Fault::Save),
    (1, Fault::Flush),
];

impl Plan {
    /// Two clients with a right configuration, and one or two with a wrong one. Faults come in bursts, and after each
    /// of them every master votes again.
    fn with_strangers(dice: &mut Dice, servers: usize) -> Self {
        let mut plan = Self::base(dice, servers).only(&LOSSES);
        let strangers = 1 + usize::from(dice.percent(50));
        plan.clients.resize(2 + strangers, plan.clients[0].clone());
        let lives = [(30 * MS, 600 * MS), (300 * MS, 3 * SECOND)][dice.index(2)];
        for stranger in plan.strangers() {
            stranger.fit = false;
            stranger.lives = Some(lives);
        }
        plan.terms.max_ttl = Duration::from_millis(dice.range(1500, 2500));
        plan.ttl = (300, 1500);
        plan.think = 400 * MS;
        // No client is away for as long as a quarantine, because that would leave strangers alone with masters.
        plan.long = 0;
        plan.downtime = 40 * MS;
        // No node stalls between the bursts.
        plan.slow = (20, 15 * MS);
        plan.ripe = 1;
        plan.watch = Watch::All;
        plan.reconnect = 4 * SECOND;
        plan.fault_every = dice.range(100, 600) * MS;
        plan.rounds = Some(plan.round());
        plan.active = plan.recovery() + 7 * SECOND;
        plan
    }

    /// A burst of faults, and the time for the last of them and for the recovery.
    fn round(&self) -> (u64, u64) {
        (3 * SECOND, self.recovery() + 2 * SECOND)
    }

    fn strangers(&mut self) -> impl Iterator<Item = &mut super::ClientPlan> {
        self.clients.iter_mut().skip(2)
    }

    pub(super) fn huge(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::with_strangers(dice, servers);
        let terms = Terms {
            max_ttl: [HOUR * 24, HOUR, plan.terms.max_ttl * 3][dice.index(3)],
            ..plan.terms
        };
        for stranger in plan.strangers() {
            stranger.terms = Some(terms);
        }
        plan
    }

    pub(super) fn tiny(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::with_strangers(dice, servers);
        let terms = Terms {
            max_ttl: plan.terms.max_ttl / [2, 3, 8][dice.index(3)],
            ..plan.terms
        };
        let longest = u64::try_from(terms.max_ttl.as_millis()).unwrap_or(0);
        for stranger in plan.strangers() {
            stranger.terms = Some(terms);
            stranger.ttl = Some((100, longest));
        }
        // If a majority is emptied within one lease and only strangers meet it, it is not protected.
        plan.ripe = servers / 2 + 1;
        plan
    }

    pub(super) fn other_fleet(dice: &mut Dice) -> Self {
        let mut plan = Self::base(dice, 5).and(&[
            (2, Fault::RestartEmpty),
            (1, Fault::RestartKept),
            (1, Fault::Flush),
        ]);
        plan.clients.resize(3, plan.clients[0].clone());
        plan.clients[0].servers = vec![0, 1, 2];
        plan.clients[0].fit = false;
        if dice.percent(50) {
            plan.clients[0].lives = Some((30 * MS, 600 * MS));
        }
        plan.downtime = 40 * MS;
        // Two masters are a majority to the stranger. Alone with them it would make them vote.
        plan.ripe = 4;
        plan
    }

    pub(super) fn other_list(dice: &mut Dice) -> Self {
        let mut plan = Self::with_strangers(dice, 4);
        plan.fleet = 3;
        for client in &mut plan.clients {
            client.servers = vec![0, 1, 2];
        }
        for stranger in plan.strangers() {
            stranger.servers = vec![0, 1, 3];
            stranger.list = "other".into();
        }
        plan.ripe = 2;
        plan.hold = 3000;
        plan.think = 100 * MS;
        plan
    }

    /// A wrong setting: the stranger takes some or all of the servers for its own, to be thrown away.
    pub(super) fn throwaway(dice: &mut Dice) -> Self {
        let mut plan = Self::with_strangers(dice, 3);
        let known = 1 + dice.index(3);
        for stranger in plan.strangers() {
            stranger.servers.truncate(known);
            stranger.list = THROWAWAY.into();
        }
        plan
    }

    pub(super) fn other_margin(dice: &mut Dice) -> Self {
        let mut plan = Self::with_strangers(dice, 3);
        // The tokens of clients with slow clocks depend on this margin.
        plan.terms.margin = Duration::from_millis(700);
        plan.rounds = Some(plan.round());
        plan.active = plan.recovery() + 7 * SECOND;
        for client in &mut plan.clients {
            client.wall = (-600, 3000);
        }
        let terms = Terms {
            margin: [Duration::ZERO, HOUR][dice.index(2)],
            ..plan.terms
        };
        for stranger in plan.strangers() {
            stranger.terms = Some(terms);
        }
        plan.hold = 300;
        plan
    }

    pub(super) fn slow(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (6, Fault::Slow),
            (1, Fault::Cut),
            (1, Fault::RestartEmpty),
            (1, Fault::Stop),
        ]);
        plan.ripe = servers / 2 + 1;
        plan.fault_every = dice.range(100, 400) * MS;
        plan
    }

    pub(super) fn pauses(dice: &mut Dice) -> Self {
        let mut plan = Self::base(dice, 3).only(&[(20, Fault::Stop), (1, Fault::Cut)]);
        plan.node_timeout = Duration::from_millis(30);
        plan.fault_every = dice.range(20, 150) * MS;
        plan
    }
}
