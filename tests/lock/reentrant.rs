//! The reentrant mutex: an owner enters again what it holds, the last share frees the lock, tasks of one owner share a
//! wait, and nothing stays behind. The masters are in this process, mostly with a paused clock.

mod model;
mod waits;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use quorate::{Error, Lease, LossReason, MemoryNode, Owner, Quorum, ReentrantMutex, Renewal};
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(10);
/// The limit for background work. It is far below the ttl.
const SOON: Duration = Duration::from_secs(1);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three masters, and two clients of them.
struct Fleet {
    nodes: [MemoryNode; 3],
    quorum: Quorum,
    other: Quorum,
}

async fn fleet() -> Fleet {
    let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
    let connect = || Quorum::builder().nodes(&nodes).connect();
    let quorum = connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let other = connect().await.unwrap();
    other.voting(SOON).await.unwrap();
    Fleet {
        nodes,
        quorum,
        other,
    }
}

impl Fleet {
    fn mutex(&self) -> ReentrantMutex {
        self.quorum.reentrant_mutex("a")
    }

    /// Returns true if another client can take the name now.
    async fn is_free(&self) -> bool {
        self.other.mutex("a").try_lock().await.unwrap().is_some()
    }

    fn stop_all(&self) {
        self.nodes.iter().for_each(MemoryNode::stop);
    }

    /// Checks that nothing is held or asked for on any node, and that the owner keeps nothing.
    async fn assert_clean(&self, owner: &Owner) {
        sleep(SOON).await;
        let seen = self.other.inspect("a").await.unwrap();
        assert!(seen.holder().is_none(), "{seen}");
        for node in &seen.nodes {
            assert!(node.holder.is_none(), "{seen}");
        }
        keeps(owner, 0);
    }
}

/// Checks how many names an owner keeps.
#[track_caller]
fn keeps(owner: &Owner, names: usize) {
    assert_eq!(format!("{owner:?}"), format!("Owner {{ names: {names} }}"));
}

