use std::{cell::Cell, sync::Arc};

use super::*;
use crate::{
    base::{name::Name, owner::Label, rules::Rules},
    node::{
        Command,
        kinds::{air::Air, moment::Writes},
        push::{Push, Says},
        request::{Question, Release, Target, Waiting},
    },
};

/// The longest lease is 20 s.
const GUARD: &str = "20000 3 3 word 5000 nonce";
/// A TIME in the middle of a ms.
const T: u64 = 1_760_000_000_000_500;
const CHANNEL: &str = "wake:1";

fn entry(owner: u128) -> Entry {
    Entry::new(uuid::Uuid::from_u128(owner), &Label::new("test").unwrap())
}

fn pool() -> Pool {
    Pool {
        name: Name::new("a").unwrap(),
        family: Family::Permits,
    }
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn seat(limit: u32) -> Seat {
    Seat {
        limit: slots(limit),
        mode: Mode::Pick,
        ticket: 0,
        term: millis(1000),
        life: millis(5000),
        channel: CHANNEL.into(),
    }
}

fn slots(slots: u32) -> Limit {
    Limit { version: 0, slots }
}

fn request(owner: u128, slot: u32, verb: Verb) -> Command {
    Command::Request(Request {
        target: Target::Slot(pool(), Some(slot)),
        entry: entry(owner),
        verb,
    })
}

fn take(owner: u128, seat: Seat, want: u32) -> Command {
    let take = Verb::Acquire {
        ttl: millis(10),
        floor: 0,
        wait: Waiting::Slot(seat),
    };
    request(owner, want, take)
}

fn pick(owner: u128, limit: u32, want: u32) -> Command {
    take(owner, seat(limit), want)
}

struct Node {
    memory: Memory,
    counters: Counters,
    rules: Rules,
    air: Air,
}

impl Node {
    fn new(rules: Rules) -> Self {
        let mut air = Air::default();
        air.subscribe(&Arc::from(CHANNEL));
        Self {
            memory: Memory::default(),
            counters: Counters::default(),
            rules,
            air,
        }
    }

    fn ask(&mut self, command: &Command, time: u64) -> Answer {
        let at = Moment {
            time,
            guard: GUARD,
            rules: self.rules,
            admitted: true,
            writes: Writes::All,
            wrote: &Cell::new(false),
            air: &self.air,
        };
        let counters = &mut self.counters;
        let answer = match command {
            Command::Request(request) => {
                let (pool, slot) = (pool(), request.target.slot());
                self.memory.obey(&pool, slot, request, counters, at)
            }
            Command::Question(Question::InspectPool(pool)) => {
                self.memory.inspect(pool, counters, at)
            }
            other => panic!("{other:?}"),
        };
        answer.unwrap()
    }

    fn mine(&mut self, command: &Command, time: u64) -> Option<(u32, u64)> {
        match self.ask(command, time) {
            Answer::Slots(Slots { mine, .. }) => mine,
            other => panic!("{other:?}"),
        }
    }

    fn pushes(&mut self) -> Vec<Push> {
        self.air.take().into_iter().map(|(_, push)| push).collect()
    }
}

#[test]
fn a_slot_is_held_up_to_the_last_millisecond_of_its_ttl() {
    for (time, next) in [(T + 10_499, 1), (T + 10_500, 0)] {
        let node = &mut Node::new(Rules::ALL);
        assert_eq!(node.mine(&pick(1, 2, 0), T), Some((0, 1)));
        assert_eq!(
            node.memory.holders(time).count(),
            1 - usize::from(next == 0)
        );
        let (slot, _) = node.mine(&pick(2, 2, 0), time).unwrap();
        assert_eq!(slot, next);
    }
}

#[test]
fn a_semaphore_is_forgotten_after_four_max_ttl() {
    let node = &mut Node::new(Rules::ALL);
    node.ask(&pick(1, 2, 0), T);
    let last = T + 80_000_499;
    let conflict = Answer::Conflict(slots(2));
    assert_eq!(node.ask(&pick(1, 3, 0), last), conflict);
    assert_eq!(node.mine(&pick(1, 3, 0), last + 1), Some((0, 2)));
}

#[test]
fn a_script_takes_out_sixty_four_that_have_expired() {
    let node = &mut Node::new(Rules::ALL);
    for owner in 0..70 {
        node.ask(&pick(owner, 70, owner as u32), T);
    }
    let taken = |node: &mut Node, time| match node.ask(&Question::InspectPool(pool()).into(), time)
    {
        Answer::InspectedPool(inspected) => inspected.taken.iter().collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(taken(node, T).len(), 70);
    // Slots that end at the same time go in the order of their texts.
    assert_eq!(taken(node, T + 11_000), [7, 8, 9, 67, 68, 69]);
    assert!(taken(node, T + 11_000).is_empty());
}

#[test]
fn a_called_waiter_is_not_overtaken_within_its_term() {
    for (later, dropped) in [(1_000_499, false), (1_000_500, true)] {
        let node = &mut Node::new(Rules::ALL);
        node.ask(&pick(1, 1, 0), T);
        node.ask(&pick(2, 1, 0), T);
        let release = request(1, 0, Verb::Release(Release::default()));
        node.ask(&release, T);
        let says = Says::Free { slot: 0 };
        let entry = entry(2);
        assert_eq!(node.pushes(), [Push { entry, says }]);
        // Nobody overtakes a waiter that was called.
        let try_it = Seat {
            life: Duration::ZERO,
            ..seat(1)
        };
        let mine = node.mine(&take(3, try_it, 0), T + later);
        assert_eq!(mine.is_some(), dropped, "{later}");
        assert_eq!(node.pushes(), []);
    }
}
