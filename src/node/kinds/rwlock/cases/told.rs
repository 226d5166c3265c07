//! The waiters that are told that the lock was freed.

use super::*;

fn freed(owner: u128) -> Push {
    Push {
        entry: entry(owner),
        says: Says::Freed,
    }
}

fn waits_at(owner: u128, channel: &str) -> Option<Waiter> {
    Some(Waiter {
        channel: channel.into(),
        ..wait(owner)
    })
}

pub(super) async fn a_waiter_in_each_process_is_told_of_a_release(trial: &mut Trial<'_>) {
    let mut other = trial.another_process(OTHER).await;
    granted(trial, writes(1)).await;
    refused(trial, read("a", 2, secs(15), P, waits_at(20, CHANNEL))).await;
    refused(trial, read("a", 4, secs(15), P, waits_at(40, OTHER))).await;
    nap().await;
    refused(trial, write("a", 3, secs(15), P, waits_at(30, CHANNEL))).await;
    refused(trial, read("a", 5, secs(15), P, waits_at(50, NOBODY))).await;
    refused(trial, read("a", 6, secs(15), P, waits_at(60, ""))).await;
    assert_eq!(trial.pushes().await, []);
    say(trial, release(1)).await;
    assert_eq!(trial.pushes().await, [freed(30)], "once, by who asked last");
    assert_eq!(trial.pushes_to(&mut other).await, [freed(40)]);
    // A waiter that wants to hear it again must ask again.
    granted(trial, reads(2)).await;
    say(trial, release(2)).await;
    assert_eq!(trial.pushes().await, []);
}

pub(super) async fn only_live_waiters_are_told_and_only_if_something_was_freed(
    trial: &mut Trial<'_>,
) {
    for owner in [1, 2] {
        granted(trial, reads(owner)).await;
    }
    refused(trial, write("a", 3, secs(15), P, Some(wait(30)))).await;
    say(trial, release(9)).await;
    say(trial, release(1)).await;
    say(trial, release(1)).await;
    assert_eq!(trial.pushes().await, [], "one reads still");
    let strangers = "20000 3 5 word 5000 nonce";
    let _ = trial.ask_with(&release(2).into(), strangers).await;
    assert_eq!(trial.pushes().await, [], "it may not vote");
    granted(trial, writes(4)).await;
    // A waiter whose life is over is told nothing, and nor is an entry that only tries.
    let short = Waiter {
        life: millis(40),
        ..wait(50)
    };
    say(trial, evict("a")).await;
    trial.pushes().await;
    granted(trial, writes(4)).await;
    refused(trial, read("a", 5, secs(15), P, Some(short))).await;
    refused(trial, reads(6)).await;
    nap().await;
    say(trial, release(4)).await;
    assert_eq!(trial.pushes().await, []);
}

pub(super) async fn a_rolled_back_attempt_notifies_no_waiter(trial: &mut Trial<'_>) {
    granted(trial, writes(1)).await;
    refused(trial, read("a", 2, secs(15), P, Some(wait(20)))).await;
    say(trial, taken_back(1)).await;
    // The lock is not kept for readers either: another writer comes in.
    granted(trial, writes(3)).await;
    say(trial, taken_back(3)).await;
    granted(trial, reads(4)).await;
    say(trial, taken_back(4)).await;
    assert_eq!(trial.pushes().await, []);
    granted(trial, writes(5)).await;
    say(trial, release(5)).await;
    assert_eq!(trial.pushes().await, [freed(20)], "it was held");
}

pub(super) async fn the_end_of_an_intent_is_told(trial: &mut Trial<'_>) {
    granted(trial, reads(1)).await;
    for who in [20, 21] {
        refused(trial, write("a", 2, secs(15), P, Some(wait(who)))).await;
    }
    refused(trial, read("a", 3, secs(15), P, Some(wait(30)))).await;
    trial.pushes().await;
    say(trial, release_of(2, Some(20))).await;
    assert_eq!(trial.pushes().await, [], "another waits");
    say(trial, release_of(2, Some(21))).await;
    assert_eq!(trial.pushes().await.len(), 1);
    granted(trial, reads(3)).await;
}
