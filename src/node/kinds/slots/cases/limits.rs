//! The number of slots.

use super::*;

fn limit(version: u64, slots: u32) -> Limit {
    Limit { version, slots }
}

fn versioned(mut command: Request, is: u64) -> Request {
    if let Verb::Acquire { wait, .. } = &mut command.verb
        && let Waiting::Slot(Seat { limit, .. }) = wait
    {
        limit.version = is;
    }
    command
}

pub(super) async fn another_limit_is_a_conflict(trial: &mut Trial<'_>) {
    mine(trial, versioned(pick(&(1, seat(7)), 3, 0), 4)).await;
    let before = inspected(trial).await;
    assert_eq!(before.limit, Some(limit(4, 3)));
    for (version, slots) in [(4, 5), (3, 2), (0, 9)] {
        for owner in [1, 2] {
            let asks = to(&(owner, seat(50)), slots, 1);
            let asked = say(trial, versioned(asks, version)).await;
            assert_eq!(asked, Answer::Conflict(limit(4, 3)), "{version} {slots}");
        }
    }
    assert_eq!(holders(trial).await, held_by(&[(0, 1)]));
    assert_eq!(in_line(trial).await, owners(&[]));
    // The same number of slots does not conflict, even with another version.
    let asked = ask(trial, versioned(pick(&once(2), 3, 1), 1)).await;
    assert_eq!((asked.mine, asked.version), (Some((1, P)), 4));
}

pub(super) async fn the_newer_limit_stands(trial: &mut Trial<'_>) {
    for (asked, stands) in [
        (limit(2, 5), limit(2, 5)),
        (limit(2, 6), limit(2, 5)),
        (limit(2, 4), limit(2, 4)),
        (limit(1, 3), limit(2, 4)),
        (limit(3, 9), limit(3, 9)),
        (limit(3, 9), limit(3, 9)),
    ] {
        let answer = say(trial, resize(asked.version, asked.slots)).await;
        assert_eq!(answer, Answer::Limit(stands));
        assert_eq!(inspected(trial).await.limit, Some(stands));
    }
    let answer = ask(trial, versioned(pick(&once(1), 12, 11), 4)).await;
    assert_eq!((answer.mine, answer.version), (Some((11, P)), 4));
    assert_eq!(inspected(trial).await.limit, Some(limit(4, 12)));
}

pub(super) async fn lowering_the_limit_keeps_current_holders(trial: &mut Trial<'_>) {
    fill(trial, 4).await;
    say(trial, resize(1, 2)).await;
    let answer = ask(trial, wait(&(1, seat(50)), 2)).await;
    assert_eq!((answer.mine, answer.taken), (None, vec![0, 1, 2, 3]));
    assert_eq!(say(trial, extend(104, 3, secs(20))).await, Answer::Extended);
    assert_eq!(say(trial, raise(104, 3, P)).await, Answer::Raised(P));
    // A slot above the limit cannot be taken once it is released.
    assert_eq!(say(trial, release(104)).await, Answer::Released(true));
    assert_eq!(trial.pushes().await, []);
    assert_eq!(mine(trial, pick(&(1, seat(50)), 2, 3)).await, None);
    // But its release makes room for a slot that is free below the limit.
    say(trial, release(101)).await;
    assert_eq!(trial.pushes().await, [free(1, 0)]);
    mine(trial, wait(&(1, seat(50)), 2)).await;
    say(trial, release(103)).await;
    assert_eq!(trial.pushes().await, [free(1, 0)]);
    assert_eq!(holders(trial).await, held_by(&[(1, 102)]));
    // A holder above the limit moves down.
    fill_one(trial).await;
    let moved = ask(trial, to(&once(5), 3, 0)).await;
    assert_eq!(moved.mine.map(|(slot, _)| slot), Some(0));
}

/// Takes a third slot of three.
async fn fill_one(trial: &mut Trial<'_>) {
    say(trial, resize(2, 3)).await;
    assert!(mine(trial, pick(&once(5), 3, 2)).await.is_none(), "1 waits");
    say(trial, release(1)).await;
    let taken = mine(trial, pick(&once(5), 3, 2)).await;
    assert_eq!(taken, Some((2, P + 1)));
    trial.pushes().await;
}

pub(super) async fn new_slots_are_called(trial: &mut Trial<'_>) {
    let places = [1, 2, 3, 4].map(|owner| (owner, seat(50 + owner as u64)));
    stand(trial, 2, &places).await;
    // The gate is two wide, so two slots are called out.
    say(trial, resize(1, 6)).await;
    assert_eq!(trial.pushes().await, [free(1, 2), free(2, 3)]);
    // The gate is three wide, and two of its waiters have been called.
    say(trial, resize(2, 9)).await;
    assert_eq!(trial.pushes().await, [free(3, 6)]);
    say(trial, resize(3, 8)).await;
    assert_eq!(trial.pushes().await, [], "it does not grow");
    // The same happens if a TAKE brings the limit. The entry that asks is told by its answer.
    let asked = ask(trial, versioned(wait(&places[1], 10), 4)).await;
    assert_eq!((asked.mine, asked.may_take), (None, true));
    assert_eq!(trial.pushes().await, [free(4, 9)]);
}
