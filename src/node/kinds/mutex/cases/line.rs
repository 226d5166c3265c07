//! Waiting in the queue (protocol §5).

// A failed case panics, as a test does.
#![allow(clippy::indexing_slicing)]

use tokio::time::sleep;

use super::*;
use crate::node::{Push, Says, answer::Ahead};

/// The p of the requests that set a lock free here. No counter is ahead of it.
pub(crate) const P: u64 = 1_760_000_000_000_000;

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The place of a waiter that is fresh, alive, and heard.
pub(crate) fn place(seq: u64, ticket: u64) -> Place {
    Place {
        seq,
        ticket,
        only_last: false,
        term: secs(10),
        lock_delay: secs(3),
        life: secs(18),
        claim: secs(7),
        channel: CHANNEL.into(),
    }
}

pub(crate) fn join(n: &str, queued: &Queued) -> Request {
    join_for(n, queued.clone(), secs(15), P)
}

pub(super) fn free(n: &str, owner: u128) -> Request {
    release_for(n, owner, P)
}

/// Puts these into the queue in this order, behind holder 1, which did not come through the queue.
pub(crate) async fn stand(trial: &mut Trial<'_>, n: &str, queue: &[Queued]) {
    let granted = say(trial, acquire(n, 1, secs(15), 0)).await;
    assert!(matches!(granted, Answer::Granted(_)), "{granted:?}");
    for (at, queued) in queue.iter().enumerate() {
        let (rank, ahead) = in_line(say(trial, join(n, queued)).await);
        assert_eq!((rank, ahead.ticket), (at as u64, 0));
        assert_eq!(ahead.holder, Some(entry(1).text()));
    }
    assert_eq!(trial.pushes().await, []);
}

pub(super) fn in_line(reply: Answer) -> (u64, Ahead) {
    match reply {
        Answer::InLine { rank, ahead, .. } => (rank, ahead),
        other => panic!("{other:?}"),
    }
}

pub(super) fn taken(counter: u64, seq: u64) -> Answer {
    Answer::Taken { counter, seq }
}

pub(crate) fn push(owner: u128, says: Says) -> Push {
    let entry = entry(owner);
    Push { entry, says }
}

pub(crate) fn granted(owner: u128, seq: u64, token: u64) -> Push {
    let guard = GUARD.into();
    push(owner, Says::Granted { seq, token, guard })
}

pub(crate) fn next(owner: u128, after: u64) -> Push {
    let after = secs(after);
    push(owner, Says::Next { after })
}

