//! A request about a slot that comes late may give up the slot that a later answer has named.

use super::*;
use crate::node::answer::{Answer, Slots};
use crate::{
    base::limit::Limit,
    node::request::{Family, Mode, Pool, Seat, Waiting},
};

fn take(round: u64) -> Arc<Operation> {
    let pool = Pool {
        name: name(),
        family: Family::Permits,
    };
    let seat = Seat {
        limit: Limit {
            version: 1,
            slots: 3,
        },
        mode: Mode::Move,
        ticket: 1,
        term: Duration::from_secs(1),
        life: Duration::from_secs(30),
        channel: "".into(),
    };
    let take = Verb::Acquire {
        ttl: Duration::from_secs(10),
        floor: 1,
        wait: Waiting::Slot(seat),
    };
    Target::Slot(pool, Some(0)).operation(&entry(round), take)
}

/// A TAKE was lost with its connection, and another connection was opened.
fn met_again() -> World {
    let mut world = World::voting();
    let operation = take(1);
    world
        .step(|session, step| session.ask(step, tag(1), &operation))
        .unwrap();
    world.sent();
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.told();
    world.effects.clear();
    world.dial(8);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["handshake", "kill 7"]);
    world
}

fn says(world: &mut World) -> Result<Answer, Silence> {
    let operation = take(1);
    world
        .step(|session, step| session.ask(step, tag(2), &operation))
        .unwrap();
    let reply = Answer::Slots(Slots {
        mine: Some((0, 7)),
        taken: crate::base::taken::Taken::default(),
        version: 1,
        may_take: true,
        ticket: 1,
        next_free: None,
    });
    world.answer(Ok(reply));
    let told = world.told().pop().unwrap();
    assert_eq!(told.0, 2);
    told.1
}

#[test]
fn a_slot_answer_counts_once_the_older_connection_is_killed() {
    let mut world = met_again();
    world.answer(Ok(Answer::Server(server::Reply::Disconnected(true))));
    assert!(says(&mut world).is_ok());
}

#[test]
fn a_slot_answer_is_not_a_vote_if_the_kill_is_not_permitted() {
    let mut world = met_again();
    world.answer(Err(Fault::Withheld("NOPERM no".into())));
    assert_eq!(says(&mut world), Err(Silence::ConnectionLost));
}

#[test]
fn a_slot_answer_is_not_a_vote_if_the_kill_failed() {
    let mut world = met_again();
    world.answer(Err(Fault::Error("ERR".into())));
    assert_eq!(says(&mut world), Err(Silence::ConnectionLost));
}
