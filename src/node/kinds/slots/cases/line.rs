//! Waiters, and which of them may take a slot.

use tokio::time::sleep;

use super::*;

pub(super) async fn a_later_waiter_queues_behind_earlier_ones(trial: &mut Trial<'_>) {
    fill(trial, 1).await;
    let standing = |owner, ticket| pick(&(owner, seat(ticket)), 1, 0);
    for (owner, ticket, its) in [(5, 50, 50), (6, 40, 51), (7, 51, 52), (8, 90, 90)] {
        let answer = ask(trial, standing(owner, ticket)).await;
        assert_eq!((answer.mine, answer.ticket), (None, its), "{owner}");
    }
    // A waiter that asks again keeps its place. If another node gave it a greater ticket, it gets that one, but never a
    // smaller one.
    for (mode, ticket, its) in [
        (Mode::Pick, 99, 51),
        (Mode::Move, 99, 99),
        (Mode::Move, 40, 99),
    ] {
        let again = take(&(6, seat(ticket)), 1, mode, Some(0));
        assert_eq!(ask(trial, again).await.ticket, its);
    }
    // A waiter that has asked another node already has a ticket. Of equal tickets the smaller entry comes first.
    for (owner, ticket, in_gate) in [(9, 45, true), (4, 51, false), (3, 90, false)] {
        let answer = ask(trial, wait(&(owner, seat(ticket)), 1)).await;
        assert_eq!(
            (answer.ticket, answer.may_take),
            (ticket, in_gate),
            "{owner}"
        );
    }
    assert_eq!(in_line(trial).await, owners(&[9, 5, 4, 7, 3, 8, 6]));
    // The waiter that entered the gate by that is told.
    let told = Push {
        entry: entry(7),
        says: Says::Called,
    };
    assert_eq!(trial.pushes().await, [told]);
    // The tickets tell for how long they have waited.
    let waited = trial.wall_us().await - 60_000_000;
    ask(trial, wait(&(1, seat(waited)), 1)).await;
    let (who, waited) = inspected(trial).await.line.pop().unwrap();
    assert_eq!(who, entry(1).as_str());
    assert!(waited.abs_diff(secs(60)) < secs(5), "{waited:?}");
}

pub(super) async fn the_gate_is_a_third_of_the_slots(trial: &mut Trial<'_>) {
    for (version, limit, gate) in [(0, 1, 2), (1, 6, 2), (2, 7, 3), (3, 9, 3), (4, 10, 4)] {
        say(trial, resize(version, limit)).await;
        for owner in 0..5 {
            // Without a channel they are not called, and stay in the queue.
            let stands = (
                owner,
                Seat {
                    channel: "".into(),
                    ..seat(owner as u64)
                },
            );
            let answer = ask(trial, wait(&stands, limit)).await;
            assert_eq!(answer.may_take, owner < gate, "{owner} of {limit}");
        }
    }
    // Any waiter in the gate takes a free slot, and no other one does.
    for (owner, slot) in [(4, None), (3, Some(7)), (0, Some(2))] {
        let taken = mine(trial, to(&(owner, seat(0)), 10, slot.unwrap_or(5))).await;
        assert_eq!(taken.map(|(slot, _)| slot), slot, "{owner}");
    }
    assert_eq!(in_line(trial).await, owners(&[1, 2, 4]));
}

pub(super) async fn a_request_outside_the_queue_overtakes_no_waiter(trial: &mut Trial<'_>) {
    let polls = |owner, ticket| {
        (
            owner,
            Seat {
                channel: "".into(),
                ..seat(ticket)
            },
        )
    };
    fill(trial, 3).await;
    mine(trial, wait(&polls(1, 50), 3)).await;
    say(trial, release(101)).await;
    // One slot is free, and one entry waits.
    let second = ask(trial, pick(&polls(2, 60), 3, 0)).await;
    assert_eq!((second.mine, second.may_take), (None, true));
    assert_eq!(in_line(trial).await, owners(&[1, 2]));
    // Once in the queue it may take the slot, because its place is in the gate.
    assert_eq!(mine(trial, to(&polls(2, 60), 3, 0)).await, Some((0, P + 1)));
    // Two slots are free, and one entry waits.
    say(trial, release(102)).await;
    say(trial, release(103)).await;
    let third = ask(trial, pick(&polls(3, 60), 3, 1)).await;
    assert_eq!((third.mine, third.ticket), (Some((1, P + 1)), 60));
    assert_eq!(in_line(trial).await, owners(&[1]));
    // Beyond the gate nobody takes a slot, no matter how many are free.
    say(trial, resize(1, 6)).await;
    mine(trial, wait(&polls(4, 70), 6)).await;
    let fifth = ask(trial, pick(&polls(5, 80), 6, 4)).await;
    assert_eq!((fifth.mine, fifth.may_take), (None, false));
}

