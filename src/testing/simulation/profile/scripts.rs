//! Schedules with a given skeleton, in which only the times are random. They find faults that need many exact steps
//! within few schedules.

use std::time::Duration;

use super::{Fault, MS, Plan, SECOND, Slots, Start, Watch};
use crate::{
    node::admission::Terms,
    testing::simulation::{dice::Dice, script::Act, world::Memory},
};

impl Plan {
    /// No faults except those of the script.
    fn scripted(dice: &mut Dice, servers: usize, clients: usize) -> Self {
        let mut plan = Self::base(dice, servers).only(&[(1, Fault::SetWall)]);
        plan.clients.resize(clients, plan.clients[0].clone());
        plan.names = 1;
        plan.tasks = 1;
        plan.hold = 3000;
        plan.renews = 90;
        plan.downtime = 20 * MS;
        plan.think = 50 * MS;
        plan.abandons = false;
        plan
    }

    fn then(&mut self, at: u64, act: Act) {
        self.script.push((at * MS, act));
    }

    fn longer(&self, factor: u32) -> Terms {
        Terms {
            max_ttl: self.terms.max_ttl * factor,
            ..self.terms
        }
    }

    pub(super) fn raise(dice: &mut Dice) -> Self {
        let mut plan = Self::base(dice, 3).only(&[
            (3, Fault::Cut),
            (2, Fault::Freeze),
            (2, Fault::Partition),
            (3, Fault::Crash),
        ]);
        plan.clients.resize(4, plan.clients[0].clone());
        plan.terms.max_ttl = Duration::from_millis(800);
        plan.ttl = (300, 800);
        let more = plan.longer(4);
        plan.raised = Some(more);
        // These clients are the operator, and the client that asks for more.
        for client in &mut plan.clients[2..] {
            client.terms = Some(more);
            client.fit = false;
        }
        plan.clients[2].idle = true;
        plan.clients[3].ttl = Some((2_000, 3_200));
        plan.clients[3].after_raise = dice.percent(70);
        if plan.clients[3].after_raise {
            // A client that asks for more while the raise is half done is not protected from losses.
            plan = plan.and(&[(3, Fault::RestartEmpty), (2, Fault::RestartKept)]);
        }
        for n in 0..3 {
            let at = dice.range(n * 2_500, n * 2_500 + 1_500);
            // Each of them raises the terms of a fleet that votes.
            plan.then(
                at,
                [Act::Raise(2), Act::Bootstrap(2)][dice.index(2)].clone(),
            );
            if dice.percent(50) {
                plan.then(at + dice.range(0, 20), Act::Crash(2));
            }
        }
        plan.hold = 3000;
        plan.long = 0;
        plan.downtime = 40 * MS;
        plan.fault_every = dice.range(200, 800) * MS;
        plan.active = 10 * SECOND;
        plan
    }

