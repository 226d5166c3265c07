//! Waiters are told which slots are free.

use tokio::time::sleep;

use super::*;

fn next(owner: u128, after: Duration) -> Push {
    push(owner, Says::Next { after })
}

pub(super) async fn each_free_slot_is_offered_to_one_waiter(trial: &mut Trial<'_>) {
    let places = [1, 2, 3, 4].map(|owner| (owner, seat(50 + owner as u64)));
    stand(trial, 6, &places).await;
    say(trial, release(103)).await;
    assert_eq!(trial.pushes().await, [free(1, 2)]);
    // Waiter 1 has been called, so the next one is. A waiter that asks by itself is told nothing.
    say(trial, release(102)).await;
    assert_eq!(trial.pushes().await, [free(2, 1)]);
    // Both waiters in the gate have been called.
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, []);
    let polls = (
        5,
        Seat {
            channel: "".into(),
            ..seat(40)
        },
    );
    mine(trial, wait(&polls, 6)).await;
    say(trial, release(104)).await;
    assert_eq!(trial.pushes().await, []);
    assert_eq!(in_line(trial).await, owners(&[5, 1, 2, 3, 4]));
}

pub(super) async fn a_waiter_of_another_process_is_told_to_ask_later(trial: &mut Trial<'_>) {
    let mut other = trial.another_process(OTHER).await;
    let of_other = |owner, ticket| {
        (
            owner,
            Seat {
                channel: OTHER.into(),
                ..seat(ticket)
            },
        )
    };
    let one = (
        1,
        Seat {
            term: millis(1234),
            ..seat(50)
        },
    );
    let deaf = (
        3,
        Seat {
            channel: NOBODY.into(),
            ..seat(70)
        },
    );
    let polls = (
        4,
        Seat {
            channel: "".into(),
            ..seat(75)
        },
    );
    let (five, six) = (of_other(5, 80), of_other(6, 90));
    stand(trial, 3, &[one, (2, seat(60)), deaf, polls, five, six]).await;
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, [free(1, 0)]);
    let told = trial.pushes_to(&mut other).await;
    assert_eq!(told, [next(5, millis(1234))]);
    // The waiter that is called next is of the same process.
    say(trial, release(102)).await;
    assert_eq!(trial.pushes().await, [free(2, 1)]);
    assert_eq!(trial.pushes_to(&mut other).await, [next(5, secs(10))]);
    assert_eq!(in_line(trial).await, owners(&[1, 2, 3, 4, 5, 6]));
}

pub(super) async fn dead_or_unreachable_waiters_are_skipped(trial: &mut Trial<'_>) {
    let dead = (
        1,
        Seat {
            life: millis(20),
            ..seat(50)
        },
    );
    let deaf = |owner, ticket| {
        (
            owner,
            Seat {
                channel: NOBODY.into(),
                ..seat(ticket)
            },
        )
    };
    let mut places = vec![dead, deaf(2, 60)];
    // More waiters than are read together.
    places.extend((10..30).map(|owner| deaf(owner, 60 + owner as u64)));
    places.push((3, seat(100)));
    places.push(deaf(4, 110));
    stand(trial, 1, &places).await;
    sleep(millis(50)).await;
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, [free(3, 0)]);
    assert_eq!(in_line(trial).await, owners(&[3, 4]));
    // If it asks again, it has its place as before.
    let again = ask(trial, wait(&deaf(2, 60), 1)).await;
    assert_eq!(again.ticket, 60);
    assert_eq!(in_line(trial).await, owners(&[2, 3, 4]));
}

pub(super) async fn a_called_waiter_that_does_not_come_loses_its_place(trial: &mut Trial<'_>) {
    let absent = (
        1,
        Seat {
            term: millis(60),
            ..seat(50)
        },
    );
    stand(trial, 2, &[absent, (2, seat(60))]).await;
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, [free(1, 0)]);
    assert_eq!(in_line(trial).await, owners(&[1, 2]));
    sleep(millis(100)).await;
    say(trial, release(102)).await;
    assert_eq!(trial.pushes().await, [free(2, 1)]);
    assert_eq!(in_line(trial).await, owners(&[2]));
}

pub(super) async fn a_called_waiter_that_asked_again_may_be_called_again(trial: &mut Trial<'_>) {
    let one = (1, seat(50));
    stand(trial, 2, &[one.clone(), (2, seat(60))]).await;
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, [free(1, 0)]);
    mine(trial, wait(&one, 2)).await;
    assert_eq!(trial.pushes().await, []);
    say(trial, release(102)).await;
    assert_eq!(trial.pushes().await, [free(1, 1)]);
}

pub(super) async fn a_waiter_that_enters_the_gate_is_told(trial: &mut Trial<'_>) {
    let places = [1, 2, 3, 4, 5].map(|owner| (owner, seat(50 + owner as u64)));
    stand(trial, 2, &places).await;
    // By a release. The push names a free slot, if there is one.
    say(trial, release(1)).await;
    assert_eq!(trial.pushes().await, [push(3, Says::Called)]);
    say(trial, release(5)).await;
    assert_eq!(trial.pushes().await, [], "it stood behind the gate");
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, [free(2, 0)]);
    // By a waiter that takes a slot.
    assert_eq!(mine(trial, to(&places[1], 2, 0)).await, Some((0, P + 1)));
    assert_eq!(trial.pushes().await, [push(4, Says::Called)]);
    // By a slot that is repaired.
    mine(trial, wait(&(6, seat(90)), 2)).await;
    say(trial, release(102)).await;
    assert_eq!(trial.pushes().await, [free(3, 1)]);
    say(trial, repair(3, 1, P)).await;
    assert_eq!(trial.pushes().await, [push(6, Says::Called)]);
    mine(trial, wait(&(7, seat(95)), 2)).await;
    say(trial, release(102)).await;
    say(trial, release(2)).await;
    assert_eq!(trial.pushes().await, [free(4, 0)]);
    // A waiter that leaves may have been called itself. Then the next one is called, which is the one that has just
    // entered the gate.
    say(trial, release(6)).await;
    assert_eq!(trial.pushes().await, [free(7, 0), free(7, 0)]);
}

pub(super) async fn a_waiter_that_asks_is_answered_and_not_called(trial: &mut Trial<'_>) {
    let (one, two, three) = ((1, seat(50)), (2, seat(60)), (3, seat(70)));
    stand(trial, 3, &[one.clone(), two.clone()]).await;
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, [free(1, 0)]);
    // An entry that asks and gets nothing calls nobody.
    mine(trial, wait(&three, 3)).await;
    assert_eq!(trial.pushes().await, []);
    // The first waiter asks for a slot that is not free.
    let answer = ask(trial, to(&one, 3, 1)).await;
    assert_eq!((answer.mine, answer.may_take), (None, true));
    assert_eq!(answer.taken, [1, 2]);
    assert_eq!(trial.pushes().await, []);
    // The second waiter calls nobody either.
    mine(trial, to(&two, 3, 1)).await;
    assert_eq!(trial.pushes().await, []);
}

pub(super) async fn waiters_behind_the_gate_are_not_called(trial: &mut Trial<'_>) {
    let polls = |owner, ticket| {
        (
            owner,
            Seat {
                channel: "".into(),
                ..seat(ticket)
            },
        )
    };
    stand(trial, 6, &[polls(1, 50), polls(2, 60), (3, seat(70))]).await;
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, []);
    say(trial, release(2)).await;
    assert_eq!(trial.pushes().await, [free(3, 0), free(3, 0)]);
}