pub(super) async fn a_try_does_not_overtake(trial: &mut Trial<'_>) {
    let polls = (
        1,
        Seat {
            channel: "".into(),
            life: millis(1_000),
            ..seat(50)
        },
    );
    fill(trial, 3).await;
    mine(trial, wait(&polls, 3)).await;
    for owner in [101, 102, 103] {
        say(trial, release(owner)).await;
    }
    for mode in [Mode::Pick, Mode::Move] {
        let tried = ask(trial, take(&once(2), 3, mode, Some(0))).await;
        assert_eq!((tried.mine, tried.ticket), (None, 0));
    }
    assert_eq!(in_line(trial).await, owners(&[1]));
    // A dead waiter does not block it.
    sleep(millis(1_050)).await;
    assert_eq!(mine(trial, pick(&once(2), 3, 0)).await, Some((0, P + 1)));
    assert_eq!(in_line(trial).await, owners(&[]));
    // Nor does a waiter that nobody hears. One that is heard is told what is free.
    let deaf = |owner| {
        (
            owner,
            Seat {
                channel: NOBODY.into(),
                ..seat(50)
            },
        )
    };
    for owner in [3, 4] {
        mine(trial, wait(&deaf(owner), 3)).await;
    }
    assert_eq!(mine(trial, pick(&once(5), 3, 1)).await, Some((1, P + 1)));
    mine(trial, wait(&deaf(3), 3)).await;
    mine(trial, wait(&(6, seat(60)), 3)).await;
    assert_eq!(mine(trial, pick(&once(7), 3, 2)).await, None);
    assert_eq!(trial.pushes().await, [free(6, 2)]);
    assert_eq!(in_line(trial).await, owners(&[6]));
    // If nothing is free nobody is told.
    mine(trial, to(&(6, seat(60)), 3, 2)).await;
    mine(trial, wait(&(8, seat(60)), 3)).await;
    assert_eq!(mine(trial, pick(&once(7), 3, 2)).await, None);
    assert_eq!(trial.pushes().await, []);
}

pub(super) async fn a_waiter_that_yields_returns_to_its_place(trial: &mut Trial<'_>) {
    let (one, two, three) = ((1, seat(50)), (2, seat(60)), (3, seat(70)));
    stand(trial, 2, &[one.clone(), two, three]).await;
    say(trial, release(101)).await;
    assert_eq!(mine(trial, to(&one, 2, 0)).await, Some((0, P + 1)));
    trial.pushes().await;
    let again = (
        1,
        Seat {
            ticket: 40,
            ..one.1.clone()
        },
    );
    assert_eq!(say(trial, give_back(&again)).await, Answer::Yielded);
    assert_eq!(holders(trial).await, held_by(&[(1, 102)]));
    assert_eq!(in_line(trial).await, owners(&[1, 2, 3]));
    // If it has no slot, it keeps its place in the queue, or gets one with the ticket that it brings.
    assert_eq!(say(trial, give_back(&again)).await, Answer::Yielded);
    assert_eq!(say(trial, give_back(&(4, seat(65)))).await, Answer::Yielded);
    assert_eq!(in_line(trial).await, owners(&[1, 2, 4, 3]));
    // A repaired slot has no ticket.
    say(trial, repair(5, 0, P)).await;
    assert_eq!(say(trial, give_back(&(5, seat(55)))).await, Answer::Yielded);
    assert_eq!(in_line(trial).await, owners(&[1, 5, 2, 4, 3]));
    // An entry that takes no place gives its slot back nevertheless.
    mine(trial, to(&one, 2, 0)).await;
    trial.pushes().await;
    let gone = (
        1,
        Seat {
            life: Duration::ZERO,
            ..one.1
        },
    );
    assert_eq!(say(trial, give_back(&gone)).await, Answer::Yielded);
    assert_eq!(holders(trial).await, held_by(&[(1, 102)]));
    assert_eq!(in_line(trial).await, owners(&[5, 2, 4, 3]));
    assert_eq!(trial.pushes().await, []);
}