    pub(super) fn stale(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 4);
        plan.terms.max_ttl = Duration::from_millis(400);
        plan.ttl = (200, 400);
        let more = plan.longer(15);
        plan.raised = Some(more);
        for client in &mut plan.clients[2..] {
            client.terms = Some(more);
            client.fit = false;
        }
        plan.clients[2].idle = true;
        plan.clients[3].ttl = Some((5_000, 6_000));
        plan.clients[3].after_raise = true;
        plan.think = 8 * SECOND;
        plan.hold = 1_000;
        let raise = dice.range(300, 3_000);
        plan.then(raise, Act::Bootstrap(2));
        plan.then(raise + 30, Act::See(2, vec![]));
        plan.then(raise + 50, Act::See(3, vec![0, 1]));
        let at = raise + dice.range(200, 400);
        plan.then(at, Act::Restart(2, Memory::Empty));
        let again = at + dice.range(1_100, 2_500);
        plan.then(again, Act::See(3, vec![0]));
        plan.then(again, Act::Restart(1, Memory::Empty));
        plan.ripe = 2;
        plan.active = 9 * SECOND;
        plan
    }

    pub(super) fn raised_disk(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 4);
        plan.terms.max_ttl = Duration::from_millis(800);
        plan.ttl = (300, 800);
        let more = plan.longer(5);
        plan.raised = Some(more);
        for client in &mut plan.clients[2..] {
            client.terms = Some(more);
            client.fit = false;
        }
        plan.clients[2].idle = true;
        plan.clients[3].ttl = Some((3_000, 4_000));
        plan.clients[3].after_raise = true;
        for s in 0..3 {
            plan.then(0, Act::Save(s));
        }
        let raise = dice.range(300, 3_000);
        plan.then(raise, Act::Bootstrap(2));
        let at = raise + dice.range(800, 3_000);
        for s in 0..3 {
            plan.then(at, Act::Restart(s, Memory::Saved));
        }
        plan.active = 9 * SECOND;
        plan
    }

    pub(super) fn rolling(dice: &mut Dice) -> Self {
        let servers = [3, 5][dice.index(2)];
        let mut plan = Self::scripted(dice, servers, 3);
        plan.slow = (0, 0);
        plan.renews = 100;
        plan.hold = 200_000;
        // Until then the master votes again, every client has met it, and the next two renewals have come.
        let each = plan.quarantine() / MS + 1_500;
        let mut at = 1_500;
        for s in 0..servers {
            let memory = [Memory::Empty, Memory::Kept][dice.index(2)];
            plan.then(at, Act::Restart(s, memory));
            at += each;
        }
        plan.endures = Some(500 * MS);
        plan.watch = Watch::All;
        plan.active = at * MS;
        plan
    }

    pub(super) fn line_failover(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 4);
        plan.tasks = 2;
        plan.terms.max_ttl = Duration::from_millis(800);
        plan.ttl = (600, 800);
        // A lease that nobody renews is not put back on a node that has lost it.
        plan.renews = 0;
        plan.hold = 900;
        plan.think = 5 * MS;
        plan.slow = (0, 0);
        plan.active = 6 * SECOND;
        let z = plan.quarantine() / MS;
        for at in [500, 3_500] {
            plan.then(at, Act::Restart(1, Memory::Empty));
            // Until then the master votes again, and hands its lock from one waiter to the next.
            plan.then(at + z + dice.range(0, 150), Act::Follow(0, 1));
        }
        plan
    }

    pub(super) fn early(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 3);
        plan.terms.max_ttl = Duration::from_millis(400);
        plan.clients[2].terms = Some(plan.longer(10));
        plan.clients[2].ttl = Some((3_000, 4_000));
        plan.clients[2].fit = false;
        plan.hold = 6000;
        for s in 0..2 {
            let at = dice.range(1_000 + 1_700 * s, 2_500 + 1_700 * s);
            plan.then(at, Act::Restart(dice.index(3), Memory::Empty));
        }
        plan.ripe = 2;
        plan.active = 6 * SECOND;
        plan
    }

    pub(super) fn lonely(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 3);
        plan.terms.max_ttl = Duration::from_secs(5);
        plan.ttl = (4_000, 5_000);
        plan.clients[2].terms = Some(Terms {
            max_ttl: Duration::from_millis(600),
            ..plan.terms
        });
        plan.clients[2].ttl = Some((300, 600));
        plan.clients[2].fit = false;
        for c in 0..2 {
            plan.then(0, Act::See(c, vec![1, 2]));
        }
        plan.then(0, Act::See(2, vec![]));
        plan.then(100, Act::Restart(0, Memory::Empty));
        plan.then(150, Act::See(2, vec![0]));
        plan.then(150, Act::Crash(2));
        // If the witness of a client alone does not count, the first master does not vote by then.
        let at = dice.range(2_000, 4_000);
        plan.then(at, Act::Restart(1, Memory::Empty));
        for c in 0..2 {
            plan.then(at, Act::See(c, vec![2]));
        }
        plan.then(at, Act::See(2, vec![0, 1]));
        plan.then(at + 50, Act::Crash(2));
        plan.ripe = 2;
        plan.active = 9 * SECOND;
        plan
    }

    pub(super) fn no_margin(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 3);
        plan.terms = Terms {
            max_ttl: Duration::from_secs(1),
            margin: Duration::from_millis(700),
        };
        plan.clients[2].terms = Some(Terms {
            margin: Duration::ZERO,
            ..plan.terms
        });
        plan.clients[2].fit = false;
        plan.clients[2].wall = (-600, -300);
        for client in &mut plan.clients[..2] {
            client.wall = (900, 950);
        }
        plan.hold = 100;
        plan.then(0, Act::See(2, vec![]));
        let at = dice.range(200, 600);
        plan.then(at, Act::Restart(0, Memory::Empty));
        plan.then(at, Act::Restart(1, Memory::Empty));
        plan.then(at, Act::See(2, vec![0, 1]));
        plan.then(at, Act::Crash(2));
        plan.active = 4 * SECOND;
        plan
    }

    /// Two of three masters are emptied, and their clocks go back before they vote again. They are set right in the
    /// end.
    pub(super) fn set_back(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 3);
        plan.terms.max_ttl = Duration::from_millis(800);
        plan.ttl = (200, 600);
        plan.hold = 300;
        let at = dice.range(300, 1_200);
        for s in 0..2 {
            plan.then(at, Act::Restart(s, Memory::Empty));
            let back = dice.signed(-60_000, -1_000);
            plan.then(at + dice.range(30, 700), Act::Step(s, back));
        }
        plan.active = 5 * SECOND;
        plan
    }

    pub(super) fn from_disk(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 2);
        plan.terms.max_ttl = Duration::from_secs(8);
        plan.ttl = (7_000, 8_000);
        plan.clients[1].terms = Some(Terms {
            max_ttl: Duration::from_millis(600),
            ..plan.terms
        });
        plan.clients[1].ttl = Some((300, 600));
        plan.clients[1].fit = false;
        plan.then(0, Act::See(1, vec![]));
        for s in 0..3 {
            plan.then(0, Act::Save(s));
        }
        let at = dice.range(300, 1_000);
        let empty = dice.index(3);
        for s in 0..3 {
            let memory = if s == empty {
                Memory::Empty
            } else {
                Memory::Saved
            };
            plan.then(at, Act::Restart(s, memory));
        }
        plan.then(at, Act::See(0, vec![]));
        plan.then(at, Act::See(1, vec![0, 1, 2]));
        plan.then(at, Act::Crash(1));
        plan.hold = 5000;
        plan.active = 11 * SECOND;
        // The schedule looks for two holders before it makes any other check.
        plan.clients[0].fit = false;
        plan
    }

    pub(super) fn resized(dice: &mut Dice) -> Self {
        let mut plan = Self::stormy(dice, 5);
        plan.fleet = 3;
        plan.start = Start::Restarted;
        plan.faults
            .retain(|(_, fault)| !matches!(fault, Fault::RestartWrongClock));
        plan.watch = Watch::All;
        plan
    }

    pub(super) fn grown(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 5, 4);
        plan.fleet = 3;
        for client in &mut plan.clients[..2] {
            client.servers = vec![0, 1, 2];
        }
        for client in &mut plan.clients[2..] {
            client.fit = false;
        }
        plan.hold = 6000;
        let at = dice.range(300, 600);
        for c in 0..2 {
            plan.then(at, Act::See(c, vec![0, 1]));
        }
        plan.then(at, Act::Restart(2, Memory::Empty));
        plan.active = 5 * SECOND;
        plan
    }

    /// A resize does not reach one master. Then another master is emptied. A client that has not heard of the resize
    /// asks these two.
    pub(super) fn missed_resize(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 3);
        plan.slots = Some(Slots::of(3));
        plan.terms.max_ttl = Duration::from_millis(800);
        plan.ttl = (300, 600);
        plan.think = 20 * MS;
        plan.hold = 200;
        let at = dice.range(300, 600);
        plan.then(at, Act::See(1, vec![]));
        plan.then(at, Act::See(2, vec![]));
        plan.then(at, Act::See(0, vec![0, 1]));
        plan.then(at + 20, Act::Resize(0, 1));
        // Waiters in the queue give up what they have. Then nobody is left who could tell the new limit.
        let at = at + dice.range(700, 900);
        plan.then(at, Act::Restart(0, Memory::Empty));
        plan.then(at + 50, Act::See(0, vec![0, 1, 2]));
        plan.clients[0].idle = true;
        let at = at + plan.quarantine() / MS + dice.range(200, 600);
        for c in 0..2 {
            plan.then(at, Act::See(c + 1, vec![0, 2]));
        }
        plan.active = 5 * SECOND;
        plan
    }

    /// Each master that the third client asks knows one of the other two holders. With the lower limit the third does
    /// not fit beside both.
    pub(super) fn shrunk_slots(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 4);
        plan.slots = Some(Slots::of(3));
        plan.clients[3].idle = true;
        plan.terms.max_ttl = Duration::from_secs(4);
        plan.ttl = (500, 1_000);
        plan.hold = 6_000;
        plan.renews = 100;
        plan.then(0, Act::See(0, vec![0, 2]));
        plan.then(0, Act::See(1, vec![1, 2]));
        plan.then(0, Act::See(2, vec![]));
        let at = dice.range(200, 900);
        plan.then(at, Act::Resize(3, 2));
        // The third client is started again, with the new limit.
        plan.then(at + 10, Act::Crash(2));
        plan.then(at + dice.range(11, 40), Act::See(2, vec![0, 1]));
        plan.active = 2 * SECOND;
        plan
    }

    /// New masters, two clients of one fleet, and a client of another fleet that asks for no lock.
    fn two_fleets(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 3);
        plan.start = Start::Fresh;
        plan.terms.max_ttl = Duration::from_secs(3);
        plan.ttl = (500, 1_000);
        plan.clients[2].list = "other".into();
        plan.clients[2].fit = false;
        plan.clients[2].idle = true;
        plan.watch = Watch::All;
        plan
    }

    pub(super) fn looked(dice: &mut Dice) -> Self {
        let mut plan = Self::two_fleets(dice);
        // To itself the third client is a whole fleet of two. It leaves before its masters could come to vote.
        plan.clients[2].servers = vec![0, 1];
        for c in 0..2 {
            plan.then(0, Act::See(c, vec![]));
        }
        let gone = dice.range(100, 2_000);
        plan.then(gone, Act::See(2, vec![]));
        let come = dice.range(50, gone + 1_000);
        for c in 0..2 {
            plan.then(come, Act::See(c, vec![0, 1, 2]));
        }
        // By then the fleet votes, so the other one may come back.
        plan.active = 12 * SECOND;
        plan
    }

    pub(super) fn visited(dice: &mut Dice) -> Self {
        let mut plan = Self::two_fleets(dice);
        // This quarantine is longer than it takes until a client that stays may replace a record.
        plan.terms.max_ttl = Duration::from_secs(7);
        plan.then(0, Act::See(2, vec![]));
        let come = dice.range(200, 2_500);
        plan.then(come, Act::See(2, vec![0, 1, 2]));
        plan.active = 12 * SECOND;
        plan
    }

    pub(super) fn minutes(dice: &mut Dice) -> Self {
        let mut plan = Self::scripted(dice, 3, 1);
        plan.terms.max_ttl = Duration::from_secs(600);
        plan.ttl = (1_000, 2_000);
        plan.hold = 500;
        plan.think = 60 * SECOND;
        plan.start = Start::Fresh;
        plan.fault_every = 100 * SECOND;
        plan.active = SECOND;
        plan.watch = Watch::All;
        plan
    }
}