/// Polls the future this many times. Returns its output if it is done.
async fn polled<F: Future + Unpin>(future: &mut F, times: usize) -> Option<F::Output> {
    for _ in 0..times {
        let poll = poll_fn(|cx| Poll::Ready(future.poll_unpin(cx)));
        if let Poll::Ready(output) = poll.await {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn an_owner_enters_again_at_once_and_no_node_is_asked() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let outer = mutex.lock(&owner).await.unwrap();
    fleet.stop_all();
    let again = |owner: &Owner| mutex.lock(owner).now_or_never();
    let inner = again(&owner).expect("at once").unwrap();
    let clone = fleet.quorum.clone().reentrant_mutex("a");
    let third = clone.try_lock(&owner.clone()).now_or_never();
    let third = third.expect("at once").unwrap().expect("it is ours");
    assert_eq!(inner.token(), outer.token());
    assert_eq!(third.token(), outer.token());
    assert_eq!(third.name(), "a");
    keeps(&owner, 1);

    assert!(again(&Owner::new()).is_none(), "another owner asks");
    let bad = mutex.clone().ttl(ms(1));
    let error = bad.lock(&owner).now_or_never().expect("at once");
    assert!(matches!(error, Err(Error::Invalid(_))), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_share_frees_the_lock_in_any_order() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let mut last_token = None;
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let mut shares = Vec::new();
        for _ in 0..3 {
            shares.push(Some(mutex.lock(&owner).await.unwrap()));
        }
        let token = shares[0].as_ref().map(Lease::token);
        assert!(token > last_token, "a new lock");
        last_token = token;
        for (nth, index) in order.into_iter().enumerate() {
            let share = shares[index].take().unwrap();
            assert!(share.is_valid());
            let released = share.release();
            if nth < 2 {
                released.now_or_never().expect("at once").unwrap();
                assert!(!fleet.is_free().await);
            } else {
                released.await.unwrap();
            }
        }
        assert!(fleet.is_free().await, "a majority has confirmed it");
        sleep(SOON).await;
    }
    fleet.assert_clean(&owner).await;
}

#[tokio::test(start_paused = true)]
async fn the_last_release_waits_for_the_majority_and_the_inner_one_does_not() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let outer = mutex.lock(&owner).await.unwrap();
    let inner = mutex.lock(&owner).await.unwrap();
    fleet.stop_all();
    inner.release().now_or_never().expect("at once").unwrap();
    let error = outer.release().await;
    assert!(matches!(error, Err(Error::NoQuorum(_))), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_loss_reaches_every_share_and_the_next_lock_is_a_new_one() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let shares = [
        mutex.lock(&owner).await.unwrap(),
        mutex.lock(&owner).await.unwrap(),
    ];
    let [mut one, mut two] = shares.each_ref().map(|share| {
        let watch = share.watch();
        tokio::spawn(async move { watch.lost().await })
    });
    let guarded = tokio::spawn({
        let watch = shares[1].watch();
        async move { watch.guard(std::future::pending::<()>()).await }
    });
    sleep(SOON).await;
    assert!((&mut one).now_or_never().is_none() && (&mut two).now_or_never().is_none());
    assert!(fleet.other.evict("a").await.unwrap());
    assert_eq!(one.await.unwrap(), LossReason::Evicted);
    assert_eq!(two.await.unwrap(), LossReason::Evicted);
    let lost = guarded.await.unwrap().unwrap_err();
    assert_eq!(lost.reason, LossReason::Evicted);

    let fresh = mutex.lock(&owner).await.unwrap();
    assert!(fresh.token() > shares[0].token());
    let second = mutex.lock(&owner).await.unwrap();
    assert_eq!(second.token(), fresh.token());
    for share in shares {
        assert!(!share.is_valid());
        let error = share.extend().await;
        assert!(matches!(error, Err(Error::Lost(_))), "{error:?}");
        let error = share.release().await;
        assert!(matches!(error, Err(Error::Lost(_))), "{error:?}");
    }
    assert!(fresh.is_valid() && second.is_valid());
    assert!(!fleet.is_free().await, "the new one is still held");
    drop(second);
    fresh.release().await.unwrap();
    assert!(fleet.is_free().await);
    fleet.assert_clean(&owner).await;
}

/// Nobody was told of the end yet: only the clock shows it.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_by_the_clock_is_not_shared() {
    let fleet = fleet().await;
    let mutex = fleet.mutex().ttl(SOON).renewal(Renewal::off());
    let owner = Owner::new();
    let old = mutex.lock(&owner).await.unwrap();
    // No task runs in between.
    tokio::time::advance(old.validity()).await;
    let fresh = mutex.lock(&owner).await.unwrap();
    assert!(fresh.token() > old.token());
    assert!(fresh.is_valid() && !old.is_valid());
    let error = old.release().await;
    assert!(matches!(error, Err(Error::Lost(_))), "{error:?}");
    assert!(fresh.is_valid());
    fresh.release().await.unwrap();
    fleet.assert_clean(&owner).await;
}

#[tokio::test(start_paused = true)]
async fn settings_of_the_first_entry_count() {
    let fleet = fleet().await;
    let owner = Owner::new();
    let limited = fleet.mutex().renewal(Renewal::auto().max_hold(SOON));
    let first = limited.lock(&owner).await.unwrap();
    let second = fleet.mutex().lock(&owner).await.unwrap();
    assert!(second.validity() <= SOON);
    assert_eq!(second.lost().await, LossReason::MaxHold);
    assert_eq!(first.lost().await, LossReason::MaxHold);
    drop((first, second));
    sleep(SOON).await;
    let first = fleet.mutex().lock(&owner).await.unwrap();
    let second = limited.lock(&owner).await.unwrap();
    sleep(TTL * 2).await;
    assert!(first.is_valid() && second.is_valid());
    assert!(second.held_for() >= TTL * 2, "held_for is the lock's");
}

#[tokio::test(start_paused = true)]
async fn extending_and_beating_one_share_does_it_for_all() {
    let fleet = fleet().await;
    let owner = Owner::new();
    let mutex = fleet.mutex().renewal(Renewal::off());
    let (first, second) = (
        mutex.lock(&owner).await.unwrap(),
        mutex.lock(&owner).await.unwrap(),
    );
    sleep(TTL / 2).await;
    let before = second.validity();
    first.extend().await.unwrap();
    assert!(second.validity() > before + TTL / 3);
    drop(first);
    second.release().await.unwrap();

    let beating = fleet.mutex().renewal(Renewal::auto().heartbeat(SOON));
    let (first, second) = (
        beating.lock(&owner).await.unwrap(),
        beating.lock(&owner).await.unwrap(),
    );
    let (of_first, of_second) = (first.watch(), second.watch());
    for _ in 0..4 {
        sleep(SOON / 2).await;
        of_first.beat();
    }
    assert!(second.is_valid(), "one beats for all");
    drop(first);
    for _ in 0..4 {
        sleep(SOON / 2).await;
        of_first.beat();
    }
    assert!(!second.is_valid(), "who left does not");
    assert_eq!(of_second.lost().await, LossReason::NoHeartbeat);
}

#[tokio::test(start_paused = true)]
async fn one_abandoned_share_leaves_the_lock_to_its_ttl() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let (first, second) = (
        mutex.lock(&owner).await.unwrap(),
        mutex.lock(&owner).await.unwrap(),
    );
    first.abandon();
    sleep(TTL * 2).await;
    assert!(second.is_valid(), "it is renewed for the others");
    second.release().await.unwrap();
    sleep(TTL / 2).await;
    assert!(!fleet.is_free().await);
    let ours = mutex.try_lock(&owner).await.unwrap();
    assert!(ours.is_none(), "nor does the owner get it back");
    sleep(TTL / 2).await;
    assert!(fleet.is_free().await);
    fleet.assert_clean(&owner).await;
}

