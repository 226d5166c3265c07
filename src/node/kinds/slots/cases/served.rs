//! Inspections, guards, full servers, replicas and counters.

use super::*;
use crate::node::admission;

pub(super) async fn an_inspection_names_a_hundred_of_each(trial: &mut Trial<'_>) {
    let takes: Vec<Command> = (0..105_u32)
        .map(|n| pick(&once(1000 + u128::from(n)), 105, n).into())
        .collect();
    trial.ask_all(&takes).await;
    let waits: Vec<Command> = (0..101)
        .map(|n| wait(&(2000 + n, seat(1000 - n as u64)), 105).into())
        .collect();
    trial.ask_all(&waits).await;
    let there = inspected(trial).await;
    assert_eq!((there.holders.len(), there.taken.count()), (100, 105));
    let (first, last) = (&there.holders[0], &there.holders[99]);
    assert_eq!((first.slot, &*first.holder), (0, entry(1000).as_str()));
    assert_eq!((last.slot, &*last.holder), (99, entry(1099).as_str()));
    assert_eq!((there.line.len(), there.waiting), (100, 101));
    assert_eq!(there.line[0].0, entry(2100).as_str());
    assert_eq!(there.line[99].0, entry(2001).as_str());
    say(trial, release(1000)).await;
    assert_eq!(trial.pushes().await, [free(2100, 0)]);
    let there = inspected(trial).await;
    assert_eq!(there.taken, {
        let mut taken = Taken::default();
        (1..105).for_each(|slot| taken.set(slot, true));
        taken
    });
    assert_eq!(there.holders[0].slot, 1);
}

pub(super) async fn a_memory_that_may_not_vote_tells_nobody(trial: &mut Trial<'_>) {
    stand(trial, 2, &[(1, seat(50)), (2, seat(60)), (3, seat(70))]).await;
    let wrong = "20000 3 3 word 5000 another";
    let unadmitted = Ok(Answer::ReleasedUnadmitted);
    for owner in [1, 101, 99] {
        let answer = trial.ask_with(&release(owner).into(), wrong).await;
        assert_eq!(answer, unadmitted);
    }
    for command in [
        pick(&(4, seat(40)), 2, 0),
        raise(102, 1, P),
        extend(102, 1, secs(9)),
        repair(4, 0, P),
        give_back(&(2, seat(60))),
    ]
    .map(Command::from)
    .into_iter()
    .chain([resize(9, 9), inspect()].map(Command::from))
    {
        let answer = trial.ask_with(&command, wrong).await;
        assert_eq!(answer, Err(node::Fault::NotAdmitted));
    }
    assert_eq!(trial.pushes().await, []);
    assert_eq!(holders(trial).await, held_by(&[(1, 102)]));
    assert_eq!(in_line(trial).await, owners(&[2, 3]));
    assert_eq!(inspected(trial).await.limit, Some(slots(2)));
}

pub(super) async fn a_full_server_prolongs_and_frees(trial: &mut Trial<'_>) {
    let (one, two) = ((1, seat(50)), (2, seat(60)));
    stand(trial, 2, std::slice::from_ref(&one)).await;
    trial.change(Change::Full(true)).await;
    for refused in [
        wait(&two, 2),
        wait(&one, 2),
        give_back(&two),
        raise(101, 0, P + 1),
        repair(101, 0, P + 1),
    ] {
        assert_eq!(trial.error(refused).await, "OOM");
    }
    assert_eq!(trial.error(resize(1, 3)).await, "OOM");
    assert_eq!(say(trial, extend(101, 0, secs(18))).await, Answer::Extended);
    assert_eq!(say(trial, repair(101, 0, P)).await, Answer::Repaired(true));
    assert_eq!(mine(trial, wait(&once(102), 2)).await, Some((1, P)));
    assert_eq!(mine(trial, to(&once(101), 2, 1)).await, Some((0, P)));
    for held in inspected(trial).await.holders {
        assert!(held.remaining > secs(12), "{held:?}");
    }
    assert_eq!(say(trial, release(101)).await, Answer::Released(true));
    assert_eq!(trial.pushes().await, [free(1, 0)]);
    assert_eq!(trial.error(to(&one, 2, 0)).await, "OOM");
    assert_eq!(trial.error(to(&once(102), 2, 0)).await, "OOM");
    assert_eq!(trial.error(repair(3, 0, P)).await, "OOM");
    assert_eq!(holders(trial).await, held_by(&[(1, 102)]));
    // The slot of a holder that yields is gone, and the holder is in the queue.
    let back = (102, seat(70));
    assert_eq!(say(trial, give_back(&back)).await, Answer::Yielded);
    assert_eq!(say(trial, release(1)).await, Answer::Released(false));
    assert_eq!(in_line(trial).await, owners(&[102]));
    assert_eq!(holders(trial).await, []);
    trial.change(Change::Full(false)).await;
    assert_eq!(mine(trial, to(&back, 2, 0)).await, Some((0, P + 1)));
}

