//! Schedules in which many ask for units of a rate limit.

use std::time::Duration;

use super::{Fault, MS, Plan, SECOND};
use crate::testing::simulation::dice::Dice;

/// How rate limits are used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) limit: u32,
    pub(crate) period: Duration,
    /// In a longer interval too.
    pub(crate) and: Option<(u32, Duration)>,
    /// A limit up to this is kept as slots, also where there are more units than servers.
    pub(crate) slots_up_to: u32,
    /// So many are taken at a time.
    pub(crate) block: Option<u32>,
    /// How many of a hundred wait.
    pub(crate) wait: u64,
}

const LIMITS: [u32; 5] = [1, 2, 3, 7, 20];

impl Plan {
    /// Many more ask than there are units, and nothing is wrong.
    pub(super) fn limits(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        Self::limits_of(dice, servers)
    }

    fn limits_of(dice: &mut Dice, servers: usize) -> Self {
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        let limit = LIMITS[dice.index(LIMITS.len())];
        let period = Duration::from_millis(dice.range(100, 1_000));
        plan.clients.resize(3, plan.clients[0].clone());
        plan.tasks = 2;
        plan.names = 1;
        plan.think = 2 * nanos(period) / u64::from(limit) + MS;
        plan.terms.max_ttl = Duration::from_millis(300);
        plan.active = 4 * SECOND;
        plan.hold = 15;
        plan.slow = (dice.range(0, 30), 100 * MS);
        plan.limits = Some(Limits {
            limit,
            period,
            and: dice.percent(25).then(|| (limit * 2, period * 4)),
            slots_up_to: 0,
            block: None,
            wait: [0, 30, 60][dice.index(3)],
        });
        plan
    }

    /// Units are taken in blocks.
    pub(super) fn limits_in_blocks(dice: &mut Dice) -> Self {
        let mut plan = Self::limits_storm(dice);
        if let Some(limits) = &mut plan.limits {
            limits.limit = [7, 20][dice.index(2)];
            limits.and = None;
            limits.block = Some(u32::try_from(dice.range(1, 7)).unwrap_or(1));
        }
        plan
    }

    /// Servers lose what they have counted, or have it again as it was; connections break, processes stand still and die.
    pub(super) fn limits_storm(dice: &mut Dice) -> Self {
        let calm = Self::limits(dice);
        let mut plan = Self::stormy(dice, calm.servers).and(&[
            (4, Fault::RestartEmpty),
            (3, Fault::RestartOld),
            (3, Fault::Stop),
            (3, Fault::Save),
        ]);
        (plan.clients, plan.tasks, plan.names) = (calm.clients, calm.tasks, calm.names);
        (plan.limits, plan.think, plan.hold) = (calm.limits, calm.think, calm.hold);
        plan.terms.max_ttl = Duration::from_millis(300);
        if let Some(limits) = &mut plan.limits {
            limits.period = Duration::from_millis([200, 1_000][dice.index(2)]);
            limits.and = limits.and.map(|(limit, _)| (limit, limits.period * 3));
        }
        plan.active = 8 * SECOND;
        plan.downtime = 100 * MS;
        plan.fault_every = dice.range(60, 300) * MS;
        plan
    }

    /// A limit of few units, each of which is a slot.
    pub(super) fn limits_small(dice: &mut Dice) -> Self {
        let mut plan = Self::limits_storm(dice);
        if let Some(limits) = &mut plan.limits {
            limits.limit = [5, 7, 12][dice.index(3)];
            limits.slots_up_to = 16;
        }
        plan
    }

    /// One server is so far away that the grace of its units has to be longer, or that they cannot be used at all.
    pub(super) fn limits_far(dice: &mut Dice) -> Self {
        let mut plan = Self::limits_storm(dice);
        plan.far = dice.range(5, 120) * MS;
        if let Some(limits) = &mut plan.limits {
            limits.limit = [7, 20][dice.index(2)];
        }
        plan
    }

    /// Servers' clocks go back.
    pub(super) fn limits_back(dice: &mut Dice) -> Self {
        // With one server each unit that is too many is seen.
        let servers = [1, 1, 3][dice.index(3)];
        let mut plan = Self::limits_of(dice, servers);
        plan = plan.only(&[(4, Fault::SlipBack), (1, Fault::Cut)]);
        if let Some(limits) = &mut plan.limits {
            // No slots: what is known of a semaphore lives by the clock that goes back.
            limits.limit = match servers {
                1 => [1, 7, 20][dice.index(3)],
                _ => [5, 7, 20][dice.index(3)],
            };
            limits.period = Duration::from_millis(dice.range(100, 400));
            limits.wait = 20;
            limits.and = None;
        }
        plan.think = 10 * MS;
        plan.tasks = 4;
        // However far a clock has slipped, its node is counted.
        plan.terms.max_ttl = Duration::from_secs(30);
        plan.fault_every = dice.range(20, 200) * MS;
        // Answers that come too late to be used: what they give goes back late.
        plan.node_timeout = Duration::from_millis(500);
        plan.slow = (dice.range(100, 300), 300 * MS);
        plan
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}
