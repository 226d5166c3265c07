//! Schedules in which many tasks wait for one lock.

use std::time::Duration;

use super::{Fault, MS, NETWORK, Plan, SECOND, US};
use crate::testing::simulation::dice::Dice;

impl Plan {
    pub(super) fn line(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = usize::try_from(dice.range(1, 3)).unwrap_or(2);
        plan.names = 1;
        plan.terms.max_ttl = Duration::from_secs(4);
        plan.ttl = (400, 2_500);
        // A few ms.
        plan.hold = 10;
        plan.think = 5 * MS;
        plan.lock_delay = Duration::from_millis(500);
        plan.slow = (0, 0);
        plan.abandons = false;
        plan.stall = Some(400 * MS);
        plan
    }

    pub(super) fn line_pushes(dice: &mut Dice) -> Self {
        let mut plan = Self::line(dice).only(&[(4, Fault::Deafen), (1, Fault::SetWall)]);
        plan.pushes = (dice.range(0, 40), dice.range(0, 30), dice.range(0, 20));
        plan.deaf = [0, 0, 20][dice.index(3)];
        plan.fault_every = dice.range(20, 200) * MS;
        // A first term, the request of a waiter that was not called, and a margin.
        plan.stall = Some(8 * SECOND);
        plan
    }

    pub(super) fn line_storm(dice: &mut Dice) -> Self {
        let mut plan = Self::stormy(dice, 3).and(&[(4, Fault::Crash), (8, Fault::Stop)]);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 3;
        plan.names = 1;
        plan.hold = 300;
        plan.think = 5 * MS;
        plan.pushes = (5, 5, 5);
        plan.fault_every = dice.range(30, 150) * MS;
        plan
    }

    pub(super) fn line_partial(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (12, Fault::Partition),
            (2, Fault::Cut),
            (2, Fault::SetWall),
        ]);
        // Nobody forgets a counter, so clients may be far behind. Then tokens are unequal, and have to be raised.
        plan.clients[0].wall = (-3_000, 3_000);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 2;
        plan.names = 1;
        plan.terms.max_ttl = Duration::from_secs(2);
        plan.ttl = (500, 1_500);
        plan.hold = 60;
        plan.think = 5 * MS;
        plan.delay = dice.range(3, 15) * MS;
        plan.pushes = (dice.range(0, 5), dice.range(0, 30), dice.range(0, 10));
        plan.fault_every = dice.range(20, 80) * MS;
        plan
    }

    pub(super) fn line_gone(dice: &mut Dice) -> Self {
        let mut plan = Self::line(dice).only(&[(3, Fault::Crash), (1, Fault::SetWall)]);
        // A waiter that is not near the head asks every 20 s.
        plan.terms.max_ttl = Duration::from_secs(60);
        plan.ttl = (400, 1_500);
        plan.clients.resize(12, plan.clients[0].clone());
        // Only one waiter dies at a time, and no other leaves the queue. Otherwise it could happen that no waiter knows
        // how near the head it is, and the next heartbeat would have to be waited for.
        plan.tasks = 1;
        plan.patient = true;
        plan.gone = 60;
        // At most two die before what they leave behind is over. If the holder and the first two in the queue died, no
        // waiter would know how near the head it is, as above.
        plan.fault_every = 800 * MS;
        plan.rounds = Some((390 * MS, 4 * SECOND));
        plan.active = 9 * SECOND;
        plan.hold = 100;
        plan.think = 100 * MS;
        // Two dead waiters, each with its first term and its lock-delay, and the lease of a third process. This is
        // twice that time.
        plan.stall = Some(8 * SECOND);
        plan
    }

    pub(super) fn line_cut_off(dice: &mut Dice) -> Self {
        let mut plan = Self::line(dice).only(&[(1, Fault::CutOff)]);
        plan.clients.resize(8, plan.clients[0].clone());
        plan.tasks = 2;
        plan.delay = 300 * US;
        plan.patient = true;
        // A waiter without a majority gives up after this.
        plan.terms.max_ttl = Duration::from_secs(12);
        plan.ttl = (400, 1_500);
        plan.hold = 100;
        plan.active = 20 * SECOND;
        plan.fault_every = 4 * SECOND;
        // A first term with its lock-delay, and the next heartbeat of a waiter that is not near the head, a third of 12
        // s.
        plan.stall = Some(5_500 * MS);
        plan
    }

    pub(super) fn line_rights(dice: &mut Dice) -> Self {
        let mut plan = Self::line(dice).only(&[(6, Fault::Withdraw), (4, Fault::Cut)]);
        plan.fault_every = dice.range(10, 60) * MS;
        plan.pushes = (0, 0, dice.range(0, 20));
        // After it no promise about the time of a hand-over is left: the waiters may have to ask.
        plan.stall = None;
        plan
    }

    pub(super) fn line_lasting(dice: &mut Dice) -> Self {
        let mut plan = Self::lasting(dice);
        plan.faults = NETWORK.to_vec();
        plan.clients.resize(4, plan.clients[0].clone());
        plan.tasks = 2;
        plan.names = 1;
        plan
    }
}
