//! Schedules in which many ask for the slots of a semaphore.

use std::time::Duration;

use super::{Fault, MS, NETWORK, Plan, SECOND};
use crate::testing::simulation::dice::Dice;

/// How semaphores are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    /// As programs are made.
    pub(crate) limit: u32,
    /// How many of a hundred ask for several slots at once.
    pub(crate) many: u64,
    /// How many of a hundred calls change the limit.
    pub(crate) resizes: u64,
    /// Programs of odd clients are made with this limit. They begin when the others have told theirs.
    pub(crate) other: Option<u32>,
}

impl Slots {
    /// One by one.
    pub(super) fn of(limit: u32) -> Self {
        Self {
            limit,
            many: 0,
            resizes: 0,
            other: None,
        }
    }
}

const LIMITS: [u32; 4] = [1, 2, 3, 10];

impl Plan {
    /// Many more ask than may hold, and nothing is wrong.
    pub(super) fn slots(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        let limit = LIMITS[dice.index(LIMITS.len())];
        plan.crowd(limit, dice);
        plan.terms.max_ttl = Duration::from_secs(4);
        plan.ttl = (400, 2_500);
        // A few ms.
        plan.hold = 15;
        plan.lock_delay = Duration::from_millis(500);
        plan.slow = (0, 0);
        plan.abandons = false;
        plan.stall = Some(400 * MS);
        plan
    }

    /// Four clients, and twice as many tasks as slots.
    fn crowd(&mut self, limit: u32, dice: &mut Dice) {
        self.clients.resize(4, self.clients[0].clone());
        let tasks = u64::from(limit).div_ceil(2);
        self.tasks = usize::try_from(dice.range(tasks.max(1), tasks + 2)).unwrap_or(2);
        self.names = 1;
        self.think = 5 * MS;
        self.slots = Some(Slots::of(limit));
    }

    fn how(&mut self, change: impl FnOnce(&mut Slots)) {
        if let Some(slots) = &mut self.slots {
            change(slots);
        }
    }

    /// Some ask for several at once.
    pub(super) fn slots_many(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice);
        plan.how(|slots| slots.many = 40);
        plan
    }

    pub(super) fn slots_pushes(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice).only(&[(4, Fault::Deafen), (1, Fault::SetWall)]);
        plan.pushes = (dice.range(0, 40), dice.range(0, 30), dice.range(0, 20));
        plan.deaf = [0, 0, 20][dice.index(3)];
        plan.fault_every = dice.range(20, 200) * MS;
        // A first term, the ask of one who was not called, and what is put on top.
        plan.stall = Some(8 * SECOND);
        plan
    }

    pub(super) fn slots_storm(dice: &mut Dice) -> Self {
        let servers = [3, 3, 5][dice.index(3)];
        let mut plan = Self::stormy(dice, servers).and(&[(4, Fault::Crash), (8, Fault::Stop)]);
        let limit = LIMITS[dice.index(3)];
        plan.crowd(limit, dice);
        let many = [0, 30][dice.index(2)];
        plan.how(|slots| slots.many = many);
        plan.hold = 300;
        plan.pushes = (5, 5, 5);
        plan.fault_every = dice.range(30, 150) * MS;
        plan
    }

    /// Each reaches other servers than the others.
    pub(super) fn slots_partial(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[
            (12, Fault::Partition),
            (2, Fault::Cut),
            (1, Fault::SetWall),
        ]);
        let limit = LIMITS[dice.index(3)];
        plan.crowd(limit, dice);
        plan.terms.max_ttl = Duration::from_secs(2);
        plan.ttl = (500, 1_500);
        plan.hold = 60;
        plan.delay = dice.range(3, 15) * MS;
        plan.pushes = (dice.range(0, 5), dice.range(0, 30), dice.range(0, 10));
        plan.fault_every = dice.range(20, 80) * MS;
        plan
    }

    /// Processes die while they hold and while they wait, and servers do not notice.
    pub(super) fn slots_gone(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice).only(&[(3, Fault::Crash), (1, Fault::SetWall)]);
        plan.ttl = (400, 1_500);
        plan.patient = true;
        plan.gone = 60;
        plan.fault_every = 800 * MS;
        plan.rounds = Some((390 * MS, 4 * SECOND));
        plan.active = 9 * SECOND;
        plan.hold = 100;
        plan.think = 50 * MS;
        plan.stall = Some(8 * SECOND);
        plan
    }

    /// Nothing expires: who leaves has to tell.
    pub(super) fn slots_lasting(dice: &mut Dice) -> Self {
        let mut plan = Self::lasting(dice);
        plan.faults = NETWORK.to_vec();
        let limit = LIMITS[dice.index(3)];
        plan.crowd(limit, dice);
        let many = [0, 30][dice.index(2)];
        plan.how(|slots| slots.many = many);
        plan
    }

    /// Operators change the limit while nothing else is wrong.
    pub(super) fn resized_slots(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice);
        let many = [0, 30][dice.index(2)];
        plan.how(|slots| (slots.resizes, slots.many) = (4, many));
        // What nobody uses is not forgotten before the end.
        plan.terms.max_ttl = Duration::from_secs(60);
        plan
    }

    /// Operators change the limit, and servers are lost one by one meanwhile.
    pub(super) fn resized_storm(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice).only(&[
            (2, Fault::RestartEmpty),
            (2, Fault::Errors),
            (3, Fault::Cut),
            (2, Fault::Freeze),
            (2, Fault::Partition),
            (1, Fault::Flush),
        ]);
        let limit = LIMITS[1 + dice.index(2)];
        plan.crowd(limit, dice);
        let many = [0, 30][dice.index(2)];
        plan.how(|slots| (slots.resizes, slots.many) = (4, many));
        plan.terms.max_ttl = Duration::from_millis(dice.range(600, 1_000));
        plan.ttl = (200, 600);
        plan.hold = 300;
        plan.stall = None;
        plan.ripe = plan.servers / 2 + 1;
        plan.active = 4 * SECOND;
        plan.fault_every = dice.range(50, 200) * MS;
        plan
    }

    /// Many answers take about as long as is waited for them.
    pub(super) fn slots_sluggish(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        let limit = LIMITS[dice.index(2)];
        plan.crowd(limit, dice);
        plan.tasks = 3;
        plan.terms.max_ttl = Duration::from_secs(2);
        plan.ttl = (500, 1_500);
        plan.hold = 300;
        plan.node_timeout = Duration::from_millis(200);
        plan.delay = dice.range(8, 20) * MS;
        plan.slow = (dice.range(100, 400), 100 * MS);
        plan
    }

    /// Programs are made with different limits.
    pub(super) fn two_limits(dice: &mut Dice) -> Self {
        let mut plan = Self::slots(dice);
        let other = LIMITS[dice.index(LIMITS.len())];
        plan.how(|slots| slots.other = Some(other));
        // As above.
        plan.terms.max_ttl = Duration::from_secs(60);
        plan
    }
}