pub(super) async fn a_replica_refuses(trial: &mut Trial<'_>) {
    stand(trial, 2, &[(1, seat(50))]).await;
    trial.change(Change::Replica(true)).await;
    for refused in [
        wait(&(2, seat(60)), 2),
        wait(&once(101), 2),
        extend(101, 0, secs(9)),
        raise(101, 0, P + 1),
        repair(101, 0, P),
        release(101),
        release(1),
        give_back(&(101, seat(60))),
    ] {
        assert_eq!(trial.error(refused).await, "READONLY");
    }
    assert_eq!(trial.error(resize(1, 3)).await, "READONLY");
    assert_eq!(say(trial, release(9)).await, Answer::Released(false));
    assert_eq!(say(trial, raise(9, 0, P)).await, Answer::Lost);
    assert_eq!(mine(trial, pick(&once(9), 2, 0)).await, None);
    assert_eq!(holders(trial).await, held_by(&[(0, 101), (1, 102)]));
}

pub(super) async fn an_exhausted_counter_gives_no_slot(trial: &mut Trial<'_>) {
    fill(trial, 2).await;
    say(trial, release(101)).await;
    let counter = |token| Change::SlotCounter(pool("a"), 0, token);
    trial.change(counter(MAX_TOKEN - 1)).await;
    assert_eq!(
        mine(trial, pick(&once(1), 2, 0)).await,
        Some((0, MAX_TOKEN))
    );
    assert_eq!(say(trial, release(1)).await, Answer::Released(true));
    // A holder that moves keeps its slot, and a new entry gets none.
    assert_eq!(trial.error(to(&once(102), 2, 0)).await, "EXHAUSTED");
    assert_eq!(trial.error(pick(&once(1), 2, 0)).await, "EXHAUSTED");
    assert_eq!(holders(trial).await, held_by(&[(1, 102)]));
    assert_eq!(say(trial, release(102)).await, Answer::Released(true));
    assert_eq!(mine(trial, pick(&once(1), 2, 1)).await, Some((1, P + 1)));
}

pub(super) async fn counters_rotate_with_those_of_locks(trial: &mut Trial<'_>) {
    let again = |slot| to(&once(1), 2, slot);
    let token = |n| Some((0, P + n));
    assert_eq!(mine(trial, again(0)).await, token(0));
    say(trial, release(1)).await;
    // The first grant rotates the counters. A slot that was not taken since is read from the previous ones.
    trial.change(Change::Age(DAY * 3)).await;
    assert_eq!(mine(trial, again(1)).await, Some((1, P)));
    assert_eq!(mine(trial, again(0)).await, token(1));
    assert_eq!(say(trial, raise(1, 0, P + 5)).await, Answer::Raised(P + 5));
    say(trial, release(1)).await;
    trial.change(Change::Age(DAY * 3)).await;
    assert_eq!(mine(trial, again(1)).await, Some((1, P + 1)));
    say(trial, release(1)).await;
    assert_eq!(say(trial, repair(1, 0, P)).await, Answer::Repaired(true));
    assert_eq!(inspected(trial).await.holders[0].counter, P + 5);
    say(trial, release(1)).await;
    // After more than four days the counter is forgotten.
    for _ in 0..2 {
        trial.change(Change::Age(DAY * 3)).await;
        mine(trial, again(1)).await;
        say(trial, release(1)).await;
    }
    assert_eq!(mine(trial, again(0)).await, token(0));
}

pub(super) async fn a_survey_sees_that_a_semaphore_was_used(trial: &mut Trial<'_>) {
    let survey = |used, lock: Option<&str>| {
        let lock = lock.map(name);
        node::Answer::Admission(admission::Reply::Surveyed { used, lock })
    };
    let asked = trial.say(admission::Command::Survey).await;
    assert_eq!(asked, survey(false, None));
    mine(trial, pick(&once(1), 2, 0)).await;
    say(trial, release(1)).await;
    let asked = trial.say(admission::Command::Survey).await;
    assert_eq!(asked, survey(true, Some("a")));
}
