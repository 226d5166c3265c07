//! An owner that waits in several tasks.

use tokio::time::Instant;
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt, registry};

use super::*;

/// The number of requests to the nodes' engine.
#[derive(Clone, Default)]
struct Requests(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Requests {
    fn on_new_span(
        &self,
        span: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: Context<'_, S>,
    ) {
        if span.metadata().name() == "acquire" {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

impl Requests {
    /// Counts the requests on this thread while the guard lives.
    fn count() -> (Self, tracing::subscriber::DefaultGuard) {
        let requests = Self::default();
        let guard = tracing::subscriber::set_default(registry().with(requests.clone()));
        (requests, guard)
    }

    fn made(&self) -> usize {
        self.0.swap(0, SeqCst)
    }
}

/// A fleet on which another client holds the name.
async fn held_elsewhere() -> (Fleet, Lease) {
    let fleet = fleet().await;
    let rival = fleet.other.mutex("a").lock().await.unwrap();
    (fleet, rival)
}

#[tokio::test(start_paused = true)]
async fn a_second_lock_joins_the_wait_of_the_first() {
    let (fleet, rival) = held_elsewhere().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let (requests, _guard) = Requests::count();
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut lock = Box::pin(mutex.lock(&owner));
        assert!(polled(&mut lock, 3).await.is_none());
        waiting.push(lock);
    }
    keeps(&owner, 1);
    assert_eq!(requests.made(), 1);
    rival.release().await.unwrap();
    let leases = futures::future::join_all(waiting).await;
    let leases: Vec<Lease> = leases.into_iter().map(Result::unwrap).collect();
    assert!(
        leases
            .iter()
            .all(|lease| lease.token() == leases[0].token())
    );
    assert_eq!(requests.made(), 0);
    let mut leases = leases.into_iter();
    let last = leases.next().unwrap();
    for lease in leases {
        lease.release().now_or_never().expect("at once").unwrap();
    }
    last.release().await.unwrap();
    assert!(fleet.is_free().await);
    fleet.assert_clean(&owner).await;
}

/// Any one of three waits is dropped, after any number of polls: the others get the lock.
#[tokio::test(start_paused = true)]
async fn a_shared_wait_goes_on_without_the_caller_that_began_it() {
    for dropped in 0..3 {
        for polls in 0..4 {
            let (fleet, rival) = held_elsewhere().await;
            let (mutex, owner) = (fleet.mutex(), Owner::new());
            let (requests, _guard) = Requests::count();
            let mut waiting = Vec::new();
            for nth in 0..3 {
                let mut lock = Box::pin(mutex.lock(&owner));
                let polls = if nth == dropped { polls } else { 2 };
                assert!(polled(&mut lock, polls).await.is_none());
                waiting.push(lock);
            }
            drop(waiting.remove(dropped));
            sleep(ms(300)).await;
            rival.release().await.unwrap();
            let (one, two) = (waiting.pop().unwrap(), waiting.pop().unwrap());
            let (one, two) = tokio::join!(one, two);
            assert_eq!(one.unwrap().token(), two.unwrap().token());
            assert_eq!(requests.made(), 1);
            fleet.assert_clean(&owner).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_request_is_rolled_back_when_its_last_waiter_is_dropped() {
    for polls in 0..6 {
        let (fleet, rival) = held_elsewhere().await;
        let (mutex, owner) = (fleet.mutex(), Owner::new());
        let mut waiting = [Box::pin(mutex.lock(&owner)), Box::pin(mutex.lock(&owner))];
        for lock in &mut waiting {
            assert!(polled(lock, polls).await.is_none());
        }
        keeps(&owner, usize::from(polls > 0));
        drop(waiting);
        keeps(&owner, 0);
        rival.release().await.unwrap();
        sleep(SOON).await;
        assert!(fleet.is_free().await);
        fleet.assert_clean(&owner).await;
    }
}

/// The lock is granted, and nobody has polled yet. A wait that is dropped then leaves its share to the others, and the
/// last one leaves nothing.
#[tokio::test(start_paused = true)]
async fn a_win_that_nobody_takes_is_given_back() {
    for taken in 0..3 {
        let (fleet, rival) = held_elsewhere().await;
        let (mutex, owner) = (fleet.mutex(), Owner::new());
        let mut waiting = [Box::pin(mutex.lock(&owner)), Box::pin(mutex.lock(&owner))];
        for lock in &mut waiting {
            assert!(polled(lock, 1).await.is_none());
        }
        rival.release().await.unwrap();
        sleep(SOON * 3).await;
        assert!(!fleet.is_free().await, "it was won");
        let mut shares = Vec::new();
        for lock in waiting.iter_mut().take(taken) {
            shares.push(polled(lock, 1).await.expect("at once").unwrap());
        }
        // A wait that was not polled yet counts as a share.
        let last = shares.pop();
        for share in shares {
            share.release().await.unwrap();
            assert!(!fleet.is_free().await);
        }
        if let Some(last) = last {
            last.release().await.unwrap();
            assert_eq!(fleet.is_free().await, taken == 2);
        }
        drop(waiting);
        fleet.assert_clean(&owner).await;
        assert!(fleet.is_free().await);
    }
}

#[tokio::test(start_paused = true)]
async fn each_waiter_keeps_its_own_wait_timeout() {
    let (fleet, rival) = held_elsewhere().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let (requests, _guard) = Requests::count();
    let start = Instant::now();
    let waits = |limit: Option<Duration>| {
        let mutex = match limit {
            Some(limit) => mutex.clone().wait_timeout(limit),
            None => mutex.clone(),
        };
        let lock = mutex.lock(&owner);
        tokio::spawn(async move { (lock.await, start.elapsed()) })
    };
    let limits = [
        Some(ms(1500)),
        Some(ms(3000)),
        Some(ms(700)),
        Some(ms(3000)),
        None,
    ];
    let mut waiting: Vec<_> = Vec::new();
    for limit in limits {
        waiting.push((limit, waits(limit)));
        tokio::task::yield_now().await;
    }
    let endless = waiting.pop().unwrap().1;
    for (limit, waiting) in waiting {
        let (answer, after) = waiting.await.unwrap();
        assert!(matches!(answer, Err(Error::Held(_))), "{answer:?}");
        let limit = limit.unwrap();
        // The clock is paused, so only timers take time, and each is rounded up to a millisecond.
        assert!(
            (limit..limit + ms(20)).contains(&after),
            "{after:?} of {limit:?}"
        );
    }
    // One request of the first wait, and one of the wait of 700 ms. When 1,500 ms were over, the three that had joined
    // went on: both waits of 3 s with one request, and the endless one with at most one more.
    let made = requests.made();
    assert!((3..=6).contains(&made), "{made}");
    rival.release().await.unwrap();
    let (lease, after) = endless.await.unwrap();
    // The lock was released after the waits of 3 s. The default ttl is 10 s, so nothing has expired.
    assert!(after < SOON * 6, "{after:?}");
    drop(lease.unwrap());
    fleet.assert_clean(&owner).await;
}

#[tokio::test(start_paused = true)]
async fn any_won_share_ends_every_wait_of_the_owner() {
    let (fleet, rival) = held_elsewhere().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    // These waits make four requests, because none of them can join another.
    let limits = [9, 7, 5, 3].map(|s| mutex.clone().wait_timeout(SOON * s));
    let mut waiting = Vec::new();
    for mutex in limits {
        let mut lock = Box::pin(mutex.lock(&owner));
        assert!(polled(&mut lock, 2).await.is_none());
        waiting.push(lock);
    }
    sleep(SOON).await;
    rival.release().await.unwrap();
    let start = Instant::now();
    let mut all = futures::future::join_all(waiting);
    let tried = async {
        loop {
            if let Some(lease) = mutex.try_lock(&owner).await.unwrap() {
                return lease;
            }
            sleep(ms(1)).await;
        }
    };
    let (tried, leases) = tokio::join!(tried, &mut all);
    for lease in leases {
        assert_eq!(lease.unwrap().token(), tried.token());
    }
    assert!(start.elapsed() < SOON, "nobody waits for his own end");
    drop(tried);
    fleet.assert_clean(&owner).await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_zero_is_one_attempt_of_its_own() {
    let (fleet, rival) = held_elsewhere().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let mut waiting = Box::pin(mutex.lock(&owner));
    assert!(polled(&mut waiting, 2).await.is_none());
    let start = Instant::now();
    let once = mutex.clone().wait_timeout(Duration::ZERO);
    let (requests, _guard) = Requests::count();
    let (one, two) = tokio::join!(once.lock(&owner), once.lock(&owner));
    for error in [one, two] {
        assert!(matches!(error, Err(Error::Held(_))), "{error:?}");
    }
    assert_eq!(requests.made(), 2);
    assert!(mutex.try_lock(&owner).await.unwrap().is_none());
    assert!(mutex.try_run(&owner, async |_| ()).await.unwrap().is_none());
    assert!(start.elapsed() < SOON);
    drop(rival);
    let lease = waiting.await.unwrap();
    let entered = once.lock(&owner).now_or_never().expect("at once");
    assert_eq!(entered.unwrap().token(), lease.token());
    drop(lease);
    fleet.assert_clean(&owner).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_shared_wait_reaches_every_waiter() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    fleet.stop_all();
    sleep(SOON).await;
    let (requests, _guard) = Requests::count();
    for limit in [None, Some(SOON * 30)] {
        let start = Instant::now();
        let mutex = match limit {
            Some(limit) => mutex.clone().wait_timeout(limit),
            None => mutex.clone(),
        };
        let waiting = (0..10).map(|_| mutex.lock(&owner));
        for answer in futures::future::join_all(waiting).await {
            assert!(matches!(answer, Err(Error::NoQuorum(_))), "{answer:?}");
        }
        assert!(start.elapsed() < SOON * 2, "not one after the other");
        assert_eq!(requests.made(), 1);
    }
    keeps(&owner, 0);
    drop(fleet.quorum.shutdown().await);
    let (one, two) = tokio::join!(mutex.lock(&owner), mutex.lock(&owner));
    assert!(matches!(
        (&one, &two),
        (Err(Error::Closed), Err(Error::Closed))
    ));
}

/// The task that began the wait does not poll any more, but it still exists. No other task may take its old answer.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_is_not_joined() {
    let (fleet, rival) = held_elsewhere().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let mut brief = Box::pin(mutex.clone().wait_timeout(SOON).lock(&owner));
    assert!(polled(&mut brief, 1).await.is_none());
    let long = mutex.clone().wait_timeout(SOON * 3).lock(&owner).await;
    assert!(matches!(long, Err(Error::Held(_))), "{long:?}");
    rival.release().await.unwrap();
    let lease = mutex.lock(&owner).await.unwrap();
    let late = brief.await.unwrap();
    assert_eq!(late.token(), lease.token());
    drop((lease, late));
    fleet.assert_clean(&owner).await;

    fleet.stop_all();
    sleep(SOON).await;
    let mut unread = Box::pin(mutex.lock(&owner));
    assert!(polled(&mut unread, 1).await.is_none());
    let error = mutex.lock(&owner).await;
    assert!(matches!(error, Err(Error::NoQuorum(_))), "{error:?}");
    fleet.nodes.iter().for_each(MemoryNode::start);
    fleet.quorum.voting(SOON * 60).await.unwrap();
    let lease = mutex.lock(&owner).await.expect("the nodes are back");
    assert_eq!(unread.await.unwrap().token(), lease.token());
}

/// The notice of this ttl is 500 ms, so such a lease is lost as soon as it is granted.
#[tokio::test(start_paused = true)]
async fn a_lease_that_ends_at_once_is_lost_and_does_not_hang() {
    let quorum = Quorum::in_memory(3);
    let mutex = quorum
        .reentrant_mutex("short")
        .renewal(Renewal::auto().max_hold(ms(100)));
    let lost = tokio::time::timeout(SOON, mutex.lock(&Owner::new())).await;
    let lost = lost.expect("it does not hang").expect_err("it is over");
    assert!(matches!(lost, Error::Lost(_)), "{lost:?}");
}