#[tokio::test(start_paused = true)]
async fn two_owners_two_names_and_two_quorums_are_never_mixed_up() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let lease = mutex.lock(&owner).await.unwrap();
    for stranger in [Owner::new(), Owner::default()] {
        assert!(mutex.try_lock(&stranger).await.unwrap().is_none());
    }
    assert!(
        fleet.quorum.mutex("a").try_lock().await.unwrap().is_none(),
        "one name space"
    );
    let elsewhere = fleet.other.reentrant_mutex("a");
    assert!(elsewhere.try_lock(&owner).await.unwrap().is_none());
    let b = fleet.quorum.reentrant_mutex("b");
    let of_b = b.lock(&owner).await.unwrap();
    assert_eq!(of_b.name(), "b");
    keeps(&owner, 2);
    // These quorums have nodes of their own, one after the other, so an address may be used again.
    for _ in 0..20 {
        let own = Quorum::in_memory(1);
        let lease = own.reentrant_mutex("a").lock(&owner).await.unwrap();
        keeps(&owner, 3);
        drop(own);
        drop(lease);
        keeps(&owner, 2);
    }
    drop((lease, of_b));
    fleet.assert_clean(&owner).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_keeps_nothing_of_names_that_it_left() {
    let fleet = fleet().await;
    let owner = Owner::new();
    for n in 0..200 {
        let mutex = fleet.quorum.reentrant_mutex(format!("name-{n}"));
        let (lease, inner) = (
            mutex.lock(&owner).await.unwrap(),
            mutex.lock(&owner).await.unwrap(),
        );
        let watch = lease.watch();
        keeps(&owner, 1);
        drop(lease);
        keeps(&owner, 1);
        inner.release().await.unwrap();
        keeps(&owner, 0);
        assert!(!watch.is_valid(), "a watch keeps nothing");
    }
    let lease = fleet.mutex().lock(&owner).await.unwrap();
    drop(owner);
    assert!(!fleet.is_free().await, "the lease holds on by itself");
    lease.release().await.unwrap();
    assert!(fleet.is_free().await);
}

#[tokio::test(start_paused = true)]
async fn run_and_try_run_are_reentrant() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let (inside, me) = (mutex.clone(), owner.clone());
    let work = mutex.run(&owner, |outer| async move {
        let same = inside.run(&me, |inner| async move { inner.token() });
        assert_eq!(same.await.unwrap(), outer.token());
        assert!(outer.is_valid());
        let tried = inside.try_run(&me, |inner| async move { inner.token() });
        assert_eq!(tried.await.unwrap(), Some(outer.token()));
        assert_eq!(
            inside.try_run(&Owner::new(), async |_| ()).await.unwrap(),
            None
        );
        outer.token()
    });
    let token = work.await.unwrap();
    let next = mutex.lock(&owner).await.unwrap();
    assert!(next.token() > token, "it was released");

    let lost = mutex.run(&owner, |_| std::future::pending::<()>());
    let (lost, _) = tokio::join!(lost, fleet.other.evict("a"));
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    drop(next);
    fleet.assert_clean(&owner).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_every_share() {
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    let (first, second) = (
        mutex.lock(&owner).await.unwrap(),
        mutex.lock(&owner).await.unwrap(),
    );
    let mut end = pin!(fleet.quorum.shutdown());
    drop(first);
    assert!(tokio::time::timeout(SOON, &mut end).await.is_err());
    let third = mutex.lock(&owner).await.unwrap();
    assert_eq!(third.token(), second.token(), "what ends may still need it");
    drop((second, third));
    assert!(end.await.is_empty());
    let error = mutex.lock(&owner).await;
    assert!(matches!(error, Err(Error::Closed)), "{error:?}");
    keeps(&owner, 0);
}

