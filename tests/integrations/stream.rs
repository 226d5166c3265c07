//! A stream whose items come at a limited rate: no item is lost, doubled or out of order, and no unit is taken for an
//! item that does not exist.

use std::time::Duration;

use crate::support::{Fleet, HANG, Kind, most_within};
use futures::{
    Stream as _, StreamExt as _,
    channel::mpsc,
    stream::{self, FusedStream as _},
};
use quorate::{Error, Outage, Quorum, Quota, stream::StreamExt as _};
use tokio::time::{Instant, sleep, timeout};

const PERIOD: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn no_interval_sees_more_items_than_the_limit_and_all_come_in_order() {
    let quorum = Quorum::in_memory(3);
    // The limit is kept as slots, as shares, and as shares in blocks.
    for (limit, block) in [(9, None), (18, None), (18, Some(3))] {
        let limiter = quorum.rate_limiter(format!("{block:?}"), Quota::new(limit, PERIOD));
        let limiter = match block {
            Some(k) => limiter.block(k),
            None => limiter,
        };
        let mut items = stream::iter(0..5 * limit).rate_limited(limiter);
        let mut seen = Vec::new();
        while let Some(item) = items.next().await {
            seen.push((Instant::now(), item.unwrap()));
        }
        assert!(
            seen.iter().map(|(_, item)| *item).eq(0..5 * limit),
            "{block:?}"
        );
        let at: Vec<_> = seen.iter().map(|(at, _)| *at).collect();
        assert!(most_within(&at, PERIOD) <= limit as usize, "{block:?}");
        let took = at[at.len() - 1] - at[0];
        // Five limits, each of which is free again after less than 1.2 s, with a second to spare.
        assert!(took < 7 * PERIOD, "{block:?}: {took:?}");
        assert!(items.is_terminated());
        assert_eq!(items.size_hint(), (0, Some(0)));
        assert!(items.next().await.is_none(), "it stays at its end");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_stream_takes_no_unit_before_its_item_is_there() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("slow", Quota::new(3, PERIOD));
    let (mut puts, gets) = mpsc::channel(8);
    let mut items = gets.rate_limited(limiter.clone());
    assert!(
        timeout(3 * PERIOD, items.next()).await.is_err(),
        "nothing is there"
    );
    assert_eq!(limiter.check_n(0).await.unwrap().remaining(), 3);
    puts.try_send("one").unwrap();
    assert_eq!(items.next().await.unwrap().unwrap(), "one");
    assert_eq!(limiter.check_n(0).await.unwrap().remaining(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_dropped_loses_neither_the_item_nor_its_place() {
    let quorum = Quorum::in_memory(3);
    let limiter = quorum.rate_limiter("dropped", Quota::new(3, PERIOD));
    let mut items = stream::iter(1..=5).rate_limited(limiter);
    for item in 1..=3 {
        assert_eq!(items.next().await.unwrap().unwrap(), item);
    }
    for _ in 0..3 {
        let waits = timeout(PERIOD / 10, items.next()).await;
        assert!(waits.is_err(), "no unit is free yet");
    }
    assert_eq!(items.size_hint(), (1, None), "an item or an error");
    assert_eq!(items.next().await.unwrap().unwrap(), 4);
    assert_eq!(items.next().await.unwrap().unwrap(), 5);
    assert!(items.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn after_an_error_that_cannot_pass_it_ends_and_the_item_is_there() {
    let quorum = Quorum::in_memory(3);
    let bad = quorum.rate_limiter("", Quota::new(3, PERIOD));
    let mut items = stream::iter(["one", "two"]).rate_limited(bad);
    let error = items.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(items.next().await.is_none());
    let (rest, item) = items.into_parts();
    assert_eq!(item, Some("one"));
    assert_eq!(rest.collect::<Vec<_>>().await, ["two"]);

    let limiter = quorum.rate_limiter("closed", Quota::new(3, PERIOD));
    let mut items = stream::iter(["one"]).rate_limited(limiter);
    quorum.shutdown().await;
    let error = items.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Closed), "{error:?}");
    assert!(items.next().await.is_none());
}

/// The next item, after errors that pass.
async fn item_of<T>(mut items: impl futures::Stream<Item = Result<T, Error>> + Unpin) -> T {
    let next = async {
        loop {
            match items.next().await.expect("it has not ended") {
                Ok(item) => break item,
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
    };
    let next = timeout(HANG, next).await;
    next.expect("it goes on")
}

/// A loop that only counts the errors asks no more often than `retry_after` says, and gets every item in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_told_and_the_same_item_comes_after_it() {
    let fleet = Fleet::start(3, Kind::Redis);
    let quorum = Quorum::builder()
        .nodes(fleet.urls())
        .max_ttl(Duration::from_millis(500))
        .restart_margin(Duration::from_millis(200))
        .node_timeout(Duration::from_millis(200));
    let quorum = quorum.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum.voting(Duration::from_secs(5)).await.unwrap();
    let limiter = quorum.rate_limiter("outage", Quota::new(3_000, PERIOD));
    let mut items = stream::iter(1..=3).rate_limited(limiter.clone());
    assert_eq!(item_of(&mut items).await, 1);

    fleet.iter().for_each(|server| server.sigstop());
    let start = Instant::now();
    let mut errors = 0;
    while start.elapsed() < Duration::from_secs(2) {
        match timeout(Duration::from_secs(2), items.next()).await {
            Ok(Some(Err(error))) => {
                assert!(error.is_retryable(), "{error:?}");
                errors += 1;
            }
            Ok(other) => panic!("{other:?} while no master answers"),
            Err(_) => {}
        }
    }
    assert!((1..=40).contains(&errors), "{errors} errors in 2 s");
    fleet.iter().for_each(|server| server.sigcont());
    assert_eq!(item_of(&mut items).await, 2);

    // A stream that lets everything through in an outage never returns an error about one.
    let open = limiter.on_outage(Outage::Allow);
    fleet.iter().for_each(|server| server.sigstop());
    sleep(Duration::from_millis(500)).await;
    let all = stream::iter(1..=20).rate_limited(open);
    let all: Vec<_> = timeout(HANG, all.collect())
        .await
        .expect("it does not wait for masters");
    fleet.iter().for_each(|server| server.sigcont());
    assert!(all.iter().all(Result::is_ok), "{all:?}");
}