/// The owners in the queue, in order.
pub(crate) async fn line(trial: &mut Trial<'_>, n: &str) -> Vec<String> {
    match say(trial, inspect(n)).await {
        Answer::InspectedMutex(it) => {
            assert_eq!(it.line.len() as u64, it.waiting);
            it.line.into_iter().map(|(entry, _)| entry).collect()
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn owners(owners: &[u128]) -> Vec<String> {
    let texts = owners.iter().map(|owner| entry(*owner));
    texts.map(|entry| entry.as_str().to_owned()).collect()
}

/// The refusal of an ACQUIRE by another owner: holder, last ticket, remaining time.
pub(super) async fn refused(trial: &mut Trial<'_>, n: &str) -> (Option<Arc<str>>, u64, Duration) {
    match say(trial, acquire(n, 99, secs(10), P)).await {
        Answer::Held {
            holder,
            ticket,
            remaining: Some(remaining),
            ..
        } => (holder, ticket, remaining),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn holder(trial: &mut Trial<'_>, n: &str) -> Option<String> {
    match say(trial, inspect(n)).await {
        Answer::InspectedMutex(it) => it.holder.map(|(entry, _)| entry),
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_join_takes_a_free_lock(trial: &mut Trial<'_>) {
    let first = (2, place(1, 50));
    assert_eq!(say(trial, join("a", &first)).await, taken(P, 1));
    assert!(about(remaining(trial, "a").await.unwrap(), secs(15)));
    assert_eq!(line(trial, "a").await, owners(&[]));
    assert_eq!(
        refused(trial, "a").await.1,
        50,
        "the ticket that it came with"
    );
    // When it asks again it finds that it has the lock, by its first request. The lease is prolonged, never shortened.
    let again = (first.0, Place { seq: 2, ..first.1 });
    for (ttl, left) in [(secs(20), 20), (secs(5), 20)] {
        let joined = say(trial, join_for("a", again.clone(), ttl, P + 9)).await;
        assert_eq!(joined, taken(P, 1));
        assert!(about(remaining(trial, "a").await.unwrap(), secs(left)));
    }
    let other = say(trial, join("a", &(3, place(1, 60)))).await;
    let (rank, ahead) = in_line(other);
    assert_eq!((rank, ahead.ticket, ahead.is_reserved), (0, 50, false));
    assert_eq!(ahead.holder, Some(entry(2).text()));
    assert!(about(ahead.remaining.unwrap(), secs(20)));
    // A lock that it took by ACQUIRE is its own too, with seq 0.
    say(trial, acquire("b", 2, secs(10), 7)).await;
    assert_eq!(say(trial, join("b", &again)).await, taken(7, 0));
    assert_eq!(trial.pushes().await, []);
}

pub(super) async fn a_holder_is_matched_by_its_entry_and_for_raise_also_by_seq(
    trial: &mut Trial<'_>,
) {
    let raise_of = |n, seq, token| request(n, 2, Verb::Raise { seq, token });
    say(trial, join("a", &(2, place(11, 50)))).await;
    assert_eq!(say(trial, extend("a", 2, secs(20))).await, Answer::Extended);
    for (seq, token, reply) in [
        (0, P + 1, Answer::Raised(P + 1)),
        (11, P + 2, Answer::Raised(P + 2)),
        (1, P + 3, Answer::Lost),
        (12, P + 3, Answer::Lost),
    ] {
        assert_eq!(say(trial, raise_of("a", seq, token)).await, reply, "{seq}");
    }
    let repaired = say(trial, repair("a", 2, secs(20), P + 2)).await;
    assert_eq!(repaired, Answer::Repaired(true));
    assert_eq!(refused(trial, "a").await.1, 50, "it stays as it came");
    for other in [extend("a", 3, secs(20)), raise("a", 3, P + 9)] {
        assert_eq!(say(trial, other).await, Answer::Lost);
    }
    assert_eq!(say(trial, free("a", 3)).await, Answer::Released(false));
    assert_eq!(say(trial, free("a", 2)).await, Answer::Released(true));
    assert_eq!(holder(trial, "a").await, None);
    // A holder that took the lock by ACQUIRE was given nothing by a request.
    say(trial, acquire("a", 2, secs(10), 0)).await;
    assert_eq!(say(trial, raise_of("a", 11, P + 9)).await, Answer::Lost);
    // The same in a batch.
    say(trial, join("b", &(2, place(11, 50)))).await;
    let b = |seq| raise_of("b", seq, P + 5);
    let asked = [b(1), b(11), extend("b", 2, secs(9)), free("b", 2)].map(Command::from);
    let wanted = [
        Answer::Lost,
        Answer::Raised(P + 5),
        Answer::Extended,
        Answer::Released(true),
    ];
    let wanted = wanted.map(Ok);
    assert_eq!(trial.ask_all(&asked).await, wanted);
}

pub(super) async fn the_queue_is_in_ticket_order(trial: &mut Trial<'_>) {
    stand(trial, "a", &[(5, place(1, 50)), (7, place(1, 70))]).await;
    // The smaller ticket comes first, and of equal tickets the smaller entry.
    for (who, ticket, rank) in [(4, 40, 0), (6, 50, 2), (3, 70, 3)] {
        let joined = say(trial, join("a", &(who, place(1, ticket)))).await;
        assert_eq!(in_line(joined).0, rank, "{who}");
    }
    assert_eq!(line(trial, "a").await, owners(&[4, 5, 6, 3, 7]));
    // A waiter that asks again keeps its place.
    let again = say(trial, join("a", &(5, place(2, 50)))).await;
    assert_eq!(in_line(again).0, 1);
    let (by, last, left) = refused(trial, "a").await;
    assert_eq!((by, last), (Some(entry(1).text()), 70));
    assert!(about(left, secs(15)));
    // Another name has another queue.
    assert_eq!(line(trial, "b").await, owners(&[]));
    assert_eq!(refused_or_granted(trial, "b").await, Answer::Granted(P));
    // The tickets tell for how long they have waited.
    let waited = trial.wall_us().await - secs(60).as_micros() as u64;
    say(trial, join("a", &(9, place(1, waited)))).await;
    match say(trial, inspect("a")).await {
        Answer::InspectedMutex(it) => {
            let (who, waited) = it.line.last().unwrap();
            assert_eq!(*who, entry(9).as_str());
            assert!(waited.abs_diff(secs(60)) < secs(5), "{waited:?}");
        }
        other => panic!("{other:?}"),
    }
}

pub(super) async fn refused_or_granted(trial: &mut Trial<'_>, n: &str) -> Answer {
    say(trial, acquire(n, 99, secs(10), P)).await
}

pub(super) async fn an_inspection_names_the_first_hundred(trial: &mut Trial<'_>) {
    say(trial, acquire("a", 1, secs(15), 0)).await;
    let joins: Vec<Command> = (0..101)
        .map(|n| join("a", &(1000 + n, place(1, 1000 - n as u64))).into())
        .collect();
    trial.ask_all(&joins).await;
    match say(trial, inspect("a")).await {
        Answer::InspectedMutex(it) => {
            assert_eq!((it.line.len(), it.waiting), (100, 101));
            assert_eq!(it.line[0].0, entry(1100).as_str());
            assert_eq!(it.line[99].0, entry(1001).as_str());
        }
        other => panic!("{other:?}"),
    }
}

pub(super) async fn a_yielded_lock_goes_to_an_earlier_waiter(trial: &mut Trial<'_>) {
    let (two, three) = ((2, place(5, 50)), (3, place(2, 60)));
    stand(trial, "a", &[two.clone(), three.clone()]).await;
    say(trial, free("a", 1)).await;
    trial.pushes().await;
    // A YIELD of another request does nothing.
    let other = (
        2,
        Place {
            seq: 4,
            ..two.1.clone()
        },
    );
    assert_eq!(say(trial, give_back("a", other, P)).await, Answer::Yielded);
    assert_eq!(holder(trial, "a").await, Some(entry(2).as_str().into()));
    assert_eq!(line(trial, "a").await, owners(&[3]));
    // It stays the head, so nobody gets the lock. Its place is what it was.
    let yielded = say(trial, give_back("a", two.clone(), P)).await;
    assert_eq!(yielded, Answer::Yielded);
    assert_eq!(trial.pushes().await, []);
    assert_eq!(holder(trial, "a").await, None);
    assert_eq!(line(trial, "a").await, owners(&[2, 3]));
    // A yielded lock is not handed over again. The waiter is called.
    say(trial, free("a", 99)).await;
    assert_eq!(trial.pushes().await, [push(2, Says::Called), next(3, 7)]);
    assert_eq!(say(trial, join("a", &two)).await, taken(P + 1, 5));
    // A waiter with a smaller ticket has come.
    let before = (4, place(1, 40));
    say(trial, join("a", &before)).await;
    say(trial, give_back("a", two.clone(), P + 9)).await;
    assert_eq!(
        trial.pushes().await,
        [granted(4, 1, P + 9), next(2, 10)],
        "p is of who gives back"
    );
    assert_eq!(line(trial, "a").await, owners(&[2, 3]));
    // A waiter that holds nothing goes back into the queue, and nobody's lock is touched.
    say(trial, give_back("a", (7, place(1, 45)), P)).await;
    assert_eq!(line(trial, "a").await, owners(&[7, 2, 3]));
    assert_eq!(holder(trial, "a").await, Some(entry(4).as_str().into()));
    assert_eq!(trial.pushes().await, []);
}

pub(super) async fn a_release_by_a_waiter_leaves_the_queue(trial: &mut Trial<'_>) {
    let (two, three) = ((2, place(1, 50)), (3, place(1, 60)));
    stand(trial, "a", &[two, three, (4, place(2, 70))]).await;
    assert_eq!(say(trial, free("a", 3)).await, Answer::Released(false));
    assert_eq!(line(trial, "a").await, owners(&[2, 4]));
    assert_eq!(trial.pushes().await, [], "it is held");
    say(trial, free("a", 1)).await;
    assert_eq!(trial.pushes().await, [granted(2, 1, P), next(4, 10)]);
    // A hand-over that the waiter has not seen yet goes on to the next one.
    assert_eq!(say(trial, free("a", 2)).await, Answer::Released(true));
    assert_eq!(trial.pushes().await, [granted(4, 2, P + 1)]);
    // Any RELEASE of a free lock serves the queue.
    stand(trial, "b", &[(2, place(1, 50))]).await;
    say(trial, evict("b")).await;
    assert_eq!(trial.pushes().await, []);
    assert_eq!(say(trial, free("b", 99)).await, Answer::Released(false));
    assert_eq!(trial.pushes().await, [granted(2, 1, P)]);
}

pub(super) async fn a_memory_that_may_not_vote_serves_nobody(trial: &mut Trial<'_>) {
    stand(trial, "a", &[(2, place(1, 50)), (3, place(1, 60))]).await;
    let wrong = "20000 3 3 word 5000 another";
    let unadmitted = Ok(Answer::ReleasedUnadmitted);
    for owner in [2, 1] {
        let answer = trial.ask_with(&free("a", owner).into(), wrong).await;
        assert_eq!(answer, unadmitted);
    }
    let not_admitted = Err(node::Fault::NotAdmitted);
    for command in [
        join("a", &(4, place(1, 40))),
        give_back("a", (3, place(1, 60)), P),
        acquire("a", 4, secs(10), P),
    ] {
        let answer = trial.ask_with(&command.into(), wrong).await;
        assert_eq!(answer, not_admitted);
    }
    assert_eq!(trial.pushes().await, []);
    assert_eq!(holder(trial, "a").await, None);
    assert_eq!(line(trial, "a").await, owners(&[3]));
}

pub(super) async fn a_batch_serves_in_its_order(trial: &mut Trial<'_>) {
    stand(trial, "a", &[(2, place(1, 50)), (3, place(2, 60))]).await;
    stand(trial, "b", &[]).await;
    let asked = [
        free("b", 1),
        free("a", 1),
        // It does not overtake the queue, and the RELEASE before it does not remove what was handed over.
        acquire("a", 9, secs(10), P),
        extend("a", 2, secs(15)),
        free("a", 2),
        join("a", &(4, place(1, 70))),
        acquire("b", 9, secs(10), P + 3),
        free("b", 9),
        join("b", &(4, place(2, 70))),
    ];
    let answers = trial.ask_all(&asked.map(Command::from)).await;
    let replies: Vec<Answer> = answers
        .into_iter()
        .map(|answer| match answer {
            Ok(reply) => reply,
            other => panic!("{other:?}"),
        })
        .collect();
    let released = || Answer::Released(true);
    assert_eq!(replies[..2], [released(), released()]);
    match &replies[2] {
        Answer::Held {
            counter,
            holder,
            ticket,
            ..
        } => assert_eq!((*counter, holder, *ticket), (P, &Some(entry(2).text()), 60)),
        other => panic!("{other:?}"),
    }
    assert_eq!(replies[3..5], [Answer::Extended, released()]);
    let (rank, ahead) = in_line(replies[5].clone());
    assert_eq!((rank, ahead.holder), (0, Some(entry(3).text())));
    let granted_b = [Answer::Granted(P + 3), released(), taken(P + 4, 2)];
    assert_eq!(replies[6..], granted_b);
    let pushes = [granted(2, 1, P), next(3, 10), granted(3, 2, P + 1)];
    assert_eq!(trial.pushes().await, pushes);
    assert_eq!(holder(trial, "a").await, Some(entry(3).as_str().into()));
    assert_eq!(holder(trial, "b").await, Some(entry(4).as_str().into()));
    assert_eq!(counter(trial, "b").await, P + 4);
}

pub(super) async fn a_queue_is_forgotten_after_four_lives(trial: &mut Trial<'_>) {
    let short = (
        2,
        Place {
            life: millis(400),
            ..place(1, 50)
        },
    );
    stand(trial, "a", std::slice::from_ref(&short)).await;
    // A waiter with a longer life keeps the queue, for the others too.
    stand(trial, "b", &[(3, place(1, 60))]).await;
    say(trial, join("b", &short)).await;
    sleep(millis(500)).await;
    assert_eq!(line(trial, "a").await, owners(&[2]), "nobody has looked");
    sleep(millis(1_300)).await;
    assert_eq!(line(trial, "a").await, owners(&[]));
    assert_eq!(line(trial, "b").await, owners(&[2, 3]));
    say(trial, free("b", 1)).await;
    assert_eq!(trial.pushes().await, [granted(3, 1, P)]);
}
