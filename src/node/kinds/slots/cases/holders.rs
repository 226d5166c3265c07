//! The requests of a holder about its slot.

use super::*;

pub(super) async fn a_raise_needs_this_slot(trial: &mut Trial<'_>) {
    mine(trial, pick(&once(1), 3, 1)).await;
    for (owner, slot) in [(1, 0), (1, 2), (2, 1)] {
        assert_eq!(say(trial, raise(owner, slot, P + 9)).await, Answer::Lost);
    }
    for (token, raised) in [(P, P), (P + 5, P + 5), (P + 4, P + 5)] {
        let answer = say(trial, raise(1, 1, token)).await;
        assert_eq!(answer, Answer::Raised(raised));
    }
    let held = inspected(trial).await.holders.pop().unwrap();
    assert_eq!(held.counter, P + 5);
    // A waiter holds nothing.
    mine(trial, wait(&(2, seat(50)), 3)).await;
    assert_eq!(say(trial, raise(2, 50, P)).await, Answer::Lost);
}

pub(super) async fn an_extension_needs_this_slot(trial: &mut Trial<'_>) {
    assert_eq!(say(trial, extend(1, 1, secs(20))).await, Answer::Lost);
    mine(trial, pick(&(1, seat(7)), 3, 1)).await;
    for (owner, slot) in [(1, 0), (1, 2), (2, 1)] {
        let answer = say(trial, extend(owner, slot, secs(20))).await;
        assert_eq!(answer, Answer::Lost, "{owner} {slot}");
    }
    for ttl in [20, 5] {
        let extended = say(trial, extend(1, 1, secs(ttl))).await;
        assert_eq!(extended, Answer::Extended);
        let held = inspected(trial).await.holders.pop().unwrap();
        assert!(about(held.remaining, secs(20)), "{held:?}");
        let next = ask(trial, wait(&once(2), 3)).await.next_free;
        assert!(soon_free(next, secs(20)), "{next:?}");
    }
    assert_eq!(ask(trial, wait(&(1, seat(9)), 3)).await.ticket, 7);
    say(trial, release(1)).await;
    assert_eq!(say(trial, extend(1, 1, secs(20))).await, Answer::Lost);
    assert_eq!(holders(trial).await, []);
}

pub(super) async fn a_repair_restores_a_lease_that_no_other_owner_holds(trial: &mut Trial<'_>) {
    mine(trial, pick(&once(1), 3, 1)).await;
    // Another owner has the slot, or this owner has another slot.
    for (owner, slot) in [(2, 1), (1, 0)] {
        let repaired = say(trial, repair(owner, slot, P + 9)).await;
        assert_eq!(repaired, Answer::Repaired(false), "{owner}");
    }
    assert_eq!(holders(trial).await, held_by(&[(1, 1)]));
    // A slot that is there is prolonged. The counter is raised, never lowered.
    for (token, counter) in [(P + 5, P + 5), (P + 1, P + 5)] {
        let repaired = say(trial, repair(1, 1, token)).await;
        assert_eq!(repaired, Answer::Repaired(true));
        let held = inspected(trial).await.holders.pop().unwrap();
        assert_eq!(held.counter, counter);
        assert!(about(held.remaining, secs(15)), "{held:?}");
    }
    say(trial, extend(1, 1, secs(20))).await;
    say(trial, repair(1, 1, P)).await;
    let held = inspected(trial).await.holders.pop().unwrap();
    assert!(about(held.remaining, secs(20)), "{held:?}");
    // A waiter becomes the holder, leaves the queue, and keeps its ticket.
    mine(trial, wait(&(4, seat(50)), 3)).await;
    let repaired = say(trial, repair(4, 2, P + 7)).await;
    assert_eq!(repaired, Answer::Repaired(true));
    assert_eq!(holders(trial).await, held_by(&[(1, 1), (2, 4)]));
    assert_eq!(in_line(trial).await, owners(&[]));
    let asked = ask(trial, wait(&(4, seat(60)), 3)).await;
    assert_eq!((asked.mine, asked.ticket), (Some((2, P + 7)), 50));
}

pub(super) async fn a_repair_keeps_the_limit(trial: &mut Trial<'_>) {
    // No limit stands here.
    let repaired = say(trial, repair(1, 6, P)).await;
    assert_eq!(repaired, Answer::Repaired(true));
    let there = inspected(trial).await;
    assert_eq!((there.limit, there.taken.count()), (None, 1));
    let taken = mine(trial, pick(&once(2), 3, 0)).await;
    assert_eq!(taken, Some((0, P)), "the first limit that comes stands");
    for (slot, done) in [(2, true), (3, false), (4, false)] {
        let repaired = say(trial, repair(10 + u128::from(slot), slot, P)).await;
        assert_eq!(repaired, Answer::Repaired(done), "{slot}");
    }
    // A slot beyond the limit is not repaired even if it is there.
    let repaired = say(trial, repair(1, 6, P)).await;
    assert_eq!(repaired, Answer::Repaired(false));
    assert_eq!(say(trial, extend(1, 6, secs(9))).await, Answer::Extended);
}

pub(super) async fn a_release_frees_the_slot_unless_it_is_to_be_kept(trial: &mut Trial<'_>) {
    mine(trial, pick(&once(1), 3, 1)).await;
    for (owner, keep, freed) in [
        (2, None, false),
        (1, Some(1), false),
        (1, Some(0), true),
        (1, None, false),
    ] {
        let released = say(trial, release_but(owner, keep)).await;
        assert_eq!(released, Answer::Released(freed), "{owner} {keep:?}");
        let there = holders(trial).await.len();
        assert_eq!(there, usize::from(keep == Some(1) || owner == 2));
    }
    mine(trial, pick(&once(1), 3, 1)).await;
    mine(trial, wait(&(2, seat(50)), 3)).await;
    let released = say(trial, release(2)).await;
    assert_eq!(released, Answer::Released(false));
    assert_eq!(in_line(trial).await, owners(&[]));
    assert_eq!(holders(trial).await, held_by(&[(1, 1)]));
}
