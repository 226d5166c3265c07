//! Schedules in which some lock several names at once, which others lock one by one.

use std::time::Duration;

use super::{Fault, MS, NETWORK, Plan};
use crate::testing::simulation::dice::Dice;

impl Plan {
    /// Sets that overlap, in whatever order, and nothing is wrong.
    pub(super) fn several_calm(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        plan.together(dice);
        plan.terms.max_ttl = Duration::from_secs(4);
        plan.ttl = (400, 2_500);
        // Some 10 ms.
        plan.hold = 15;
        plan.lock_delay = Duration::from_millis(500);
        plan.slow = (0, 0);
        plan.abandons = false;
        plan.stall = Some(400 * MS);
        plan
    }

    fn together(&mut self, dice: &mut Dice) {
        self.names = [2, 3, 5][dice.index(3)];
        self.several = [30, 60, 100][dice.index(3)];
        self.clients.resize(4, self.clients[0].clone());
        self.tasks = usize::try_from(dice.range(1, 2)).unwrap_or(1);
        self.think = 10 * MS;
    }

    pub(super) fn several_pushes(dice: &mut Dice) -> Self {
        let mut plan = Self::several_calm(dice).only(&[(4, Fault::Deafen), (1, Fault::SetWall)]);
        plan.pushes = (dice.range(0, 40), dice.range(0, 30), dice.range(0, 20));
        plan.deaf = [0, 0, 20][dice.index(3)];
        plan.fault_every = dice.range(20, 200) * MS;
        // As in lines of single names.
        plan.stall = Some(8_000 * MS);
        plan
    }

    pub(super) fn several_storm(dice: &mut Dice) -> Self {
        let servers = [3, 3, 5][dice.index(3)];
        let mut plan = Self::stormy(dice, servers).and(&[(4, Fault::Crash), (8, Fault::Stop)]);
        plan.together(dice);
        plan.hold = [300, 1_500][dice.index(2)];
        plan.pushes = (5, 5, 5);
        plan.fault_every = dice.range(30, 150) * MS;
        plan
    }

    /// Each reaches other servers than the others.
    pub(super) fn several_partial(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (12, Fault::Partition),
            (2, Fault::Cut),
            (1, Fault::SetWall),
        ]);
        plan.together(dice);
        plan.terms.max_ttl = Duration::from_secs(2);
        plan.ttl = (500, 1_500);
        plan.hold = [60, 800][dice.index(2)];
        plan.delay = dice.range(3, 15) * MS;
        plan.pushes = (dice.range(0, 5), dice.range(0, 30), dice.range(0, 10));
        plan.fault_every = dice.range(20, 80) * MS;
        plan
    }

    /// Nothing expires: who leaves has to tell.
    pub(super) fn several_lasting(dice: &mut Dice) -> Self {
        let mut plan = Self::lasting(dice);
        plan.faults = NETWORK.to_vec();
        plan.together(dice);
        plan
    }

    /// Many answers take about as long as is waited for them.
    pub(super) fn several_sluggish(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (6, Fault::Cut),
            (2, Fault::Pause),
            (3, Fault::SetWall),
            (1, Fault::Stop),
        ]);
        plan.together(dice);
        plan.node_timeout = Duration::from_millis([20, 100][dice.index(2)]);
        plan.delay = dice.range(8, 20) * MS;
        plan.slow = (dice.range(40, 300), 100 * MS);
        plan.hold = 300;
        plan.fault_every = dice.range(40, 100) * MS;
        plan
    }

    /// Operators free single names of those that are held together.
    pub(super) fn several_evicted(dice: &mut Dice) -> Self {
        let mut plan = Self::base(dice, 3).only(&[
            (10, Fault::Partition),
            (2, Fault::Cut),
            (1, Fault::SetWall),
        ]);
        plan.together(dice);
        plan.operators = true;
        plan.exclusion = false;
        plan.renews = 100;
        plan.hold = 5_000;
        plan.think = 40 * MS;
        plan.delay = 15 * MS;
        plan.slow = (100, 80 * MS);
        plan.node_timeout = Duration::from_millis(120);
        plan
    }
}
