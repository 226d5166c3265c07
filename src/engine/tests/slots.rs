//! A slot that was won, and the nodes that do not have it.

use super::*;
use crate::{
    base::{limit::Agreed, taken::Taken},
    engine::wants::Slot,
    node::{
        answer::Slots,
        request::{Family, Pool, Target},
    },
};

/// The state of a node: the slot of this client, and the slot of another owner.
fn slots(mine: Option<u32>, other: Option<u32>) -> Answer {
    let mut taken = Taken::default();
    let all = mine.into_iter().chain(other);
    all.for_each(|slot| taken.set(slot, true));
    Answer::Slots(Slots {
        mine: mine.map(|slot| (slot, 7)),
        taken,
        version: 1,
        may_take: true,
        ticket: 7,
        next_free: Some(Duration::from_secs(5)),
    })
}

fn repaired(stands: bool) -> Answer {
    Answer::Repaired(stands)
}

impl World {
    fn acquire(&mut self) -> Answered {
        let name = Name::new("a").unwrap();
        let pool = Pool {
            name,
            family: Family::Permits,
        };
        let slot = Slot {
            pool,
            agreed: Arc::new(Agreed::new(3)),
            of: 1,
        };
        self.ask(|acquisition| acquisition.request.wants = Wants::Slot(Box::new(slot)))
    }

    /// The requests about slots that were sent: A for TAKE, P for REPAIR, R for RELEASE, E for EXTEND.
    fn sent_of_slots(&mut self) -> Vec<(usize, char)> {
        let effects: Vec<Effect> = std::iter::from_fn(|| self.core.next_effect()).collect();
        self.core.mark_written();
        let sent = effects.into_iter().filter_map(|effect| match effect {
            Effect::Send(node, operation, _) => {
                let command = operation.command();
                let request = command.request().filter(|request| match &request.target {
                    Target::Slot(_, slot) => command.name() != "REPAIR" || *slot == Some(0),
                    _ => false,
                })?;
                Some((node, letter(&request.verb)))
            }
            _ => None,
        });
        sent.collect()
    }

    fn says_of_slots(&mut self, node: usize, said: &[Answer]) {
        let answers = said.iter().cloned().map(Ok);
        self.core.answered(node, answers.collect::<Vec<_>>());
    }

    /// This client has slot 0 on nodes 0 and 1. On node 2 it has slot 1, and slot 0 is another owner's.
    fn won_on_two(&mut self) -> Lease {
        let mut answer = self.acquire();
        assert_eq!(self.sent_of_slots(), [(0, 'A'), (1, 'A'), (2, 'A')]);
        self.says_of_slots(2, &[slots(Some(1), Some(0))]);
        self.says_of_slots(0, &[slots(Some(0), None)]);
        self.says_of_slots(1, &[slots(Some(0), None)]);
        let lease = answer.try_recv().unwrap().unwrap().unwrap();
        assert_eq!(lease.slot(), Some(0));
        lease
    }
}

#[test]
fn a_node_with_another_slot_for_the_winner_gets_the_won_slot() {
    let mut world = World::new(3);
    let lease = world.won_on_two();
    // In this order: the other slot is given back first.
    assert_eq!(world.sent_of_slots(), [(2, 'R'), (2, 'P')]);
    world.says_of_slots(2, &[Answer::Released(true), repaired(true)]);
    assert_eq!(world.sent_of_slots(), []);
    assert!(lease.is_valid());
}

#[test]
fn a_node_that_names_another_slot_late_gets_the_won_slot() {
    let mut world = World::new(3);
    let mut answer = world.acquire();
    world.sent_of_slots();
    for node in [0, 1] {
        world.says_of_slots(node, &[slots(Some(0), None)]);
    }
    let _lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(world.sent_of_slots(), []);
    world.says_of_slots(2, &[slots(None, Some(0))]);
    assert_eq!(world.sent_of_slots(), [(2, 'R'), (2, 'P')]);
}

#[test]
fn a_repair_of_a_slot_held_by_another_gives_up_after_nine_tries() {
    let mut world = World::new(3);
    let lease = world.won_on_two();
    let mut tries = 0;
    let mut said = vec![Answer::Released(true), repaired(false)];
    while world.sent_of_slots().contains(&(2, 'P')) {
        tries += 1;
        world.says_of_slots(2, &said);
        said = vec![repaired(false)];
    }
    assert_eq!(tries, 9);
    assert!(lease.is_valid());
}

#[test]
fn a_released_slot_is_not_repaired() {
    let mut world = World::new(3);
    let lease = world.won_on_two();
    world.sent_of_slots();
    drop(lease);
    world.core.event(Event::Release {
        lease: world.core.first_lease().unwrap(),
        reply: None,
    });
    let sent = world.sent_of_slots();
    assert!(sent.contains(&(2, 'R')), "{sent:?}");
    world.says_of_slots(2, &[Answer::Released(true), repaired(false)]);
    assert!(!world.sent_of_slots().contains(&(2, 'P')));
}

/// For how long a memory must have been watched before it gives units of this limit.
const HISTORY_MS: u64 = 100_000;

impl World {
    /// A caller that waits for a unit of a limit.
    fn wants_a_unit(&mut self) -> Answered {
        let pool = Pool {
            name: Name::new("a").unwrap(),
            family: Family::Units {
                kept: Duration::from_secs(60),
                history: Duration::from_millis(HISTORY_MS),
            },
        };
        let slot = Slot {
            pool,
            agreed: Arc::new(Agreed::new(1)),
            of: 1,
        };
        self.ask(|acquisition| {
            acquisition.request.wants = Wants::Slot(Box::new(slot));
            acquisition.request.wait = Wait::For(None);
        })
    }

    fn takes(&mut self) -> Vec<usize> {
        let sent = self.sent_of_slots().into_iter();
        sent.filter_map(|(node, what)| (what == 'A').then_some(node))
            .collect()
    }
}

#[test]
fn a_memory_that_is_too_young_for_a_limit_is_asked_when_it_is_old_enough() {
    let mut world = World::witnessed(&[HISTORY_MS, HISTORY_MS, HISTORY_MS - 7_000]);
    let _answer = world.wants_a_unit();
    assert_eq!(world.takes(), [0, 1]);
    for node in [0, 1] {
        world.says_of_slots(node, &[slots(None, Some(0))]);
    }
    assert!(world.takes().is_empty());
    world.at(6_999);
    assert!(!world.takes().contains(&2));
    world.at(7_000);
    assert!(world.takes().contains(&2));
}

/// Found by the simulation (LimitsStorm, seed 4025): two units in one interval.
#[test]
fn a_search_that_starts_over_does_not_ask_a_too_young_memory() {
    let mut world = World::witnessed(&[HISTORY_MS; 3]);
    let _answer = world.wants_a_unit();
    assert_eq!(world.takes(), [0, 1, 2]);
    for node in [0, 1, 2] {
        world.says_of_slots(node, &[slots(None, Some(0))]);
    }
    world.dies(1);
    world.dies(2);
    world.takes();
    world.at(600);
    assert_eq!(
        world.sent_of_slots(),
        [(0, 'R')],
        "it stands aside after half a term"
    );
    world.says_of_slots(0, &[Answer::Released(false)]);
    // A majority votes again, and one of these nodes has lost its memory.
    world.comes_back(1, HISTORY_MS - 50_000);
    assert_eq!(world.sent_of_slots(), [(1, 'R')]);
    world.says_of_slots(1, &[Answer::Released(false)]);
    // It has stayed away for a term, and comes back.
    world.at(1_700);
    assert_eq!(world.sent_of_slots(), [(0, 'A')]);
}