/// The operation that is dropped half-way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Lock,
    TryLock,
    Run,
    Enter,
    Extend,
    ReleaseInner,
    ReleaseLast,
}

/// Every operation is dropped after this many polls: nothing stays behind, and another share stays valid.
#[tokio::test(start_paused = true)]
async fn dropped_anywhere_nothing_stays_behind() {
    use Op::{Enter, Extend, Lock, ReleaseInner, ReleaseLast, Run, TryLock};
    let fleet = fleet().await;
    let (mutex, owner) = (fleet.mutex(), Owner::new());
    for slow in [Duration::ZERO, ms(20)] {
        fleet.nodes.iter().for_each(|node| node.delay(slow));
        for op in [Lock, TryLock, Run, Enter, Extend, ReleaseInner, ReleaseLast] {
            for polls in 0..8 {
                let held = match op {
                    Lock | TryLock | Run => None,
                    _ => Some(mutex.lock(&owner).await.unwrap()),
                };
                let (kept, mut future) = begun(op, held, &mutex, &owner).await;
                polled(&mut future, polls).await;
                drop(future);
                if let Some(kept) = kept {
                    assert!(kept.is_valid(), "{op:?} after {polls} polls");
                    assert!(!fleet.is_free().await, "{op:?} after {polls} polls");
                }
                fleet.assert_clean(&owner).await;
            }
        }
    }
}

/// Begins the operation. Returns it with the share that does not belong to it.
async fn begun(
    op: Op,
    held: Option<Lease>,
    mutex: &ReentrantMutex,
    owner: &Owner,
) -> (Option<Lease>, BoxFuture<'static, ()>) {
    let future = match (op, &held) {
        (Op::Lock | Op::Enter, _) => mutex.lock(owner).map(drop).boxed(),
        (Op::TryLock, _) => mutex.try_lock(owner).map(drop).boxed(),
        (Op::Run, _) => mutex.run(owner, |_| sleep(ms(5))).map(drop).boxed(),
        (Op::Extend, Some(held)) => held.extend().map(drop).boxed(),
        (Op::ReleaseInner, _) => {
            let inner = mutex.lock(owner).await.unwrap();
            async move { drop(inner.release().await) }.boxed()
        }
        (_, _) => {
            let last = held.unwrap();
            return (None, async move { drop(last.release().await) }.boxed());
        }
    };
    (held, future)
}

/// Real threads and real time: owners exclude each other, and the tasks of one owner share.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn owners_exclude_each_other_on_many_threads() {
    let quorum = Quorum::in_memory(3);
    let owners: [Owner; 3] = std::array::from_fn(|_| Owner::new());
    let inside: Arc<[AtomicUsize; 3]> = Arc::default();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..9 {
        let (who, mutex) = (task % 3, quorum.reentrant_mutex("a"));
        let (owner, inside) = (owners[who].clone(), Arc::clone(&inside));
        tasks.spawn(async move {
            for turn in 0..40 {
                let lease = mutex.lock(&owner).await.unwrap();
                inside[who].fetch_add(1, SeqCst);
                let again = mutex.lock(&owner).await.unwrap();
                for (other, count) in inside.iter().enumerate() {
                    assert!(
                        other == who || count.load(SeqCst) == 0 || !again.is_valid(),
                        "{other} is inside with {who}"
                    );
                }
                assert_eq!(lease.token(), again.token());
                tokio::task::yield_now().await;
                if turn % 3 == 0 {
                    drop(lease);
                    inside[who].fetch_sub(1, SeqCst);
                    again.release().await.unwrap();
                } else {
                    drop(again);
                    inside[who].fetch_sub(1, SeqCst);
                    lease.release().await.unwrap();
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    owners.iter().for_each(|owner| keeps(owner, 0));
    assert!(quorum.shutdown().await.is_empty());
}
