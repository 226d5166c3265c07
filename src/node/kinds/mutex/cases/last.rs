//! Joining a queue only as the last (protocol §5).

use super::{line::*, *};
use crate::node::answer::Answer;

pub(super) async fn an_only_last_join_never_comes_before_another_waiter(trial: &mut Trial<'_>) {
    let last = |n: &str, queued: &Queued| only_last(join(n, queued));
    let refused = |reply: Answer| match reply {
        Answer::Held {
            counter,
            holder,
            ticket,
            ..
        } => (counter, holder, ticket),
        other => panic!("{other:?}"),
    };
    let by = |owner: u128| Some(entry(owner).text());
    stand(trial, "a", &[(5, place(1, 50)), (7, place(1, 70))]).await;
    // A waiter gets a place behind all others. It gets none before a waiter, or with the same ticket as one.
    for (who, ticket, rank) in [(8, 80, 2), (9, 81, 3)] {
        let joined = say(trial, last("a", &(who, place(1, ticket)))).await;
        assert_eq!(in_line(joined).0, rank);
    }
    for ticket in [40, 81] {
        let joined = say(trial, last("a", &(10, place(1, ticket)))).await;
        assert_eq!(refused(joined), (1, by(1), 81));
    }
    assert_eq!(line(trial, "a").await, owners(&[5, 7, 8, 9]));
    // A waiter that is in the queue stays there, even if others came behind it.
    let again = say(trial, last("a", &(5, place(2, 50)))).await;
    assert_eq!(in_line(again).0, 0);
    // A waiter that would come before the holder is refused too. If nobody waits, it takes a free lock.
    let taken_at = say(trial, last("b", &(2, place(1, 50)))).await;
    assert_eq!(taken_at, taken(P, 1));
    for ticket in [49, 50] {
        let joined = say(trial, last("b", &(3, place(1, ticket)))).await;
        assert_eq!(refused(joined), (P, by(2), 50));
    }
    assert_eq!(
        in_line(say(trial, last("b", &(3, place(1, 51)))).await).0,
        0
    );
    // A free lock with waiters is handed to them, no matter what ticket the new one brings.
    stand(trial, "c", &[(5, place(1, 50)), (7, place(2, 70))]).await;
    say(trial, evict("c")).await;
    let joined = say(trial, last("c", &(3, place(1, 40)))).await;
    assert_eq!(refused(joined), (P, by(5), 70));
    assert_eq!(line(trial, "c").await, owners(&[7]));
    assert_eq!(trial.pushes().await, [granted(5, 1, P), next(7, 10)]);
}
