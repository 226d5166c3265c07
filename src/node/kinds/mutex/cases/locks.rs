//! The holder of a lock, and its time.

use super::*;

pub(super) async fn a_lock_is_granted_once_and_its_counter_grows(trial: &mut Trial<'_>) {
    assert_eq!(
        say(trial, acquire("a", 1, secs(10), 0)).await,
        Answer::Granted(1)
    );
    let (left, c, who) = held(say(trial, acquire("a", 2, secs(5), 100)).await);
    assert!(about(left, secs(10)), "{left:?}");
    assert_eq!(c, 1, "the counter is raised only under one's own lock");
    assert_eq!(who.as_deref(), Some(entry(1).as_str()));
    assert_eq!(
        say(trial, acquire("b", 2, secs(10), 40)).await,
        Answer::Granted(40)
    );
    assert_eq!(say(trial, release("a", 2)).await, Answer::Released(false));
    assert_eq!(say(trial, release("a", 1)).await, Answer::Released(true));
    assert_eq!(say(trial, release("a", 1)).await, Answer::Released(false));
    assert_eq!(
        say(trial, acquire("a", 3, secs(10), 0)).await,
        Answer::Granted(2)
    );
    let holder = Some(entry(3).as_str().to_owned());
    match say(trial, inspect("a")).await {
        Answer::InspectedMutex(it) => {
            let (who, left) = it.holder.unzip();
            let left = left.flatten().unwrap();
            assert_eq!((who, it.counter), (holder, 2));
            assert!(about(left, secs(10)), "{left:?}");
        }
        other => panic!("{other:?}"),
    }
    let nobody = Answer::InspectedMutex(Box::default());
    assert_eq!(say(trial, inspect("never held")).await, nobody);
    // The counter outlives a lease.
    say(trial, acquire("over", 1, Duration::from_millis(20), 0)).await;
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(say(trial, evict("over")).await, evicted(None));
    let over = Answer::InspectedMutex(Box::new(MutexInspection {
        counter: 1,
        ..MutexInspection::default()
    }));
    assert_eq!(say(trial, inspect("over")).await, over);
}

pub(super) async fn a_name_may_hold_any_character(trial: &mut Trial<'_>) {
    for n in ["\r\n$5\r\n", "_", "ä ö", ":@mutex:", "*", "\0"] {
        assert_eq!(
            say(trial, acquire(n, 1, secs(10), 7)).await,
            Answer::Granted(7),
            "{n:?}"
        );
        assert_eq!(counter(trial, n).await, 7, "{n:?}");
    }
}

pub(super) async fn an_eviction_frees_the_lock_and_keeps_its_counter(trial: &mut Trial<'_>) {
    assert_eq!(say(trial, evict("a")).await, evicted(None));
    say(trial, acquire("a", 1, secs(10), 0)).await;
    assert_eq!(say(trial, evict("a")).await, evicted(Some(1)));
    assert_eq!(say(trial, extend("a", 1, secs(10))).await, Answer::Lost);
    assert_eq!(
        say(trial, acquire("a", 2, secs(10), 0)).await,
        Answer::Granted(2)
    );
}
